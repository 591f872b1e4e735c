"""The interpreter's part for `after async`: who launches and who lands in an iteration, each worker by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from relaxc.program.arithmetic import Evaluator
from relaxc.program.exchange import Code, Occurrence, cell_of
from relaxc.program.flights import (
    ARRIVES,
    DROP,
    LAND,
    WAIT,
    Aloft,
    Arrivals,
    Awaited,
    Flight,
    Peers,
    Post,
    met_neighbours,
)  # fmt: skip
from relaxc.program.functions import Array
from relaxc.program.ir import After, Encode, Exchange, Let, Optimizer, Read, Statement, exchanges
from relaxc.program.launched import Launched, launched_of
from relaxc.program.store import Scope, Value, Values
from relaxc.topology.topology import Topology
from relaxc.topology.weights import own_weight

if TYPE_CHECKING:
    from relaxc.program.interpret import Interpreter


class Asynchronous:
    """`of` is the interpreter, which evaluates."""

    def __init__(self, of: Interpreter, arrivals: Arrivals, post: Post) -> None:
        self.of, self.arrivals, self.post = of, arrivals, post
        self.launched = [launched_of(body.statements) for body in of.program.bodies]
        self.exchanges = [{e.place: e for e in exchanges(body.statements)} for body in of.program.bodies]

    def _body(self, scope: Scope) -> int:
        return self.of.bodies[scope.parameter.number] or 0

    def _launched(self, scope: Scope) -> Launched:
        return self.launched[self._body(scope)] if self.launched else Launched()

    def _of_block(self, block: int, scope: Scope) -> list[Exchange]:
        all_of_body = self.exchanges[self._body(scope)]
        return [all_of_body[place] for place, b in self._launched(scope).exchanges.items() if b == block]

    # --- who launches, who lands

    def decided(self, statements: Sequence[Statement], scope: Scope) -> Scope:
        """`scope` with what becomes of the `after async` of a block that runs."""
        blocks = [s for s in statements if isinstance(s, After) and s.asynchronous]
        if not blocks:
            return scope
        landing = {after.block: self._landing(after, scope) for after in blocks}
        launching = {
            block: tuple(w for w in scope.members if w not in landed and (block, w) not in scope.store.aloft)
            for block, landed in landing.items()
        }
        return replace(scope, landing={**scope.landing, **landing}, launching={**scope.launching, **launching})

    def _landing(self, after: After, scope: Scope) -> tuple[int, ...]:
        return tuple(w for w in scope.members if self._lands(after, w, scope))

    def _lands(self, after: After, worker: int, scope: Scope) -> bool:
        aloft = scope.store.aloft.get((after.block, worker))
        if aloft is None:
            return False
        flight, now = aloft.flight, self.of.iteration
        peers = self._peers(flight)
        there = all(
            self.post.is_there(e, flight.parameter, worker, flight.round, peers)
            for e in self._of_block(after.block, scope)
        )
        outcome = self.arrivals.outcome(flight, now, there)
        if outcome == DROP:
            del scope.store.aloft[after.block, worker]
            return False
        due = bool(after.most) and now - flight.since >= after.most
        return outcome == LAND or (outcome == WAIT and due and there)  # all are in step: who waited would wait for ever

    def _peers(self, flight: Flight) -> Peers | None:
        return self.arrivals.peers(flight) if flight.neighbours else None

    # --- launching

    def launches(self, e: Exchange, scope: Scope) -> bool:
        return e.place in self._launched(scope).exchanges

    def moment(self, encoding: Encode, worker: int, scope: Scope) -> int:
        """What a code's draws are of: the iteration, or the round of its launch."""
        block = self._launched(scope).codes.get(encoding.place)
        return self.of.iteration if block is None else self._round(block, worker, scope)

    def _round(self, block: int, worker: int, scope: Scope) -> int:
        return scope.store.launches.get((block, worker), 0)

    def takes(self, let: Let, scope: Scope) -> bool:
        """Whether a let is evaluated here: one that is made where something is launched only."""
        launched = self._launched(scope)
        if let.name in launched.awaited:
            self._await(let, self._of_launch(launched.awaited[let.name], scope))
        elif let.name in launched.coded:
            block = launched.coded[let.name]
            scope.lets[let.name] = self.of._value(let.value, self._of_launch(block, scope))  # noqa: SLF001
        else:
            return False
        return True

    def _of_launch(self, block: int, scope: Scope) -> Scope:
        return replace(scope, members=scope.launching.get(block, ()))

    def post_all(self, e: Exchange, values: Values, scope: Scope) -> None:
        block = self._launched(scope).exchanges[e.place]
        residuals = self.of.residuals_of(e.place, scope.parameter)
        for w in scope.members:
            if not isinstance(values[w], Code) and np.ndim(values[w]) == 0:
                self.post.cells.add(e.place)
                scope = replace(scope, parameter=cell_of(scope.parameter))
            value = values[w] if isinstance(values[w], Code) else scope.tensor(values[w])
            this = Occurrence(
                e, [value] * self.of.workers, residuals, scope.parameter, self.of.seed, self._round(block, w, scope)
            )
            self.post.put(this, w)

    def _await(self, let: Let, scope: Scope) -> None:
        done: dict[str, Values] = {}
        value = self.of._without_codes(let.value, scope, done)  # noqa: SLF001 - its other half
        block = self._launched(scope).awaited[let.name]
        for w in scope.members:
            numbers, tensors = self.of._names(value, scope, done, w)  # noqa: SLF001
            awaited = Awaited(let.name, value, numbers, tensors)
            scope.store.pending.setdefault((block, w), []).append(awaited)

    def awaits(self, read: Read | Optimizer, scope: Scope) -> bool:
        """Whether a name stands for what has not arrived yet."""
        if isinstance(read, Optimizer) or read.name in scope.lets:
            return False
        return read.name.startswith(ARRIVES) or read.name in self._launched(scope).awaited

    def turn(self, after: After, scope: Scope) -> None:
        """At the place of the block: some workers have launched, for others it lands."""
        for w in scope.launching.get(after.block, ()):
            self._launch(after.block, w, scope)
        for w in scope.landing.get(after.block, ()):
            self._land(after, w, scope)

    def _launch(self, block: int, worker: int, scope: Scope) -> None:
        round = self._round(block, worker, scope)
        scope.store.launches[block, worker] = round + 1
        near = met_neighbours(self._of_block(block, scope), self.of.workers, worker)
        flight = Flight(worker, self._body(scope), scope.parameter.number, block, round, self.of.iteration, near)
        lets = {name: values[worker] for name, values in scope.lets.items() if values[worker] is not None}
        scope.store.aloft[block, worker] = Aloft(flight, lets, scope.store.pending.pop((block, worker), []))
        self.arrivals.launched(flight)

    # --- landing

    def land_only(self, after: After, scope: Scope) -> None:
        """The block around does not run."""
        for w in self._landing(after, scope):
            self._land(after, w, scope)

    def _land(self, after: After, worker: int, scope: Scope) -> None:
        aloft = scope.store.aloft.pop((after.block, worker))
        flight, peers = aloft.flight, self._peers(aloft.flight)
        arrived = {
            f"{ARRIVES}{e.place}": self._arrived(e, flight, peers, scope) for e in self._of_block(after.block, scope)
        }
        lets: dict[str, Value] = dict(aloft.lets)
        for awaited in aloft.awaited:
            lets[awaited.name] = self._evaluated(awaited, {**lets, **arrived}, worker, scope)
        values = {name: [value if w == worker else None for w in self.of.everyone] for name, value in lets.items()}
        inside = replace(scope, lets=values, round=flight.round, members=(worker,))
        self.of._run(after.body, inside)  # noqa: SLF001

    def _arrived(self, e: Exchange, flight: Flight, peers: Peers | None, scope: Scope) -> Array:
        residuals = self.of.residuals_of(e.place, scope.parameter)
        if e.place not in self.post.cells:
            return self.post.arrived(e, scope.parameter, flight, peers, residuals)
        return np.asarray(self.post.arrived(e, cell_of(scope.parameter), flight, peers, residuals)[0])

    def _evaluated(self, awaited: Awaited, known: dict[str, Value], worker: int, scope: Scope) -> Value:
        value = awaited.value
        if isinstance(value, Read) and value.name in known:
            return known[value.name]
        tensors: dict[str, Array] = dict(awaited.tensors)
        numbers = dict(awaited.numbers)
        for name, given in known.items():
            if isinstance(given, float):
                numbers.setdefault(name, given)
            elif not isinstance(given, Code):
                tensors.setdefault(name, given)

        def own(topology: Topology) -> float:
            return own_weight(topology, self.of.workers, scope.round, self.of.seed, worker)

        return Evaluator(scope.real, numbers, tensors, own).value(value)
