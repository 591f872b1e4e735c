"""An exchange of low rank of one bucket: PowerSGD's two all-reduces around what slot, residual and Q hold.

`begin` makes P of what the slot holds, and the first all-reduce sums it; `turn` makes Q of that, which the second sums;
`end` puts the result into the slot, and keeps the loss and Q. program/low_rank.py says what it means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from relaxc.attach.buffers import Flat, Memory
from relaxc.attach.calls import Site
from relaxc.manifest import ProgramPlan
from relaxc.wire.low_rank import Factors, factors_of, first_q
from relaxc.wire.parameters import Parameter

LARGEST_EXPONENT = 120
HUGE = 1e30
"""Below it a product with what is orthonormal is finite, and so was all that made it: one NaN or Inf of some worker is
in each element of P and Q that it takes part in."""


def start_factors(program: ProgramPlan, memory: Memory, members: tuple[Parameter, ...], seed: int) -> None:
    """What Q begins as, at attach."""
    for transfer, flat in zip(program.transfers, memory.factors, strict=True):
        for parameter in members if transfer.exchange.rank else ():
            view = flat.view(parameter.number)
            view.copy_(torch.from_numpy(first_q(seed, transfer.exchange.place, parameter.number, view.numel())))


@dataclass(frozen=True)
class _Matrix:
    """One parameter's: `shape` and `stride` are the tensor's, so that how it lies in memory makes no difference."""

    factors: Factors
    shape: torch.Size
    stride: tuple[int, ...]
    slot: torch.Tensor
    residual: torch.Tensor
    kept: torch.Tensor
    p: torch.Tensor
    q: torch.Tensor

    def wanted(self) -> torch.Tensor:
        return self._shaped(self.slot).reshape(self.factors.rows, self.factors.columns)

    def _shaped(self, flat: torch.Tensor) -> torch.Tensor:
        return flat.as_strided(self.shape, self.stride)

    def begin(self) -> None:
        if self.residual.numel():
            self.slot.add_(self.residual)
        kept = self.kept.view(self.factors.columns, self.factors.rank)
        torch.mm(self.wanted(), kept, out=self.p)

    def turn(self, workers: int) -> None:
        self.p.mul_(1 / workers)
        self.p.copy_(orthonormal(self.p))
        torch.mm(self.wanted().T, self.p, out=self.q)

    def end(self, workers: int, sums: bool) -> None:
        self.q.mul_(1 / workers)
        largest, kept = self.q.abs().max(), self.kept.view_as(self.q)
        kept.copy_(torch.where(torch.isfinite(largest) & (largest > 0), self.q * _scale(largest), kept))
        if not self.residual.numel():
            self._multiply()
        elif self.q.is_cpu and bool(largest < HUGE):
            self._keep()
        else:  # a device is not waited for, to see what it found
            self._keep_what_is_finite()
        if sums:
            self.slot.mul_(workers)

    def _keep(self) -> None:
        self.residual.copy_(self.slot)
        self._multiply()
        self.residual.sub_(self.slot)

    def _multiply(self) -> None:
        """The slot becomes P Q'."""
        shaped = self._shaped(self.slot)
        if shaped.is_contiguous():
            torch.mm(self.p, self.q.T, out=shaped.view(self.factors.rows, self.factors.columns))
        else:
            shaped.copy_((self.p @ self.q.T).view(self.shape))

    def _keep_what_is_finite(self) -> None:
        """The same, of numbers that may not be finite, or are so large that products may not be."""
        lost = self.slot.clone()
        self._multiply()
        lost.sub_(self.slot)
        self.residual.copy_(torch.where(torch.isfinite(lost), lost, self.residual))


def _scale(largest: torch.Tensor) -> torch.Tensor:
    """A power of two. Q is kept with a largest element from 1/2 to 1, so that products stay in range."""
    near = largest.clamp(2.0 ** -(LARGEST_EXPONENT + 1), 2.0 ** (LARGEST_EXPONENT - 1))
    return torch.frexp(near).mantissa / near


def orthonormal(p: torch.Tensor) -> torch.Tensor:
    """Columns that span what those of `p` do; not a number where one is not."""
    finite = torch.isfinite(p).all()
    made: torch.Tensor = torch.linalg.qr(torch.where(finite, p, 0.0))[0]
    return torch.where(finite, made, torch.nan)


class LowRank:
    """`second` is the job of the second all-reduce, made once. `companions` are those of the other buckets whose first
    one left in the same job, with the buckets' numbers: all turn when the first of them is waited for, so that what is
    computed of one bucket runs beside what is sent of another, in the same order on all workers."""

    def __init__(self, site: Site, number: int, workers: int) -> None:
        exchange = site.program.transfers[number].exchange
        self._workers, self._sums = workers, exchange.kind == "sum"
        self._matrices = tuple(_matrices(site, number, exchange.rank))
        self.p, self.q = _together([m.p for m in self._matrices]), _together([m.q for m in self._matrices])
        self.second = site.operations.job([site.runtime.Piece(0, sums=[self.q])])
        self.companions: Sequence[tuple[int, LowRank]] = ()
        self.iteration = 0
        self.under_way = self.turned = False

    def begin(self, iteration: int) -> None:
        self.iteration, self.under_way, self.turned = iteration, True, False
        for matrix in self._matrices:
            matrix.begin()

    def turn(self) -> None:
        self.turned = True
        for matrix in self._matrices:
            matrix.turn(self._workers)

    def end(self) -> None:
        self.under_way = False
        for matrix in self._matrices:
            matrix.end(self._workers, self._sums)


def _matrices(site: Site, number: int, rank: int) -> Iterator[_Matrix]:
    memory = site.memory
    found = [(p, f) for p in site.members if (f := factors_of(p.shape, rank)).rank]
    like = memory.factors[number].tensor
    ps, qs = (like.new_zeros(sum(sizes)) for sizes in ([f.p for _, f in found], [f.q for _, f in found]))
    at_p = at_q = 0
    for parameter, f in found:
        tensor = site.tensors[parameter.number]
        yield _Matrix(
            f, tensor.shape, tensor.stride(), _part(memory.slots[number][0], parameter),
            _part(memory.residuals[number].worker, parameter), _part(memory.factors[number], parameter),
            ps[at_p : at_p + f.p].view(f.rows, f.rank), qs[at_q : at_q + f.q].view(f.columns, f.rank),
        )  # fmt: skip
        at_p, at_q = at_p + f.p, at_q + f.q


def _part(flat: Flat, parameter: Parameter) -> torch.Tensor:
    return flat.view(parameter.number)


def _together(parts: list[torch.Tensor]) -> torch.Tensor:
    """The flat tensor that all of these are views of, one behind the other."""
    total = sum(part.numel() for part in parts)
    return parts[0].as_strided((total,), (1,), 0)
