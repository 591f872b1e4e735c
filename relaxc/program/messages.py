"""An exchange as its messages: every worker carries out the moves of its route, one by one."""

from __future__ import annotations

import numpy as np

from relaxc.program.codec import EXACT
from relaxc.program.evaluate import States, decode, encode, follow, trusted
from relaxc.program.exchange import NOBODY, Occurrence, added, real_type, run_exchange
from relaxc.program.functions import Array
from relaxc.wire.routes import (
    NEIGHBOURLY,
    Kernel,
    Message,
    Move,
    Phase,
    Receive,
    Run,
    Send,
    gather_phases,
    held_from,
    kernels_of,
    relay_phases,
)


def run_messages(this: Occurrence) -> list[Array]:
    """The same by every worker's moves, message by message. Where all receive the same, it is checked to be the same
    bits."""
    if this.plain:
        return run_exchange(this)
    world = [_Mover(this, rank) for rank in range(this.workers)]
    queues = [[move for phase in mover.phases() for move in phase] for mover in world]
    mail: Mail = {}
    while any(queues):
        for mover, queue in zip(world, queues, strict=True):
            while queue and mover.move(queue[0], mail):
                queue.pop(0)
    results = [mover.result for mover in world]
    for mover in world if this.relays else ():
        mover.keep()
    same = this.exchange.kind not in NEIGHBOURLY and this.codec.near is None
    assert not same or len({r.tobytes() for r in results}) == 1, "workers end with different bits"
    return results


Mail = dict[tuple[int, int, Message], bytes]
"""What is under way, by (sender, receiver, message)."""


class _Mover:
    """One worker. `held` are messages by who made them; `put` is what it put into its own contribution."""

    def __init__(self, this: Occurrence, rank: int) -> None:
        self.this, self.rank = this, rank
        self.held: dict[tuple[int, Message], bytes] = {}
        self.result = np.zeros(this.parameter.elements, real_type(this.parameter))
        self.put: Array | None = None
        self.states: States = {}
        self.kernels = {k.name: k for k in self._kernels()}
        if this.relays:
            self.recall()

    def _kernels(self) -> tuple[Kernel, ...]:
        exchange = self.this.exchange
        return kernels_of(exchange.kind, exchange.route, exchange.feedback, self.this.coded, self.guarded)

    def recall(self) -> None:
        self.result[:] = self.this.tensor(self.rank)
        relay = self.this.relay
        for peer in relay.neighbours[self.rank]:
            held = relay.heard(self.rank, peer)
            self.held[self.rank, held_from(peer)] = encode(self.this.codec, held, (0, 0))

    def keep(self) -> None:
        relay = self.this.relay
        for peer in relay.neighbours[self.rank]:
            message = self.held[self.rank, held_from(peer)]
            relay.held[self.rank][peer] = self.this.decoded(message, slice(0, self.result.size))

    def phases(self) -> tuple[Phase, ...]:
        if self.this.relays:
            return relay_phases(self.rank, self.this.relay.neighbours[self.rank])
        if not self.this.gathers:
            return self.this.route.phases(self.rank, self.this.workers)
        heard = [peer for peer, _ in self.this.row(self.rank) if peer != self.rank]
        hearing = [w for w in range(self.this.workers) if w != self.rank and self.rank in dict(self.this.row(w))]
        return gather_phases(self.rank, heard, hearing, self.guarded)

    @property
    def guarded(self) -> bool:
        return self.this.codec.guard is not None

    def move(self, move: Move, mail: Mail) -> bool:
        match move:
            case Send(message=Message(what="values") as message, peer=peer):
                mail[self.rank, peer, message] = self.values(peer)
            case Send(message=message, made_by=made_by, peer=peer):
                mail[self.rank, peer, message] = self.held[made_by, message]
            case Receive(message=message, made_by=made_by, peer=peer):
                if (peer, self.rank, message) not in mail:
                    return False
                self.held[made_by, message] = mail.pop((peer, self.rank, message))
            case Run():
                self.run(move, self.kernels[move.kernel])
        return True

    def chunk(self, number: int) -> slice:
        whole = self.this.gathers or self.this.relays
        return slice(0, self.result.size) if whole else self.this.chunk(number)

    def run(self, run: Run, kernel: Kernel) -> None:
        at = self.chunk(run.chunk)
        if at.stop == at.start:
            if run.output is not None:
                self.held[self.rank, run.output] = b""
        elif kernel.decodes:
            self.result[at] = self.value(run, kernel, at)
        elif kernel.checks:
            assert run.output is not None and self.put is not None
            held = trusted(self.this.codec, self.held[run.inputs[0]], self.put)
            self.held[self.rank, run.output] = (~held).astype(np.uint8).tobytes()
            follow(self.this.codec, self.held[run.inputs[0]], self.put, self.states)
        else:
            assert run.output is not None
            self.held[self.rank, run.output] = self.encoded(run, kernel, at)

    def encoded(self, run: Run, kernel: Kernel, at: slice) -> bytes:
        if self.this.gathers:
            code = self.this.contribution(self.rank)
            self.put, self.states = code.put, code.states
            return code.message
        if kernel.makes_exact:
            return encode(EXACT, self.value(run, kernel, at))
        worker = NOBODY if kernel.owner else self.rank
        return self.this.encoded(self.value(run, kernel, at), at, worker, kernel.residual).message

    def tripped(self, maker: int, about: int) -> Array:
        """Which elements are in a block that has tripped."""
        trips = np.frombuffer(self.held[maker, Message(about, 0, "trips")], np.uint8) != 0
        size = self.result.size
        return np.asarray(np.repeat(trips, self.this.codec.layout.block_of(size))[:size])

    def values(self, peer: int) -> bytes:
        assert self.put is not None
        return self.put[self.tripped(peer, self.rank)].tobytes() if self.put.size else b""

    def near(self, values: tuple[int, Message] | None) -> Array | None:
        """What a code is decoded near to: this worker's own value, but for the values that it was sent."""
        if values is None:
            return self.put
        assert self.put is not None
        own = self.put.copy()
        own[self.tripped(self.rank, values[0])] = np.frombuffer(self.held[values], own.dtype)
        return own

    def value(self, run: Run, kernel: Kernel, at: slice) -> Array:
        real = self.result.dtype.type
        codec, size = EXACT if kernel.takes_exact else self.this.codec, at.stop - at.start
        near = [self.near(values) for values in run.near] or [self.put] * len(run.inputs)
        terms = [
            decode(codec, self.held[k], size, real, own, at.start, self.this.shared)
            for k, own in zip(run.inputs, near, strict=True)
        ]
        if kernel.weighted:
            weights = dict(self.this.row(self.rank))
            terms = [term * real(weights[maker]) for term, (maker, _) in zip(terms, run.inputs, strict=True)]
        if kernel.tensor:
            terms.append(self.this.tensor(self.rank)[at])
        total = added(terms)
        with np.errstate(all="ignore"):
            return self.this.divided(total) if kernel.averages else total
