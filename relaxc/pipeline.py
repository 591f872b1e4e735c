"""The compiler on one page: text -> File -> Spec -> Program -> Sources -> plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relaxc.language.check import check
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.language.spec import Spec
from relaxc.program.ir import Program
from relaxc.program.lower import lower
from relaxc.program.passes.carry import carry
from relaxc.program.verify import verify

if TYPE_CHECKING:
    from relaxc.build.report import Report
    from relaxc.manifest import Manifest
    from relaxc.wire.parameters import Parameter


def to_spec(source: Source, settings: Mapping[str, str]) -> Spec:
    """Raise SpecError with every error of the first stage that finds one."""
    return check(parse(source), settings)


def to_program(spec: Spec) -> Program:
    return verify(lower(spec))


def to_messages(program: Program) -> Program:
    return verify(carry(program))


@dataclass(frozen=True)
class Built:
    """`library` is None where nothing is coded."""

    manifest: Manifest
    program: str
    kernels: str
    library: Path | None


def build(program: Program, name: str, parameters: Sequence[Parameter] | None, report: Report | None = None) -> Built:
    """Emit and compile. Raise BuildError (RX05) where there is no compiler, or none that works."""
    import msgspec  # what builds is imported here: `check` must start without it

    from relaxc.build.compiler import this_cpu
    from relaxc.build.kernels import build_kernels
    from relaxc.emit.plan import emit

    sources = emit(to_messages(program), name, parameters)
    if not sources.kernels:
        return Built(sources.manifest, sources.program, "", None)
    library = build_kernels(sources.kernels, report)
    manifest = msgspec.structs.replace(sources.manifest, cpu=str(this_cpu()))
    return Built(manifest, sources.program, sources.kernels, library)


def write(built: Built, spec_text: str, folder: Path, runtime: Path | None = None) -> None:
    """Write the plan's directory. Raise BuildError (RX05) where it can't be written."""
    from relaxc.build.kernels import LIBRARY, SOURCE
    from relaxc.build.plan_files import MANIFEST, write_plan
    from relaxc.manifest import encode

    files: dict[str, bytes | Path] = {
        MANIFEST: encode(built.manifest), "spec.relax": spec_text.encode(), "program.relax": built.program.encode(),
    }  # fmt: skip
    if built.library is not None:
        files |= {SOURCE: built.kernels.encode(), LIBRARY: built.library}
    if runtime is not None:
        from relaxc.build.runtime import carried_name, runtime_identity

        files[carried_name(runtime_identity())] = runtime
    write_plan(folder, files)
