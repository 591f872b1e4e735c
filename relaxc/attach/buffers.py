"""The memory of a program: states, kept values, slots and residuals of one bucket, flat in the arithmetic type.

Elements stand in the parameter's own memory order, parameters one behind the other; a cell has one element for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from relaxc.manifest import CodecPlan, ProgramPlan, TransferPlan
from relaxc.schedule.buckets import Bucket
from relaxc.schedule.routed import layout_of
from relaxc.schedule.schedule import residual_of
from relaxc.wire.low_rank import factors_of
from relaxc.wire.parameters import Parameter

HOST = torch.device("cpu")
CODEC = "codec"
"""Of a codec's states, in names of operands and of what is saved."""


@dataclass(frozen=True)
class Flat:
    """`tensor` holds parameter p's elements from `starts[p]` on, `sizes[p]` of them. Of an owner's residual a worker
    keeps the range from element `firsts[p]` on only."""

    tensor: torch.Tensor
    starts: dict[int, int]
    sizes: dict[int, int]
    firsts: dict[int, int]

    def view(self, parameter: int) -> torch.Tensor:
        start = self.starts[parameter]
        return self.tensor[start : start + self.sizes[parameter]]

    def position(self, parameter: int, element: int) -> int:
        """Where element number `element` of a parameter is."""
        return self.starts[parameter] + element - self.firsts.get(parameter, 0)


@dataclass(frozen=True)
class Residual:
    """Of one transfer: the worker's own losses, and an owner's."""

    worker: Flat
    owner: Flat


@dataclass(frozen=True)
class Memory:
    """Of one bucket. Lists of copies stand by number of `kept` and of transfer, `factors` by that of transfer. `codecs`
    are the states of each transfer's codec, an element for each block."""

    states: dict[str, Flat]
    cells: frozenset[str]
    kept: tuple[tuple[Flat, ...], ...]
    kept_cells: frozenset[int]
    slots: tuple[tuple[Flat, ...], ...]
    residuals: tuple[Residual, ...]
    slot_cells: frozenset[int] = frozenset()
    codecs: tuple[dict[str, Flat], ...] = ()
    factors: tuple[Flat, ...] = ()

    def of(self, name: str, copy: int) -> tuple[Flat, bool]:
        """The flat tensor that `name` stands for in a kernel's operands, and whether it holds cells."""
        kind, _, number = name.partition(".")
        if kind == "kept" and number.isdigit():
            return self.kept[int(number)][copy], int(number) in self.kept_cells
        if kind == "slot" and number.isdigit():
            return self.slots[int(number)][copy], int(number) in self.slot_cells
        return self.states[name], name in self.cells

    def holds_cells(self, names: Iterable[str]) -> bool:
        """Whether some of `names` are cells, which are computed for parameters without elements too."""
        others = {f"kept.{n}" for n in self.kept_cells} | {f"slot.{n}" for n in self.slot_cells}
        return any(name in self.cells or name in others for name in names)

    def named(self) -> Iterator[tuple[str, Flat]]:
        """Everything that lives across iterations, by the name that a checkpoint gives it."""
        yield from ((f"state/{name}", flat) for name, flat in self.states.items())
        yield from ((f"factor/{number}", flat) for number, flat in enumerate(self.factors))
        for kind, lists in (("kept", self.kept), ("slot", self.slots)):
            for number, copies in enumerate(lists):
                yield from ((f"{kind}/{number}.{copy}", flat) for copy, flat in enumerate(copies))
        for number, states in enumerate(self.codecs):
            yield from ((f"{CODEC}/{number}.{name}", flat) for name, flat in states.items())


def make_memory(
    plan: ProgramPlan, bucket: Bucket, parameters: Sequence[Parameter], workers: int, rank: int,
    device: torch.device = HOST,
) -> Memory:  # fmt: skip
    members = [parameters[p] for p in bucket.parameters]
    whole, cell = (_shaped(members, bucket.dtype, device, is_cell) for is_cell in (False, True))
    tensors = {s.name: s.shape for s in plan.states if s.shape != "number"}
    slotted = [_slotted(t) for t in plan.transfers]
    return Memory(
        {name: (cell if shape == "cell" else whole)() for name, shape in tensors.items()},
        frozenset(name for name, shape in tensors.items() if shape == "cell"),
        tuple(tuple((cell if k.shape == "cell" else whole)() for _ in range(k.copies)) for k in plan.kept),
        frozenset(n for n, k in enumerate(plan.kept) if k.shape == "cell"),
        tuple(
            tuple((cell if t.shape == "cell" else whole)() for _ in range(t.copies)) if slot else ()
            for t, slot in zip(plan.transfers, slotted, strict=True)
        ),
        tuple(_residual(t.exchange, members, bucket.dtype, device, workers, rank) for t in plan.transfers),
        frozenset(n for n, t in enumerate(plan.transfers) if t.shape == "cell"),
        tuple(_codec_states(t.exchange.codec, members, bucket.dtype, device) for t in plan.transfers),
        tuple(_factor(t.exchange.rank, members, bucket.dtype, device) for t in plan.transfers),
    )


def _slotted(transfer: TransferPlan) -> bool:
    """A code with a guard is checked, and sent again, from a slot."""
    codec = transfer.exchange.codec
    return "slot" in (transfer.leaves, transfer.lands) or (codec is not None and codec.guarded)


def _codec_states(
    codec: CodecPlan | None, members: Sequence[Parameter], dtype: str, device: torch.device
) -> dict[str, Flat]:
    if codec is None or not codec.states:
        return {}
    layout = layout_of(codec)
    blocks = {p.number: -(-p.elements // layout.block_of(p.elements)) for p in members}
    made = {name: _flat(blocks, real_type(dtype), device) for name, _ in codec.states}
    for name, value in codec.states:
        made[name].tensor.fill_(value)
    return made


def real_type(dtype: str) -> torch.dtype:
    return torch.float64 if dtype == "f64" else torch.float32


class _shaped:  # noqa: N801 - a function that remembers
    """Makes zeros of one layout."""

    def __init__(self, members: Sequence[Parameter], dtype: str, device: torch.device, is_cell: bool) -> None:
        self._sizes = {p.number: 1 if is_cell else p.elements for p in members}
        self._dtype, self._device = real_type(dtype), device

    def __call__(self) -> Flat:
        return _flat(self._sizes, self._dtype, self._device)


def _flat(
    sizes: dict[int, int], dtype: torch.dtype, device: torch.device, firsts: dict[int, int] | None = None
) -> Flat:
    starts, total = {}, 0
    for parameter, size in sizes.items():
        starts[parameter] = total
        total += size
    return Flat(torch.zeros(total, dtype=dtype, device=device), starts, sizes, firsts or {})


def _factor(rank: int, members: Sequence[Parameter], dtype: str, device: torch.device) -> Flat:
    """The Q of an exchange of low rank; nothing of any other."""
    return _flat({p.number: factors_of(p.shape, rank).q if rank else 0 for p in members}, real_type(dtype), device)


def _residual(
    exchange: object, members: Sequence[Parameter], dtype: str, device: torch.device, workers: int, rank: int
) -> Residual:
    shares = {p.number: residual_of(exchange, p, workers, rank) for p in members}  # type: ignore[arg-type]
    return Residual(
        _flat({n: s.worker for n, s in shares.items()}, real_type(dtype), device),
        _flat({n: s.owner[1] - s.owner[0] for n, s in shares.items()}, real_type(dtype), device,
              {n: s.owner[0] for n, s in shares.items()}),
    )  # fmt: skip
