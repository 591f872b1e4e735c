"""Kernels bound to the memory of one bucket: what each segment's operands point to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import nn

from relaxc.attach.buffers import CODEC, Flat, Memory, real_type
from relaxc.errors import ModelError
from relaxc.manifest import FragmentPlan, KernelPlan, ProgramPlan
from relaxc.schedule.buckets import Bucket
from relaxc.schedule.pieces import Range
from relaxc.wire.parameters import Parameter

Copies = Mapping[str, int]
"""Which copy a name of kept.N or slot.N stands for; 0 where it is not there."""
WEIGHT = "weight"
OPTIMIZER = "optimizer."
CODEC_STATE = f"{CODEC}."


@dataclass(frozen=True)
class Site:
    """One bucket of a program, where its kernels work. `number` counts buckets of programs; `tensors` are by number of
    parameter."""

    number: int
    bucket: Bucket
    program: ProgramPlan
    members: tuple[Parameter, ...]
    tensors: Mapping[int, nn.Parameter]
    memory: Memory
    optimizer: torch.optim.Optimizer | None
    runtime: ModuleType
    operations: Any
    cache: dict[Any, list[Any]] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        return next(iter(self.tensors.values())).device

    @property
    def whole(self) -> list[Range]:
        return [Range(p.number, 0, p.elements) for p in self.members]

    def kernel(self, kernels: Iterable[KernelPlan], name: str) -> KernelPlan:
        return next(k for k in kernels if k.kernel == name and k.dtype == self.bucket.dtype)

    def fragment_kernel(self, fragment: FragmentPlan) -> KernelPlan:
        return next(k for k in fragment.kernels if k.dtype == self.bucket.dtype)

    def segments(self, kernel: KernelPlan, ranges: Iterable[Range], find: Callable[[str, Range], Any]) -> list[Any]:
        return [
            self.runtime.Segment(r.parameter, r.first, r.elements, [find(name, r) for name in kernel.operands])
            for r in ranges
        ]

    def buffer(self, flat: Flat, parameter: int, element: int) -> Any:
        return self.runtime.Operand("buffer", flat.tensor, flat.position(parameter, element))

    def codec_state(self, name: str, transfer: int, range: Range) -> Any:
        """Its number for the first block of a range."""
        flat = self.memory.codecs[transfer][name.removeprefix(CODEC_STATE)]
        codec = self.program.transfers[transfer].exchange.codec
        assert codec is not None
        block = codec.block if codec.unit == "block" else range.elements
        return self.buffer(flat, range.parameter, range.first // max(block, 1))

    def operand(self, name: str, range: Range, copies: Copies, written: Sequence[str], sent: int | None) -> Any:
        """`sent` is the transfer whose worker's residual `residual` means."""
        tensor, changed = self.tensors[range.parameter], name in written
        if name in (WEIGHT, "grad"):
            return self.runtime.Operand("weight" if name == WEIGHT else "gradient", tensor, 0, changed)
        if name.startswith(OPTIMIZER):
            state = optimizer_state(self.optimizer, tensor, name.removeprefix(OPTIMIZER))
            return self.runtime.Operand("buffer", state, range.first)
        if name == "residual":
            assert sent is not None
            return self.buffer(self.memory.residuals[sent].worker, range.parameter, range.first)
        if name.startswith(CODEC_STATE):
            assert sent is not None
            return self.codec_state(name, sent, range)
        flat, cell = self.memory.of(name, copies.get(name, 0))
        return self.buffer(flat, range.parameter, 0 if cell else range.first)


def in_message(runtime: ModuleType, message: torch.Tensor, ranges: Iterable[Range], dtype: str) -> dict[Range, Any]:
    """Operands that are the plain numbers of a message, one range behind the other."""
    numbers, at, found = message.view(real_type(dtype)), 0, {}
    for r in ranges:
        found[r] = runtime.Operand("buffer", numbers, at)
        at += r.elements
    return found


def optimizer_state(optimizer: torch.optim.Optimizer | None, tensor: nn.Parameter, name: str) -> torch.Tensor:
    """A state of the user's optimiser, flat in the parameter's memory order and dtype; zeros before its first step.

    Raise ModelError (RX0417) where that optimiser has no such state.
    """
    states = optimizer.state.get(tensor, {}) if optimizer is not None else {}
    if states and name not in states:
        has = ", ".join(sorted(str(key) for key in states))
        raise ModelError(
            "RX0417", f"the optimizer keeps no {name}, which the program reads as optimizer.{name}", f"it keeps {has}"
        )
    state = states.get(name)
    if state is None:
        return torch.zeros(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    value = torch.as_tensor(state).detach()
    if value.shape == tensor.shape and value.dtype == tensor.dtype and value.stride() == tensor.stride():
        return value.as_strided((tensor.numel(),), (1,))
    made = torch.empty_like(tensor)
    made.copy_(value.expand_as(tensor))
    return made.detach().as_strided((tensor.numel(),), (1,))


def reads_optimizer(site: Site, number: int) -> bool:
    """Whether a fragment has operands whose tensors may be others by now."""
    kernel = site.fragment_kernel(site.program.fragments[number])
    return any(name.startswith(OPTIMIZER) for name in kernel.operands)


def plain_calls(site: Site, number: int, copies: Copies) -> list[Any]:
    """The call of a fragment that neither makes messages nor reads them."""
    fragment = site.program.fragments[number]
    kernel = site.fragment_kernel(fragment)
    named = [name for name in kernel.operands if name in copies]
    key = ("plain", number, *((name, copies[name]) for name in named))
    if key not in site.cache or reads_optimizer(site, number):
        ranges = [r for r in site.whole if r.elements or site.memory.holds_cells(fragment.writes)]
        site.cache[key] = [_call(site, number, kernel, ranges, copies)]
    return site.cache[key]


def lending_call(site: Site, number: int, range: Range, message: torch.Tensor) -> Any:
    """Makes `message` a view of a weight's memory, wherever that is by then."""
    fragment = site.program.fragments[number]
    operand = site.operand(WEIGHT, range, {}, (), fragment.sends)
    segment = site.runtime.Segment(range.parameter, range.first, range.elements, [operand])
    return site.operations.call("", f"relaxc::lend/bucket{site.number}", [segment], [], message)


def coding_call(
    site: Site, number: int, ranges: Iterable[Range], copies: Copies, inputs: Sequence[torch.Tensor],
    output: torch.Tensor | None, near: Any = None, own: int = -1,
) -> Any:  # fmt: skip
    """A call of a fragment for one message that it makes, or for the messages of one piece that it decodes: near what
    the queue puts into `near`; number `own` is this worker's own."""
    kernel = site.fragment_kernel(site.program.fragments[number])
    return _call(site, number, kernel, ranges, copies, inputs, output, near, own)


def _call(
    site: Site, number: int, kernel: KernelPlan, ranges: Iterable[Range], copies: Copies,
    inputs: Sequence[torch.Tensor] = (), output: torch.Tensor | None = None, near: Any = None, own: int = -1,
) -> Any:  # fmt: skip
    fragment = site.program.fragments[number]

    def find(name: str, range: Range) -> Any:
        return site.operand(name, range, copies, fragment.writes, fragment.sends)

    used = fragment.sends if fragment.sends is not None else fragment.receives
    place = 0 if used is None else site.program.transfers[used].exchange.place
    label = f"relaxc::{fragment.label}/bucket{site.number}"
    segments = site.segments(kernel, ranges, find)
    return site.operations.call(kernel.symbol, label, segments, list(inputs), output, place, False, near, own)
