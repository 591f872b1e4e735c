"""`relaxc compile`: part of an edit-and-run loop, so it parses its own arguments, as `check` does."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from relaxc import cli_spec, pipeline
from relaxc.usage import UsageError

if TYPE_CHECKING:
    from relaxc.build.targets import Targets
    from relaxc.language.source import Source
    from relaxc.language.spec import Cluster
    from relaxc.schedule.network import Network
    from relaxc.schedule.profile import Profile
    from relaxc.wire.parameters import Parameter


def compile(arguments: Sequence[str]) -> int:
    """Compile a spec into a plan's folder. Returns the exit status; raises RelaxError (RX04, RX05)."""
    options = _options(arguments)
    _refuse_early(options)
    source, settings = cli_spec.named(options.spec), cli_spec.settings_of(options.set)
    name = "stdin" if options.spec == cli_spec.STDIN else Path(options.spec).stem
    fitting = _Fitting(options)
    if options.sample is not None:
        chosen, errors = cli_spec.attempt(partial(_chosen, source, settings, name, fitting))
        if chosen is None:
            cli_spec.show(errors, json=False, color="auto")
            return cli_spec.WRONG_SPEC
        source = chosen
    typed, errors = cli_spec.attempt(partial(cli_spec.checked, source, settings))
    if typed is None:
        cli_spec.show(errors, json=False, color="auto")
        return cli_spec.WRONG_SPEC
    parameters, profile = fitting.traced
    among, targets = fitting.among(typed.spec.cluster), _targets(options)
    judged, errors = cli_spec.attempt(partial(pipeline.among, typed, () if among is None else among[1:]))
    cli_spec.show(errors if judged is None else judged.warnings, json=False, color="auto")
    if judged is None:
        return cli_spec.WRONG_SPEC
    build = partial(
        pipeline.build, typed.spec, settings, name, parameters, profile=profile, among=among, targets=targets
    )
    built, errors = cli_spec.attempt(build)
    cli_spec.show(errors, json=False, color="auto")
    if built is None:
        return cli_spec.WRONG_SPEC
    folder = options.output or Path("build") / name
    pipeline.deliver(built, folder, options.carry_runtime)
    sys.stdout.write(f"{folder}: compiled {source.name}\n")
    if profile is not None:
        from relaxc.schedule.profile_text import report

        sys.stdout.writelines(f"{line}\n" for line in report(profile))
    if options.verbose and targets is not None:
        sys.stdout.writelines(f"{line}\n" for line in _uses(built, targets))
    return cli_spec.OK


def _refuse_early(options: Namespace) -> None:
    """What is wrong with the network and the workers by themselves, before a model is traced for them. Raise
    UsageError, ModelError (RX044x)."""
    from relaxc.schedule.network_file import require_workers
    from relaxc.schedule.network_text import parse_network

    cli_spec.refuse_counts([] if options.workers is None else [options.workers])
    if options.cores is not None and options.cores < 1:
        raise UsageError(f"--cores takes one or more, but got {options.cores}")
    if options.network is not None and options.workers is not None:
        require_workers(parse_network(options.network), options.workers)


class _Fitting:
    """What a plan is fitted to, found out once."""

    def __init__(self, options: Namespace) -> None:
        self._options = options

    @cached_property
    def traced(self) -> tuple[Sequence[Parameter] | None, Profile | None]:
        return _fitted_to(self._options.model, self._options.sample)

    @property
    def cores(self) -> int | None:
        return None if self._options.cores is None else int(self._options.cores)

    def among(self, cluster: Cluster | None) -> tuple[Network, int] | None:
        return _among(self._options, cluster)


