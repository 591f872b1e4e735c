"""One exchange of one parameter among N workers, by its definition; messages.py has it as messages, to the same bit.

By definition, for a mean or a sum of a tensor: v = x + r; q = encode(v); r := v - decode(q);
the owner of a block sums what it decodes, in rank order, and for a mean multiplies by 1/n; s = that + R; the result
is decode(encode(s)), R := s - result. On the ring each hop encodes its partial sum. In a hierarchy leaders encode those
of their machines, with their own r, and owners sum in the order of machines; on one machine nothing is encoded. A mix,
a mean or sum of a code, and one on the route gather are rounded once: everyone decodes what it is sent, its own too,
and adds in rank order, for a mix or push each times its weight. A codec with `near` decodes next to what the receiver
put into its own code. A loss is kept only where it is finite, so that no state ever becomes non-finite. Weights and 1/n
are rounded once to the arithmetic type. What a relay means is in relays.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relaxc.program.codec import EXACT
from relaxc.program.evaluate import NO_KEYS, States, decode, encode, follow, nearest
from relaxc.program.functions import Array
from relaxc.program.ir import Codec, Exchange
from relaxc.program.low_rank import run_low_rank
from relaxc.program.relays import Held, Relay
from relaxc.wire.dither import EVERYONE, message_key, parameter_keys, shared_key
from relaxc.wire.ownership import shares
from relaxc.wire.parameters import Parameter
from relaxc.wire.routes import (
    Route,
    gathers,
    route_of,
)

NOBODY = -1
Row = Sequence[tuple[int, float]]
"""(peer, its weight) in rank order, this worker among them."""


@dataclass
class Residuals:
    """What the encoders of one exchange and parameter have lost so far: each worker's own, and the owners' (one per
    element). Their codecs' states, by worker. `factor` is the Q of an exchange of low rank."""

    worker: list[Array]
    owner: Array
    states: list[States] = field(default_factory=list)
    factor: Array | None = None

    @classmethod
    def zeros(cls, parameter: Parameter, workers: int) -> Residuals:
        real = real_type(parameter)
        losses = [np.zeros(parameter.elements, real) for _ in range(workers)]
        return cls(losses, np.zeros(parameter.elements, real), [{} for _ in range(workers)])


def real_type(parameter: Parameter) -> np.dtype[Any]:
    return np.dtype(np.float64 if parameter.dtype == "f64" else np.float32)


def cell_of(parameter: Parameter) -> Parameter:
    """What stands for a parameter where one number of it is exchanged."""
    return replace(parameter, shape=())


@dataclass(frozen=True)
class Code:
    """What one worker encoded: `put` is the value that it put in, `message` what it sends of it. It starts at element
    `first` of its parameter; `shared` are the keys of what everyone draws alike. `states` are those of its codec, which
    what it receives will change."""

    codec: Codec
    put: Array
    message: bytes
    states: States = field(default_factory=dict, compare=False)
    first: int = 0
    shared: tuple[int, int] = NO_KEYS

    def decoded(self, near: Array | None = None) -> Array:
        """Next to `near`, by default what was put into this very code."""
        near = self.put if near is None else nearest(self.codec, self.message, near, self.put)
        return decode(self.codec, self.message, self.put.size, self.put.dtype, near, self.first, self.shared)


@dataclass
class Occurrence:
    """An exchange of one parameter in one iteration. `values` are the workers', tensors or codes; of a cell, tensors of
    one element, and `parameter` is its cell_of. `rows` are the weights of a mix or push, for each worker. `present[w]`
    is false where worker w has no gradient: it contributes zeros and its residual waits. `held` is a relay's, and
    changes."""

    exchange: Exchange
    values: Sequence[Array | Code]
    residuals: Residuals
    parameter: Parameter
    seed: int
    iteration: int
    rows: Sequence[Row] | None = None
    present: Sequence[bool] | None = None
    held: Held | None = None

    @property
    def workers(self) -> int:
        return len(self.values)

    @property
    def codec(self) -> Codec:
        first = self.values[0]
        if isinstance(first, Code):
            return first.codec
        return self.exchange.codec or EXACT

    @property
    def gathers(self) -> bool:
        """Whether everyone hears from everyone that it needs, with one rounding."""
        return gathers(self.exchange.kind, self.coded, self.exchange.route)

    @property
    def coded(self) -> bool:
        return isinstance(self.values[0], Code)

    @property
    def plain(self) -> bool:
        """Whether it is an all-reduce of numbers."""
        return not self.gathers and self.exchange.codec is None

    @property
    def relays(self) -> bool:
        return self.exchange.kind == "relay"

    @property
    def relay(self) -> Relay:
        assert self.held is not None, "a relay without memory"
        neighbours = [[peer for peer, _ in self.row(w) if peer != w] for w in range(self.workers)]
        return Relay([self.tensor(w) for w in range(self.workers)], neighbours, self.held)

    def tensor(self, worker: int) -> Array:
        value = self.values[worker]
        assert not isinstance(value, Code)
        return value

    @property
    def route(self) -> Route:
        return route_of(self.exchange.route)

    @property
    def within_a_machine(self) -> bool:
        """Whether the route encodes nothing."""
        return not self.gathers and self.route.roundings(self.workers) == 0

    def chunk(self, owner: int) -> slice:
        parameter = self.parameter
        return slice(*shares(parameter.number, parameter.elements, self.codec.layout, self.workers)[owner])

    def row(self, worker: int) -> Row:
        """Whom a worker hears and with which weight; 1 for each in a mean or sum."""
        return [(w, 1.0) for w in range(self.workers)] if self.rows is None else self.rows[worker]

    def divided(self, total: Array) -> Array:
        mean: Array = total * total.dtype.type(1 / self.workers)
        return mean

    def keys(self, worker: int) -> tuple[int, int]:
        """`worker` is NOBODY for a re-encoding after the sum."""
        place, who = (self.exchange.place + 1, EVERYONE) if worker == NOBODY else (self.exchange.place, worker)
        return encoding_keys(self.seed, self.iteration, place, who, self.parameter)

    @property
    def shared(self) -> tuple[int, int]:
        return shared_keys(self.seed, self.iteration, self.parameter)

    def code(self, value: Array, worker: int, first: int, states: States) -> Code:
        message = encode(self.codec, value, self.keys(worker), first, states, self.shared)
        return Code(self.codec, value, message, states, first, self.shared)

    def contribution(self, worker: int) -> Code:
        """The code of a worker's whole tensor, with its residual; or the code that it exchanges."""
        value = self.values[worker]
        if isinstance(value, Code):
            return value
        return self.encoded(value, slice(0, value.size), worker, self.exchange.feedback != "none")

    def encoded(self, value: Array, at: slice, worker: int, keeps: bool) -> Code:
        """Encode `value` (a worker's, or the owners' where `worker` is NOBODY), with its residual where `keeps`."""
        states = {} if worker == NOBODY else self.residuals.states[worker]
        if not keeps:
            return self.code(value, worker, at.start, states)
        loss = self.residuals.owner[at] if worker == NOBODY else self.residuals.worker[worker][at]
        waits = worker != NOBODY and self.present is not None and not self.present[worker]
        with np.errstate(all="ignore"):
            value = value if waits else value + loss
        code = self.code(value, worker, at.start, states)
        with np.errstate(all="ignore"):
            lost = value - code.decoded()
        if not waits:
            loss[...] = np.where(np.isfinite(lost), lost, loss)
        return code

    def decoded(self, message: bytes, at: slice) -> Array:
        real = real_type(self.parameter)
        return decode(self.codec, message, at.stop - at.start, real, None, at.start, self.shared)


