"""The compiler on one page: text -> File -> Spec -> Program -> Paths -> Sources -> plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from relaxc.language.check import check
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.language.spec import Spec
from relaxc.program.ir import Program
from relaxc.program.types import Typed, typed

if TYPE_CHECKING:
    from relaxc.build.report import Report
    from relaxc.build.targets import Targets
    from relaxc.emit.plan import Sources
    from relaxc.manifest import Manifest
    from relaxc.program.paths import Paths
    from relaxc.schedule.network import Network
    from relaxc.schedule.profile import Profile
    from relaxc.wire.parameters import Parameter


def to_spec(source: Source, settings: Mapping[str, str]) -> Spec:
    """Raise SpecError with every error of the first stage that finds one."""
    return check(parse(source), settings)


def to_typed(spec: Spec) -> Typed:
    """The program, what is known of it, and what to be warned of. Raise SpecError where the spec makes no sense."""
    return typed(spec)


def among(judged: Typed, workers: Sequence[int]) -> Typed:
    """With the warnings that there are for these numbers of workers. Raise SpecError where they can't be."""
    from dataclasses import replace

    from relaxc.program.checks.among import check_among, judged_anew

    anew = {(d.code, d.message) for d in judged_anew(judged.program)} if workers else set()
    kept = (d for d in judged.warnings if (d.code, d.message) not in anew)
    return replace(judged, warnings=(*kept, *check_among(judged.program, workers)))


def to_program(spec: Spec) -> Program:
    from relaxc.program.verify import verify

    return verify(to_typed(spec).program)


def to_paths(program: Program) -> Paths:
    """Raise SpecError where a body has more paths than can be compiled."""
    from relaxc.program.passes.paths import to_paths as passes

    return passes(program)


def try_paths(program: Program) -> None:
    """Raise what `to_paths` raises. Bodies without blocks and codes have nothing that it refuses, and are most of those
    that somebody waits for."""
    from relaxc.program.ir import Assign, Encode, Every, Let, Phase, flattened, within

    everything = [s for body in program.bodies for s in flattened(body.statements)]
    codes = (isinstance(e, Encode) for s in everything if isinstance(s, Let | Assign) for e in within(s.value))
    if any(isinstance(s, Every | Phase) for s in everything) or any(codes):
        to_paths(program)


def build(
    spec: Spec,
    settings: Mapping[str, str],
    name: str,
    parameters: Sequence[Parameter] | None,
    report: Report | None = None,
    profile: Profile | None = None,
    among: tuple[Network, int] | None = None,
    targets: Targets | None = None,
) -> Path:
    """The plan's folder in the cache, made where it is not there yet. Nothing heavy is imported where it is. `profile`
    is the trace of the model that `parameters` are of; the plan's buckets are fitted to it and to `among`, a network
    and a number of workers, where both are given. `targets` (default: this processor) are what its kernels are
    compiled for.

    Raise SpecError, or BuildError (RX05) where there is no compiler or none that works.
    """
    from relaxc.build import cache
    from relaxc.build.report import on_stderr
    from relaxc.build.targets import Targets
    from relaxc.language.settled import settled

    aims = targets or Targets()

    def make(folder: Path) -> None:
        _make(judged, settled(spec.source, settings), name, parameters, report, aims, folder, profile, among)
        if profile is not None:
            from relaxc.schedule import profile_file

            (folder / profile_file.PROFILE).write_bytes(profile_file.encode(profile))

    judged = to_typed(spec)
    key = cache.key_of([*_identity(judged.program, spec, settings, name, parameters, profile, among), repr(aims)])
    return cache.obtain("plans", key, make, what=f"the plan {name}", report=report or on_stderr)


def _identity(
    program: Program, spec: Spec, settings: Mapping[str, str], name: str, parameters: Sequence[Parameter] | None,
    profile: Profile | None, among: tuple[Network, int] | None,
) -> Iterator[str]:  # fmt: skip
    """All that a plan depends on: of the program too, since algorithms, codecs and edges come from other files."""
    from relaxc.build import flags
    from relaxc.build.compiler import find
    from relaxc.build.installation import fingerprint
    from relaxc.errors import BuildError

    yield from (fingerprint(), spec.source.text, name, repr(parameters), repr(program), repr(profile), repr(among))
    yield from (f"{k}={v}" for k, v in sorted(settings.items()))
    try:
        compiler = find()
    except BuildError as error:
        yield error.message  # a plan without kernels needs none
    else:
        yield from (compiler.version, str(compiler.cpu), *flags.KERNEL_FLAGS)


def _make(
    judged: Typed, text: str, name: str, parameters: Sequence[Parameter] | None, report: Report | None,
    targets: Targets, folder: Path, profile: Profile | None, among: tuple[Network, int] | None,
) -> None:  # fmt: skip
    from dataclasses import replace

    from relaxc.build.plan_files import MANIFEST
    from relaxc.emit.plan import emit
    from relaxc.manifest import encode
    from relaxc.program.verify import verify

    program = verify(judged.program)
    sources = emit(program, to_paths(program), judged.facts, name, parameters)
    if profile is not None and among is not None:
        from relaxc.schedule.fit import fit, with_fit

        sources = replace(sources, manifest=with_fit(sources.manifest, fit(sources.manifest, profile, *among)))
    manifest = _compile(sources, targets, report, folder) if sources.kernels else sources.manifest
    (folder / MANIFEST).write_bytes(encode(manifest))
    (folder / "spec.relax").write_text(text)
    (folder / "program.relax").write_text(sources.program)


def _compile(sources: Sources, targets: Targets, report: Report | None, folder: Path) -> Manifest:
    """Both sources are in every plan: what it is not compiled for here can be made where it is attached."""
    import shutil

    import msgspec

    from relaxc.build.compiler import find
    from relaxc.build.cubins import CUDA_SOURCE, build_cubin, cubin_name
    from relaxc.build.kernels import LIBRARY, SOURCE, build_kernels

    (folder / SOURCE).write_text(sources.kernels)
    (folder / CUDA_SOURCE).write_text(sources.cuda)
    if targets.cpu:
        shutil.copy(build_kernels(sources.kernels, report), folder / LIBRARY)
    for architecture in targets.architectures:
        shutil.copy(build_cubin(sources.cuda, architecture, report), folder / cubin_name(architecture))
    cpu = str(find().cpu) if targets.cpu else ""
    return msgspec.structs.replace(sources.manifest, cpu=cpu, architectures=targets.architectures)


def to_manifest(judged: Typed, name: str) -> Manifest:
    """The plan that this would be for any model, without its kernels. Raise SpecError."""
    from relaxc.emit.plan import emit

    return emit(judged.program, to_paths(judged.program), judged.facts, name, None).manifest


def manifest_of(source: Source, settings: Mapping[str, str], name: str, workers: int | None = None) -> Manifest:
    """Raise SpecError, also where so many workers can't be."""
    typed = to_typed(to_spec(source, settings))
    return to_manifest(typed if workers is None else among(typed, [workers]), name)


def deliver(built: Path, folder: Path, carry_runtime: bool = False) -> None:
    """Write the plan's directory. Raise BuildError (RX05) where it can't be written."""
    from relaxc.build.cache import SEAL
    from relaxc.build.plan_files import write_plan

    files: dict[str, bytes | Path] = {path.name: path for path in built.iterdir() if path.name != SEAL}
    if carry_runtime:
        from relaxc.build.runtime import build_runtime, carried_name, runtime_identity

        files[carried_name(runtime_identity())] = build_runtime()
    write_plan(folder, files)
