"""relaxc in Python: `compile` a spec, or `load` a plan; then `plan.attach(model, optimizer)`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from relaxc.attach.plan import Plan
    from relaxc.language.source import Source
    from relaxc.language.spec import Cluster
    from relaxc.schedule.network import Network
    from relaxc.schedule.profile import Profile

# The compiler is imported inside `compile`: a built plan loads where lark and jinja2 are absent.


def compile(
    spec: str | Path, *, model: nn.Module | None = None, sample: Any = None, settings: Mapping[str, Any] | None = None,
    network: str | None = None, workers: int | None = None, target: str | None = None,
) -> Plan:  # fmt: skip
    """Compile a spec in memory: a path, the name of a shipped spec ("bytegrad"), or the text itself if it has a line
    end or a space. With `model`, kernels are made for its dtypes only and the plan takes no other model. With `sample`,
    what the model is called with (a tuple of arguments or a mapping of named ones), it is traced, and left as it was.
    With a sample, a `network` such as "1Gbps, 200us" or the spec's own cluster, and a number of `workers`, buckets are
    fitted to them. Times that are measured differ between processes, and so would plans: with a sample, compile once,
    and `load` that plan on all workers. `target` is cpu, cuda or "cpu,cuda" (default: the device that the model is on);
    of others kernels are made at attach.

    Raise SpecError for mistakes in the spec, ModelError (RX04), BuildError (RX05), FileNotFoundError.
    """
    from relaxc import pipeline
    from relaxc.build.torch_flags import import_torch

    import_torch()
    from relaxc.attach.devices import targets_for
    from relaxc.attach.parameters import read_parameters
    from relaxc.attach.plan import open_plan
    from relaxc.build.targets import targets_of

    source = _source(spec)
    chosen = {k: str(v) for k, v in (settings or {}).items()}
    read = None if model is None else read_parameters(model)
    targets = targets_of(target.replace(" ", "").split(",")) if target is not None else targets_for(read)
    parameters = None if read is None else read.parameters
    profile = None if sample is None else _traced(model, sample)
    name = Path(source.name).name
    if profile is not None:
        from relaxc.build.report import on_stderr
        from relaxc.choose import resolved

        fit = partial(_among, profile=profile, text=network, workers=workers)
        source = resolved(source, chosen, name, profile, fit, on_stderr)
    checked = pipeline.to_spec(source, chosen)
    among = _among(checked.cluster, profile, network, workers)
    return open_plan(
        pipeline.build(checked, chosen, name, parameters, profile=profile, among=among, targets=targets)
    )  # fmt: skip


def _among(
    cluster: Cluster | None, profile: Profile | None, text: str | None, workers: int | None
) -> tuple[Network, int] | None:
    """What to fit a plan to, where everything is known. Raise ModelError (RX044x, RX0456)."""
    from relaxc.errors import ModelError
    from relaxc.schedule.network_clause import network_of
    from relaxc.schedule.network_file import require_workers
    from relaxc.schedule.network_text import parse_network

    if profile is None and (text is not None or workers is not None):
        raise ModelError("RX0456", "a network or workers, and no sample of the model to fit a plan to",
                         "give model and sample too")  # fmt: skip
    if profile is None or (text is None and cluster is None):
        return None
    network = network_of(cluster) if text is None and cluster is not None else parse_network(text or "")
    count = network.workers if workers is None else workers
    if count is None:
        return None
    require_workers(network, count)
    return network, count


def _traced(model: nn.Module | None, sample: Any) -> Profile:
    """What is found is said in lines, as a build says its own."""
    from relaxc.build.report import on_stderr
    from relaxc.errors import ModelError
    from relaxc.schedule.profile_text import report
    from relaxc.schedule.trace import trace

    if model is None:
        raise ModelError("RX0421", "there is a sample, and no model to call with it", "give the model too")
    profile = trace(model, sample)
    for line in report(profile):
        on_stderr(line)
    return profile


def load(folder: str | Path) -> Plan:
    """The plan that `relaxc compile -o folder` wrote. Raise BuildError (RX05) where it is damaged or another
    version's."""
    from relaxc.build.torch_flags import import_torch

    import_torch()
    from relaxc.attach.plan import load as load_plan

    return load_plan(folder)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a text is too long for a name
        return False


def _source(spec: str | Path) -> Source:
    from relaxc.language.source import Source
    from relaxc.resources import spec_path

    path = Path(spec)
    if isinstance(spec, str) and any(c in spec for c in " \n{") and not _is_file(path):
        return Source("<text>", spec)
    return Source.read(spec_path(str(spec)))
