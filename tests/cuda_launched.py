"""Generated CUDA kernels launched one by one through a driver: a card's own, or the tests' (tests/cuda/fake_driver.cpp).
The counterpart of cuda_driven.of_cuda."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from cuda_calls import CudaCall, rows_of
from cuda_driven import WORKERS, Drawn, drawn, of_cpu, same
from kernel_calls import KEY, OWN, SHARED, Array

from relaxc.emit.cuda import Launch
from relaxc.emit.kernel import BlockKernel

ROOM = 32 << 20
"""Bytes on the device for one call: far more than any test's."""
UNWRITTEN = 0xAB
LIBRARY = frozenset({"exp", "log", "log2", "power"})
"""Operations that are functions of a card's library in f64, which makes them of fused ones."""
ULPS = 64
"""Which a result of some of these may be apart."""


class Device:
    """`where` is torch's name of the memory that the driver's device works on."""

    def __init__(self, driver: str, where: str) -> None:
        self._driver, self.where = ctypes.CDLL(driver), torch.device(where)
        self._memory = torch.empty(ROOM, dtype=torch.uint8, device=self.where)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._do("cuInit", 0)
        self._do("cuDeviceGet", ctypes.byref(device), 0)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._do("cuCtxPushCurrent_v2", context)

    def loaded(self, image: bytes, launches: Sequence[Launch]) -> dict[str, Launched]:
        """By symbol, the kernels of a cubin."""
        module = ctypes.c_void_p()
        self._do("cuModuleLoadData", ctypes.byref(module), image)
        return {launch.symbol: Launched(self, self._function(module, launch.symbol), launch) for launch in launches}

    def arena(self) -> Arena:
        return Arena(self._memory)

    def run(self, function: Any, launch: Launch, grid: int, call: CudaCall) -> None:
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(call))
        self._do("cuLaunchKernel", function, grid, 1, 1, launch.threads, 1, 1, 0, None, parameters, None)
        if self.where.type == "cuda":
            torch.cuda.synchronize()

    def _function(self, module: Any, symbol: str) -> Any:
        function = ctypes.c_void_p()
        self._do("cuModuleGetFunction", ctypes.byref(function), module, symbol.encode())
        return function

    def _do(self, entry: str, *arguments: Any) -> None:
        status = self._driver[entry](*arguments)
        assert status == 0, f"{entry}: CUDA error {status}"


class Arena:
    """What a call works on, laid out on the host and copied as one; addresses are the device's."""

    def __init__(self, memory: Any) -> None:
        self._there, self._base = memory, memory.data_ptr()
        self._here = np.empty(memory.numel(), np.uint8)
        self._used = 0

    def put(self, values: Array, skew: int = 0) -> int:
        """The address of a copy that starts so many items behind a multiple of 64 bytes."""
        at = -(-self._used // 64) * 64 + skew * values.itemsize
        before, self._used = self._used, at + values.nbytes + 64  # and a gap, which must stay as it is
        assert self._used <= self._here.size, "a test's call is larger than its room"
        self._here[before : self._used] = UNWRITTEN
        self._here[at : at + values.nbytes] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return int(self._base + at)

    def addresses(self, of: Sequence[int | None]) -> int:
        return self.put(np.array([a or 0 for a in of], np.uint64))

    def structures(self, of: Sequence[ctypes.Structure]) -> int:
        return self.put(np.frombuffer(b"".join(bytes(one) for one in of), np.uint8))

    def send(self) -> None:
        self._there[: self._used].copy_(torch.from_numpy(self._here[: self._used]))

    def fetch(self) -> None:
        """What the device has now; it may have written to none of the gaps that `put` leaves."""
        self._here[: self._used] = self._there[: self._used].cpu().numpy()

    def read(self, address: int, like: Array) -> Array:
        at = address - self._base
        return self._here[at : at + like.nbytes].copy().view(like.dtype).reshape(like.shape)

    def gap(self, end: int) -> bool:
        """Whether nothing was written right behind what ends at an address."""
        at = end - self._base
        return bool((self._here[at : at + 64] == UNWRITTEN).all())


@dataclass(frozen=True)
class Launched:
    device: Device
    function: Any
    launch: Launch

    def __call__(self, given: Drawn, grid: int, skew: int) -> tuple[bytes, list[Array]]:
        """The message and all operands after the call, arrays `skew` items from aligned."""
        arena, launch = self.device.arena(), self.launch
        operands = [[arena.put(o, skew) for o in part.operands] for part in given.parts]
        rows, blocks = rows_of(launch, given.parts, [arena.addresses(of) for of in operands])
        segments = arena.structures(rows)
        inputs = [arena.put(np.frombuffer(m, np.uint8), 3 * skew) for m in given.messages]
        near = given.near and [None if n is None else arena.put(n, skew) for n in given.near]
        output = arena.put(np.full(given.size or 0, UNWRITTEN, np.uint8), 3 * skew)
        each = launch.scratch_bytes(launch.per_block or max(p.elements for p in given.parts))
        scratch = arena.put(np.full(each * grid, 0xFF, np.uint8))
        call = CudaCall(
            segments, len(given.parts), blocks, arena.addresses(inputs), _numbers(arena, given.weights), len(inputs),
            None if given.size is None else output, _numbers(arena, given.numbers), WORKERS, KEY,
            arena.addresses(near) if near else None, SHARED, OWN, scratch if each else None, each,
        )  # fmt: skip
        arena.send()
        self.device.run(self.function, launch, grid, call)
        arena.fetch()
        for addresses, part in zip(operands, given.parts, strict=True):
            assert all(arena.gap(a + o.nbytes) for a, o in zip(addresses, part.operands, strict=True))
        assert arena.gap(output + (given.size or 0)) and arena.gap(scratch + each * grid)
        held = [
            arena.read(address, operand)
            for addresses, part in zip(operands, given.parts, strict=True)
            for address, operand in zip(addresses, part.operands, strict=True)
        ]
        return arena.read(output, np.empty(given.size or 0, np.uint8)).tobytes(), held

    def gives_what(self, function: Any, kernel: BlockKernel, seed: int, hows: Sequence[tuple[int, int]]) -> None:
        """See that it makes the CPU's `function`'s bytes of data drawn for the kernel, on each of (grid, skew). In f64 a
        card's functions of LIBRARY may differ from the CPU's in the last bits (DESIGN, section 5): what is sent isn't
        compared then, since a level may be another."""
        given = drawn(kernel, self.launch, seed)
        message, memory = of_cpu(function, given)
        rough = self.device.where.type == "cuda" and kernel.real == "f64" and of_a_library(kernel)
        for grid, skew in hows:
            made, held = self(given, grid, skew)
            assert rough or made == message, (grid, skew)
            assert all(map(near if rough else same, held, memory)), (grid, skew)


def near(a: Array, b: Array) -> bool:
    """Within a few units of the last place, any NaN being any other."""
    if a.dtype.kind != "f":
        return same(a, b)
    with np.errstate(all="ignore"):
        apart = np.abs(a - b) <= ULPS * np.spacing(np.abs(b))
    return bool((apart | (a == b) | (np.isnan(a) & np.isnan(b))).all())


def of_a_library(kernel: BlockKernel) -> bool:
    return any(value.op in LIBRARY for section in (kernel.main, kernel.gather) if section for value in section.values)


def _numbers(arena: Arena, numbers: Sequence[float] | None) -> int | None:
    return None if numbers is None else arena.put(np.array(numbers, np.float64))