def encoding_keys(seed: int, iteration: int, place: int, worker: int, parameter: Parameter) -> tuple[int, int]:
    return parameter_keys(message_key(seed, iteration, place, worker), parameter.number)


def shared_keys(seed: int, iteration: int, parameter: Parameter) -> tuple[int, int]:
    """Of what everyone draws alike."""
    return parameter_keys(shared_key(seed, iteration), parameter.number)


# --- by definition


def run_exchange(this: Occurrence) -> list[Array]:
    """What each worker receives."""
    if this.relays:
        return this.relay.run()
    if this.gathers:
        codes = [this.contribution(w) for w in range(this.workers)]
        return [_gathered(this, worker, codes) for worker in range(this.workers)]
    if this.exchange.rank:
        return run_low_rank(this)
    if this.plain or this.within_a_machine:
        return [_plain(this)] * this.workers
    assert this.codec.near is None, "a codec that decodes next to one's own value gives everyone another result"
    result = np.zeros_like(this.tensor(0))
    one = {"all": _by_owner, "ring": _by_hops, "hierarchy": _by_machines}[this.route.name]
    for owner in range(this.workers):
        at = this.chunk(owner)
        if at.stop > at.start:
            result[at] = this.decoded(one(this, owner, at), at)
    return [result] * this.workers


def received(this: Occurrence, worker: int) -> Array:
    """What one worker makes of codes that have all been made."""
    codes = [value for value in this.values if isinstance(value, Code)]
    assert len(codes) == this.workers, "what is gathered is codes"
    return _gathered(this, worker, codes)


def _gathered(this: Occurrence, worker: int, codes: Sequence[Code]) -> Array:
    for peer, _ in this.row(worker):
        if peer != worker:
            follow(this.codec, codes[peer].message, codes[worker].put, codes[worker].states)
    terms = [
        codes[peer].decoded(codes[worker].put) * codes[worker].put.dtype.type(weight)
        for peer, weight in this.row(worker)
    ]
    return _summed(this, terms)


def _summed(this: Occurrence, terms: Sequence[Array]) -> Array:
    with np.errstate(all="ignore"):
        total = added(terms)
        return this.divided(total) if this.exchange.kind == "mean" else total


def added(terms: Sequence[Array]) -> Array:
    with np.errstate(all="ignore"):
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total


def _plain(this: Occurrence) -> Array:
    return _summed(this, [this.tensor(w) for w in range(this.workers)])


def _by_owner(this: Occurrence, owner: int, at: slice) -> bytes:
    feedback = this.exchange.feedback
    codes = [this.encoded(this.tensor(w)[at], at, w, feedback != "none") for w in range(this.workers)]
    return this.encoded(_summed(this, [c.decoded() for c in codes]), at, NOBODY, feedback == "both").message


def _by_machines(this: Occurrence, owner: int, at: slice) -> bytes:
    feedback, inner = this.exchange.feedback, this.route.inner
    codes = []
    for first in range(0, this.workers, inner):
        total = added([this.tensor(w)[at] for w in range(first, first + inner)])
        codes.append(this.encoded(total, at, first + owner % inner, feedback != "none"))
    return this.encoded(_summed(this, [c.decoded() for c in codes]), at, NOBODY, feedback == "both").message


def _by_hops(this: Occurrence, owner: int, at: slice) -> bytes:
    feedback, last = this.exchange.feedback, this.workers - 1
    arrived: list[Array] = []
    for hop in range(last):
        worker = (owner + 1 + hop) % this.workers
        with np.errstate(all="ignore"):
            total = sum(arrived, this.tensor(worker)[at])
        keeps = feedback == "both" or (feedback == "worker" and hop == 0)
        arrived = [this.encoded(total, at, worker, keeps).decoded()]
    return this.encoded(_summed(this, [*arrived, this.tensor(owner)[at]]), at, NOBODY, feedback == "both").message
