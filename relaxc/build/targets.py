"""What a plan's kernels are compiled for where it is made. Of what a plan has no binary one is made at attach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relaxc.build import nvrtc
from relaxc.build.cubins import ARCHITECTURES
from relaxc.errors import BuildError

KNOWN = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Targets:
    """`cpu`: this machine's processor; `architectures` are GPUs' (sm_80)."""

    cpu: bool = True
    architectures: tuple[str, ...] = ()


def targets_of(names: Iterable[str], architectures: Iterable[str] | None = None) -> Targets:
    """Of names in KNOWN, empty ones aside; `architectures` are for cuda (default: ARCHITECTURES).

    Raises BuildError: RX0531 for an architecture that NVRTC does not know, RX0530 where it can't be asked, RX0533 for
    a name that is not known, or architectures for no GPU.
    """
    chosen, wanted = dict.fromkeys(filter(None, names)), tuple(dict.fromkeys(architectures or ()))
    for name in chosen:
        if name not in KNOWN:
            raise BuildError("RX0533", f"there is no target {name}", f"the targets are {' and '.join(KNOWN)}")
    if not chosen:
        raise BuildError("RX0533", "a plan for no target", f"the targets are {' and '.join(KNOWN)}")
    if "cuda" not in chosen:
        if wanted:
            raise BuildError("RX0533", f"{wanted[0]} is a GPU, and the target is cpu", "compile with --target cpu,cuda")
        return Targets()
    compiler = nvrtc.find()
    for architecture in wanted:
        nvrtc.number_of(compiler, architecture)
    usual = tuple(a for a in ARCHITECTURES if int(a.removeprefix("sm_")) in compiler.architectures)
    return Targets("cpu" in chosen, wanted or usual)
