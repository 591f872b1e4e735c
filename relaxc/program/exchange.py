"""One mean over N workers, by its definition and as the messages of its route. Both must agree to the bit.

By definition (SEMANTICS, Evaluation): v = x + r; q = encode(v); r := v - decode(q); the owner of a block sums what it
decodes, in rank order, times 1/n; s = sum + R; the result is decode(encode(s)), R := s - result. On the ring each hop
encodes its partial sum. A loss is kept only where it is finite, so that no state ever becomes non-finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relaxc.program.evaluate import decode, encode
from relaxc.program.ir import Carried, Codec, Mean
from relaxc.wire.dither import EVERYONE, message_key, parameter_keys
from relaxc.wire.ownership import owned
from relaxc.wire.parameters import Parameter
from relaxc.wire.routes import ROUTES, Kernel, Message, Receive, Run, Send

Array = npt.NDArray[Any]
NOBODY = -1


@dataclass
class Losses:
    """What the encoders of one exchange and parameter have lost so far: each worker's own, and the owners' (one per
    element)."""

    worker: list[Array]
    owner: Array

    @classmethod
    def zeros(cls, parameter: Parameter, workers: int) -> Losses:
        real = real_type(parameter)
        return cls([np.zeros(parameter.elements, real) for _ in range(workers)], np.zeros(parameter.elements, real))


def real_type(parameter: Parameter) -> np.dtype[Any]:
    return np.dtype(np.float64 if parameter.dtype == "f64" else np.float32)


@dataclass
class Exchange:
    """A mean of one parameter in one iteration. `present[w]` is false where worker w has no gradient: it contributes
    zeros and its residual waits."""

    mean: Mean | Carried
    codec: Codec
    values: Sequence[Array]
    present: Sequence[bool]
    losses: Losses
    parameter: Parameter
    seed: int
    iteration: int

    @property
    def workers(self) -> int:
        return len(self.values)

    def chunk(self, owner: int) -> slice:
        return slice(
            *owned(self.parameter.number, self.parameter.elements, self.codec.layout.block, self.workers)[owner]
        )

    def keys(self, worker: int) -> tuple[int, int]:
        """`worker` is NOBODY for a re-encoding after the sum."""
        place, who = (self.mean.place + 1, EVERYONE) if worker == NOBODY else (self.mean.place, worker)
        return parameter_keys(message_key(self.seed, self.iteration, place, who), self.parameter.number)

    def divided(self, total: Array) -> Array:
        mean: Array = total * total.dtype.type(1 / self.workers)
        return mean

    def encoded(self, value: Array, at: slice, worker: int, keeps: bool) -> bytes:
        """Encode `value` (a worker's, or the owners' where `worker` is NOBODY), with its residual where `keeps`."""
        if not keeps:
            return encode(self.codec, value, self.keys(worker), at.start)
        loss = self.losses.owner[at] if worker == NOBODY else self.losses.worker[worker][at]
        waits = worker != NOBODY and not self.present[worker]
        value = value if waits else value + loss
        code = encode(self.codec, value, self.keys(worker), at.start)
        with np.errstate(all="ignore"):
            lost = value - self.decoded(code, at)
        if not waits:
            loss[...] = np.where(np.isfinite(lost), lost, loss)
        return code

    def decoded(self, code: bytes, at: slice) -> Array:
        return decode(self.codec, code, at.stop - at.start, self.values[0].dtype)


def run_mean(exchange: Exchange) -> Array:
    """The mean by its definition."""
    result = np.zeros_like(exchange.values[0])
    one = {"all": _mean_all, "ring": _mean_ring}[exchange.mean.route]
    for owner in range(exchange.workers):
        at = exchange.chunk(owner)
        if at.stop > at.start:
            result[at] = exchange.decoded(one(exchange, owner, at), at)
    return result


def _mean_all(exchange: Exchange, owner: int, at: slice) -> bytes:
    feedback = exchange.mean.feedback
    shares = [exchange.encoded(v[at], at, w, feedback != "none") for w, v in enumerate(exchange.values)]
    total = exchange.decoded(shares[0], at)
    with np.errstate(all="ignore"):
        for share in shares[1:]:
            total = total + exchange.decoded(share, at)
        mean = exchange.divided(total)
    return exchange.encoded(mean, at, NOBODY, feedback == "both")


def _mean_ring(exchange: Exchange, owner: int, at: slice) -> bytes:
    feedback, workers = exchange.mean.feedback, exchange.workers
    partial: Array | None = None
    with np.errstate(all="ignore"):
        for hop in range(workers):
            worker = (owner + 1 + hop) % workers
            value = exchange.values[worker][at]
            total = value if partial is None else partial + value
            if hop == workers - 1:
                return exchange.encoded(exchange.divided(total), at, NOBODY, feedback == "both")
            keeps = feedback == "both" or (feedback == "worker" and hop == 0)
            partial = exchange.decoded(exchange.encoded(total, at, worker, keeps), at)
    raise AssertionError("a ring without workers")


def run_carried(exchange: Exchange) -> Array:
    """The same mean as every worker's moves, message by message; the result is checked to be the same bits
    everywhere."""
    assert isinstance(exchange.mean, Carried)
    route = ROUTES[exchange.mean.route]
    kernels = {k.name: k for k in exchange.mean.kernels}
    world = [_Mover(exchange, rank, kernels, {}) for rank in range(exchange.workers)]
    queues = [[m for phase in route.phases(w.rank, exchange.workers) for m in phase] for w in world]
    mail: dict[tuple[int, int, Message], bytes] = {}
    while any(queues):
        for mover, queue in zip(world, queues, strict=True):
            while queue and mover.move(queue[0], mail):
                queue.pop(0)
    for mover in world[1:]:
        assert mover.result.tobytes() == world[0].result.tobytes(), "workers end with different bits"
    return world[0].result


@dataclass
class _Mover:
    exchange: Exchange
    rank: int
    kernels: dict[str, Kernel]
    held: dict[tuple[int, Message], bytes]

    def __post_init__(self) -> None:
        self.result = np.zeros_like(self.exchange.values[0])

    def move(self, move: Run | Send | Receive, mail: dict[tuple[int, int, Message], bytes]) -> bool:
        match move:
            case Send(message=message, made_by=made_by, peer=peer):
                mail[self.rank, peer, message] = self.held[made_by, message]
            case Receive(message=message, made_by=made_by, peer=peer):
                if (peer, self.rank, message) not in mail:
                    return False
                self.held[made_by, message] = mail.pop((peer, self.rank, message))
            case Run():
                self.run(move, self.kernels[move.kernel])
        return True

    def run(self, run: Run, kernel: Kernel) -> None:
        at = self.exchange.chunk(run.chunk)
        if at.stop == at.start:
            if run.output is not None:
                self.held[self.rank, run.output] = b""
            return
        terms = [self.exchange.decoded(self.held[key], at) for key in run.inputs]
        if kernel.decodes:
            self.result[at] = terms[0]
            return
        if kernel.tensor:
            terms.append(self.exchange.values[self.rank][at])
        with np.errstate(all="ignore"):
            value = terms[0]
            for term in terms[1:]:
                value = value + term
            value = self.exchange.divided(value) if kernel.averages else value
        assert run.output is not None
        worker = NOBODY if kernel.owner else self.rank
        self.held[self.rank, run.output] = self.exchange.encoded(value, at, worker, kernel.residual)