def _chosen(source: Source, settings: dict[str, str], name: str, fitting: _Fitting) -> Source:
    """With a codec and a route for what leaves them open, where there is something to choose by."""
    from relaxc.choose import resolved

    _, profile = fitting.traced
    if profile is None:
        return source
    return resolved(source, settings, name, profile, fitting.among, _say, fitting.cores)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _fitted_to(model: str | None, sample: str | None) -> tuple[Sequence[Parameter] | None, Profile | None]:
    """The model's parameters, and its trace on the sample. Raise UsageError, ModelError (RX04)."""
    if model is None:
        if sample is not None:
            raise UsageError("--sample is what --model is called with: give that too")
        return None, None
    from relaxc.attach.factory import model_of

    made = model_of(model)
    from relaxc.attach.parameters import read_parameters

    parameters = read_parameters(made).parameters
    if sample is None:
        return parameters, None
    from relaxc.schedule.trace import parse_sample, trace

    return parameters, trace(made, parse_sample(sample))


def _among(options: Namespace, cluster: Cluster | None) -> tuple[Network, int] | None:
    """The network and the number of workers to fit the plan to. Raise UsageError, ModelError (RX044x)."""
    if options.sample is None:
        if options.network is not None or options.workers is not None:
            raise UsageError("--network and --workers fit a plan to a model: give --model and --sample too")
        return None
    if options.network is None and options.workers is None and (cluster is None or cluster.workers is None):
        return None
    from relaxc.cli_prediction import network_of, workers_of

    network = network_of(options.network, cluster)
    return network, workers_of(options.workers, network)


def _targets(options: Namespace) -> Targets | None:
    """Raises BuildError (RX05) for targets that are none."""
    if options.target is None and options.arch is None:
        return None
    from relaxc.build.targets import targets_of

    return targets_of(
        _listed("cpu" if options.target is None else options.target),
        None if options.arch is None else _listed(options.arch),
    )


def _listed(text: str) -> list[str]:
    return text.replace(" ", "").split(",")


def _uses(built: Path, targets: Targets) -> Iterator[str]:
    """What each kernel takes of a GPU, a line each."""
    from relaxc.build.cubins import CUDA_SOURCE, LOG, build_cubin, used

    source = built / CUDA_SOURCE
    for architecture in targets.architectures if source.is_file() else ():
        log = build_cubin(source.read_text(), architecture).with_name(LOG).read_text()
        for use in used(log):
            spilled = f", {use.spills} bytes spilled" if use.spills else ""
            yield f"  {architecture} {use.kernel}: {use.registers} registers{spilled}"


def _options(arguments: Sequence[str]) -> Namespace:
    parser = ArgumentParser(
        "relaxc compile", allow_abbrev=False,
        description="Compile a spec into a plan: `plan = relaxc.load(FOLDER); plan.attach(model, optimizer)`.",
    )  # fmt: skip
    parser.add_argument("spec", metavar="SPEC", help=cli_spec.SPEC)
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="the plan's folder (default: build/SPEC)")
    parser.add_argument("--set", action="append", metavar="NAME=VALUE", help="replace the value of a param")
    parser.add_argument(
        "--model", metavar="PACKAGE.MODULE:FACTORY", help="make the plan for this model: kernels for its dtypes only"
    )
    parser.add_argument(
        "--sample", metavar="SHAPES|PACKAGE.MODULE:BATCH",
        help='trace the model on this: "f32[8,3,32,32]", "i64[8,128]<1000" (below 1000), or what makes its arguments',
    )  # fmt: skip
    parser.add_argument(
        "--network",
        metavar="TEXT|FILE",
        help='fit the plan to this network: "1Gbps, 200us", or what relaxc probe wrote',
    )
    parser.add_argument("--workers", type=int, metavar="N", help="fit the plan to so many workers")
    parser.add_argument(
        "--cores",
        type=int,
        metavar="N",
        help="cores of each worker, by which codecs and routes are chosen (default: as if machines were like this one)",
    )
    parser.add_argument(
        "--carry-runtime",
        action="store_true",
        help="put the runtime's binary into the plan, for hosts without a compiler",
    )
    parser.add_argument(
        "--target", metavar="TARGETS", help="what kernels are compiled for here: cpu (the default), cuda, or cpu,cuda"
    )
    parser.add_argument(
        "--arch", metavar="ARCHITECTURES", help="of cuda (default: sm_80,sm_90,sm_100); others are made at attach"
    )
    parser.add_argument("--verbose", action="store_true", help="say what each kernel takes of a GPU")
    return parser.parse_args(arguments)
