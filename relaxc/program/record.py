"""A record of what asynchronous exchanges did (attach/recording.py writes it), and how the interpreter goes that way.

With it a program is no relation any more but a function: the result is that of the run, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from relaxc.program.flights import DROP, LAND, STAY, Flight, Peers, Post
from relaxc.program.functions import Array
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import Program
from relaxc.program.store import Rule
from relaxc.wire.parameters import Parameter

SETTLE = "settle"


class Event(msgspec.Struct, frozen=True):
    """A line: `parameter` is the first of those that go together, which are all told in the line of a `cohort`."""

    t: int
    body: int
    parameter: int
    block: int
    event: str
    round: int = -1
    peers: tuple[tuple[int, int], ...] = ()
    parameters: tuple[int, ...] = ()


Key = tuple[int, int, int, int, int]
"""(worker, body, first parameter, block, round)"""


class Record:
    """What a run did, as Arrivals. `events` are by worker."""

    def __init__(self, events: Sequence[Sequence[Event]]) -> None:
        self._first: dict[tuple[int, int, int], int] = {}
        self._launched: dict[Key, int] = {}
        self._ended: dict[Key, Event] = {}
        self._landing: dict[tuple[int, int], list[Event]] = {}
        """By worker and iteration."""

        for worker, of_worker in enumerate(events):
            for event in of_worker:
                self._add(worker, event)

    def _add(self, worker: int, event: Event) -> None:
        key = (worker, event.body, event.parameter, event.block, event.round)
        if event.event == "cohort":
            self._first |= {(event.body, event.block, p): event.parameter for p in event.parameters}
        elif event.event == "launch":
            self._launched[key] = event.t
        else:
            self._ended[key] = event
            self._landing.setdefault((worker, event.t), []).append(event)

    def launched(self, flight: Flight) -> None:
        """Raise ValueError where the run did not launch this."""
        if self._launched.get(self._key(flight)) != flight.since:
            raise ValueError(f"worker {flight.worker} launched round {flight.round} in another iteration")

    def outcome(self, flight: Flight, iteration: int, there: bool) -> str:
        ended = self._ended.get(self._key(flight))
        if ended is None or ended.t != iteration:
            return STAY
        return {"land": LAND, "drop": DROP}[ended.event]

    def peers(self, flight: Flight) -> Peers | None:
        ended = self._ended.get(self._key(flight))
        return ended.peers if ended is not None else None

    def begins(self, worker: int, iteration: int) -> bool:
        """Whether this worker launched something in an iteration, which it may never have ended."""
        return any(key[0] == worker and t == iteration for key, t in self._launched.items())

    def follows(self, worker: int, iteration: int, done: Sequence[int]) -> bool:
        """Whether all that lands in this iteration of a worker was launched in what is `done` of the others."""
        landing = self._landing.get((worker, iteration), [])
        return all(
            done[peer] > self._launched[peer, event.body, event.parameter, event.block, round]
            for event in landing
            if event.event == "land"
            for peer, round in event.peers
        )

    def _key(self, flight: Flight) -> Key:
        first = self._first[flight.body, flight.block, flight.parameter]
        return flight.worker, flight.body, first, flight.block, flight.round


def read_record(path: str | Path, workers: int) -> Record:
    """Raise ValueError where something was settled between two iterations, in consensus() or a checkpoint: the
    interpreter has no place for that."""
    decoder = msgspec.json.Decoder(Event)
    found = []
    for rank in range(workers):
        lines = (Path(path) / f"rank{rank}.jsonl").read_bytes().splitlines()
        found.append([decoder.decode(line) for line in lines])
    for rank, events in enumerate(found):
        last = max((e.t for e in events if e.event != SETTLE), default=0)
        if any(e.event == SETTLE and e.t < last for e in events):
            raise ValueError(f"rank {rank} settled exchanges between two iterations")
    return Record(found)


def replay(
    program: Program, parameters: Sequence[Parameter], workers: int, seed: int, weights: Sequence[Array],
    optimizer: Callable[[], Rule], record: Record, gradient: Callable[[int, int, Sequence[Array]], Sequence[Array]],
    iterations: Sequence[int],
) -> list[list[list[Array]]]:  # fmt: skip
    """Workers with all exchanges asynchronous, each for as many iterations as it did. `gradient(worker, iteration,
    weights)`. Return the weights of each worker after each of its iterations.

    Raise ValueError where the record is of another program.
    """
    post = Post(workers, seed)
    made = [
        Interpreter(program, parameters, workers, seed, weights, optimizer(), arrivals=record, members=(w,), post=post)
        for w in range(workers)
    ]
    for one in made[1:]:
        one.residuals = made[0].residuals
    seen: list[list[list[Array]]] = [[] for _ in range(workers)]
    counts = [count + record.begins(w, count) for w, count in enumerate(iterations)]
    while any(len(of) < count for of, count in zip(seen, counts, strict=True)):
        done = [len(of) for of in seen]
        worker = next((w for w in range(workers) if done[w] < counts[w] and record.follows(w, done[w], done)), None)
        if worker is None:
            raise ValueError("something lands in this record before it was launched")
        one = made[worker]
        ends = done[worker] < iterations[worker]
        own = gradient(worker, done[worker], one.weights[worker]) if ends else [None] * len(parameters)
        one.iterate([own if w == worker else [None] * len(parameters) for w in range(workers)])
        seen[worker].append([weight.copy() for weight in one.weights[worker]])
    return [of[:count] for of, count in zip(seen, iterations, strict=True)]
