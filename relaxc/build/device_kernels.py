"""Which kernels a plan has for a GPU: a cubin that it carries, or one made here of its text."""

from __future__ import annotations

import re
from pathlib import Path

from relaxc.build.cubins import CUDA_SOURCE, build_cubin, cubin_name
from relaxc.build.report import Report
from relaxc.errors import BuildError
from relaxc.manifest import Manifest

Capability = tuple[int, int]
"""(8, 0) is sm_80."""


def usable_cubin(folder: Path, plan: Manifest, capability: Capability, report: Report | None = None) -> Path:
    """The cubin in a plan's folder that runs on a GPU of this capability, else one built from the plan's source.

    Raises BuildError RX0534 where it would have to be built and there is no NVRTC; else as `build_cubin`.
    """
    carried = fitting(plan.architectures, capability)
    if carried is not None:
        return folder / cubin_name(carried)
    return rebuilt_cubin(folder, plan, capability, report)


def rebuilt_cubin(
    folder: Path, plan: Manifest, capability: Capability, report: Report | None = None, major: int | None = None
) -> Path:
    """One from the plan's source, by the NVRTC of CUDA `major` if there is that."""
    wanted = "sm_{}{}".format(*capability)
    try:
        return build_cubin((folder / CUDA_SOURCE).read_text(), wanted, report, major)
    except BuildError as error:
        if error.code != "RX0530":
            raise
        has = f"has kernels for {', '.join(plan.architectures)} only" if plan.architectures else "has none for GPUs"
        message = f"the plan needs kernels for {wanted} and {has}, and NVRTC, which makes them, was not found"
        help = f"{error.help}; or compile the plan with --target cuda --arch {wanted}"
        raise BuildError("RX0534", message, help) from error


def fitting(architectures: tuple[str, ...], capability: Capability) -> str | None:
    """The newest of these that such a GPU runs: of its major version, and no later than it."""
    found = [(number, name) for name in architectures if (number := _capability(name)) is not None]
    usable = [(number, name) for number, name in found if number[0] == capability[0] and number <= capability]
    return max(usable)[1] if usable else None


def _capability(architecture: str) -> Capability | None:
    match = re.fullmatch(r"sm_(\d+)(\d)", architecture)
    return (int(match[1]), int(match[2])) if match else None
