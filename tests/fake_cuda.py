"""A CUDA device on the CPU: tests/cuda/fake_driver.cpp as libcuda, and as a cubin a library of a plan's own kernels.cu,
compiled under tests/cuda/emulation.h."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relaxc.attach import devices
from relaxc.attach.plan import Plan
from relaxc.build.cubins import CUDA_SOURCE
from relaxc.resources import folder

HERE = Path(__file__).resolve().parent / "cuda"
DRIVER_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-shared")
KERNEL_FLAGS = ("-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-math-errno", "-fPIC", "-shared", "-w")  # fmt: skip


def fake_driver(into: Path) -> str:
    """The path of the driver's library."""
    library = into / "libfakecuda.so"
    _compile([*DRIVER_FLAGS, str(HERE / "fake_driver.cpp"), "-ldl"], library)
    return str(library)


def image_of(plan: Plan, into: Path) -> bytes:
    """What that driver takes for a cubin of the plan: the path of a library, as C has it."""
    assert plan.folder is not None
    source = plan.folder / CUDA_SOURCE
    library = into / f"{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    if not library.exists():
        _compile([*KERNEL_FLAGS, "-include", str(HERE / "emulation.h"), "-x", "c++", str(source)], library)
    return str(library).encode() + b"\0"


def _compile(arguments: list[str], library: Path) -> None:
    command = ["g++", f"-I{folder('runtime')}", *arguments, "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[:4000]


@contextmanager
def standing_in(driver: str, image: bytes) -> Iterator[None]:
    """Within it plans attach to that device."""
    devices.stand_in = devices.StandIn(driver, image)
    try:
        yield
    finally:
        devices.stand_in = None
