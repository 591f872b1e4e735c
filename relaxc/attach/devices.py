"""The kernels of a plan on the device that the model is on."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from relaxc.attach.parameters import ModelParameters
from relaxc.build.device_kernels import Capability, rebuilt_cubin, usable_cubin
from relaxc.build.targets import Targets
from relaxc.errors import BuildError, ModelError
from relaxc.manifest import FieldPlan, LaunchPlan, Manifest
from relaxc.wire.layout import FLOAT_BYTES, PLACE_BYTES

UPDATE = "install NVIDIA's driver for this GPU, or train on the CPU with model.cpu()"


class StandIn(NamedTuple):
    """A driver of the tests' own, whose memory is the host's, and what it takes for the plan's cubin."""

    driver: str
    image: bytes


stand_in: StandIn | None = None
"""None but in tests: makes every attach one to that driver's device, with tensors that are the CPU's."""


def on_device(device: torch.device) -> bool:
    """Whether kernels run on a device of their own."""
    return stand_in is not None or device.type != "cpu"


def targets_for(read: ModelParameters | None) -> Targets:
    """What to compile for, in memory: the device of the model, the CPU without one."""
    if read is None or read.device.type == "cpu":
        return Targets()
    return Targets(cpu=False, architectures=("sm_{}{}".format(*torch.cuda.get_device_capability(read.device)),))


def device_library(runtime: ModuleType, folder: Path | None, plan: Manifest, device: torch.device) -> Any:
    """The runtime's DeviceLibrary; for a plan that needs no kernels one without any.

    Raises BuildError: RX0535 where there is no driver, RX0536 where it takes no kernels that can be had here, and as
    `usable_cubin`.
    """
    if not plan.launches:
        return runtime.DeviceLibrary(None, device, 0, b"", [])
    driver = _driver(runtime, stand_in.driver if stand_in is not None else "")
    launches = [runtime.LaunchPlan(**_launch(launch)) for launch in plan.launches]
    if stand_in is not None:
        return runtime.DeviceLibrary(driver, device, 0, stand_in.image, launches)
    assert folder is not None, "a plan without its files"
    return _load(runtime, driver, torch.device("cuda", device.index or 0), launches, folder, plan)


def _driver(runtime: ModuleType, path: str) -> Any:
    try:
        return runtime.Driver(path)
    except runtime.DriverError as error:
        raise BuildError("RX0535", f"the model is on a GPU, and {_lower(error)}", UPDATE) from error


def _load(
    runtime: ModuleType, driver: Any, device: torch.device, launches: list[Any], folder: Path, plan: Manifest
) -> Any:
    """What the plan carries; where the driver is older than that, what an NVRTC of the driver's CUDA makes."""
    capability: Capability = driver.capability(device.index)

    def taken(image: Path) -> Any:
        return runtime.DeviceLibrary(driver, device, device.index, image.read_bytes(), launches)

    try:
        return taken(usable_cubin(folder, plan, capability))
    except runtime.DriverError as error:
        refused = error
    try:
        return taken(rebuilt_cubin(folder, plan, capability, None, driver.version // 1000))
    except runtime.DriverError as error:
        refused = error
    except BuildError as error:  # no NVRTC: what the driver has against the plan's own is what to tell
        raise refusal(refused, driver.version) from error
    raise refusal(refused, driver.version) from refused


def refusal(error: Exception, version: int) -> BuildError | ModelError:
    """Of a driver that takes no kernels."""
    if "OUT_OF_MEMORY" in str(error):
        return ModelError(
            "RX0425", f"no room for the plan's kernels on the GPU: {_lower(error)}",
            "free memory of the GPU, which other processes may hold, or take a smaller model",
        )  # fmt: skip
    cuda = f"{version // 1000}.{version % 1000 // 10}"
    return BuildError(
        "RX0536", f"the driver, which is of CUDA {cuda}, does not take the plan's kernels: {_lower(error)}",
        f"update the driver, or have the NVRTC of its CUDA: pip install nvidia-cuda-nvrtc-cu{version // 1000}",
    )  # fmt: skip


def _lower(error: Exception) -> str:
    return " ".join(str(error).split())


def _launch(plan: LaunchPlan) -> dict[str, Any]:
    return {
        "symbol": plan.symbol, "threads": plan.threads, "per_block": plan.per_block or 0, "empty": plan.empty,
        "scratch_per_element": plan.scratch_per_element,
        "fields": [_field(field, plan.real_bytes) for field in plan.fields],
    }  # fmt: skip


def _field(field: FieldPlan, real_bytes: int) -> tuple[bool, int, int, float]:
    """(for each element, bytes of an item, its bits if it is packed, what part a top keeps): wire/layout.py's rules."""
    if field.kind == "top":
        return field.per_element, PLACE_BYTES + real_bytes, 0, field.part
    item = 0 if field.bits else FLOAT_BYTES.get(field.kind, real_bytes)
    return field.per_element, item, field.bits, 0.0
