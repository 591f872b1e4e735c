"""Workers at their own pace: what is meant, against independent simulations, and what a record replays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import references.asynchronous as reference

from relaxc import pipeline
from relaxc.language.source import Source
from relaxc.program.asynchronous import Workers
from relaxc.program.flights import LAND, WAIT, Flight, Peers, Prompt
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import Program
from relaxc.program.record import read_record
from relaxc.topology.topology import Topology
from relaxc.topology.weights import weights
from relaxc.wire.dither import message_key, parameter_keys
from relaxc.wire.parameters import Parameter

SIZE, RATE = 6, 0.1
PARAMETERS = [Parameter(0, "p", (SIZE,), "f64")]
SPECS = Path(__file__).parents[3] / "specs"


class Descent:
    def step(self, worker: int, parameter: Parameter, weight: Any, grad: Any) -> Any:
        return weight - RATE * grad

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        return RATE

    def state(self, worker: int, parameter: Parameter, name: str) -> Any:
        raise KeyError(name)


class Kept(Prompt):
    """Lands after a number of iterations that depends on the launch, and writes down what happens."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[int, list[dict[str, Any]]] = {}

    def note(self, flight: Flight, event: str, t: int, peers: Peers | None) -> None:
        line = {"t": t, "body": 0, "parameter": 0, "block": flight.block, "event": event, "round": flight.round}
        self.lines.setdefault(flight.worker, []).append({**line, "peers": [list(p) for p in peers or ()]})

    def launched(self, flight: Flight) -> None:
        super().launched(flight)
        self.note(flight, "launch", flight.since, ())

    def outcome(self, flight: Flight, iteration: int, there: bool) -> str:
        least = 1 + (flight.worker + 2 * flight.round) % 3
        if not there or iteration - flight.since < least:
            return WAIT
        self.note(flight, "land", iteration, self.peers(flight) if flight.neighbours else ())
        return LAND


def write(kept: Kept, path: Path) -> None:
    """As relaxed.record() does."""
    for w, lines in kept.lines.items():
        first = {**lines[0], "t": 0, "event": "cohort", "parameters": [0]}
        text = "".join(json.dumps(line) + "\n" for line in [first, *lines])
        (path / f"rank{w}.jsonl").write_text(text)


def program(name: str) -> Program:
    return pipeline.to_program(pipeline.to_spec(Source.read(SPECS / f"{name}.relax"), {}))


def schedule(workers: int, steps: int) -> list[int]:
    """Who advances, one after the other: worker 0 is five times slower than the others."""
    return [w for n in range(steps) for w in range(workers) if w or n % 5 == 0]


def pulls(workers: int) -> Any:
    return np.random.default_rng(5).standard_normal((workers, SIZE)) * 0.1


def run(name: str, workers: int, turns: Sequence[int], arrivals: Any) -> Workers:
    start = [np.arange(SIZE) / 10.0]
    made = Workers(program(name), PARAMETERS, workers, arrivals, 3, start, Descent())
    for w in turns:
        made.advance(w, [made.weights(w)[0] - pulls(workers)[w]])
    return made


ALL = ("async_average", "async_bytegrad", "adpsgd", "swarm", "swarm_8bit")


@pytest.mark.parametrize("name", ALL)
def test_a_record_is_gone_the_same_way_again(name: str, tmp_path: Path) -> None:
    kept, turns = Kept(), schedule(4, 50)
    first = run(name, 4, turns, kept)
    write(kept, tmp_path)
    again = run(name, 4, turns, read_record(tmp_path, 4))
    for w in range(4):
        assert first.weights(w)[0].tobytes() == again.weights(w)[0].tobytes()
    assert sum(line["event"] == "land" for line in kept.lines[1]) >= 1


def test_a_record_of_something_else_is_noticed(tmp_path: Path) -> None:
    kept, turns = Kept(), schedule(2, 20)
    run("async_average", 2, turns, kept)
    kept.lines[1][0]["t"] += 1
    write(kept, tmp_path)
    with pytest.raises(ValueError, match="worker 1 launched round 0 in another iteration"):
        run("async_average", 2, turns, read_record(tmp_path, 2))


def test_a_slow_worker_holds_nobody_up_where_pairs_find_each_other() -> None:
    kept = Kept()
    run("adpsgd", 4, schedule(4, 50), kept)
    landed = [sum(line["event"] == "land" for line in kept.lines[w]) for w in range(4)]
    assert landed[0] < min(landed[1:])


def test_nothing_synchronous_at_ones_own_pace() -> None:
    with pytest.raises(ValueError, match="no synchronous exchange"):
        run("dpsgd", 2, [0], Prompt())


def test_pairs_keep_the_sum_of_what_all_have() -> None:
    """Without gradients; when all have landed and nobody is in between, the sum is what it was."""
    for name in ("adpsgd", "swarm_8bit"):
        interpreter = Interpreter(program(name), PARAMETERS, 4, 3, [np.zeros(SIZE)], Descent())
        for store in interpreter._stores:
            store.weight[:] = list(pulls(4))
        for _ in range(40):
            interpreter.iterate([[np.zeros(SIZE)] for _ in range(4)])
        after = np.array([w[0] for w in interpreter.weights])
        np.testing.assert_allclose(after.sum(0), pulls(4).sum(0), rtol=1e-9, atol=1e-12)
        assert np.ptp(after, axis=0).max() < np.ptp(pulls(4), axis=0).max()


# --- against plain numpy


SIMULATIONS = {
    "async_average": reference.AsyncAverage, "async_bytegrad": reference.AsyncByteGrad, "adpsgd": reference.AdPsgd,
    "swarm": reference.Swarm, "swarm_8bit": reference.Swarm8bit,
}  # fmt: skip


def moments(kept: Kept, workers: int, drawn: bool) -> dict[tuple[int, int], reference.Moment]:
    """The schedule that was gone; with `drawn` partners are those of random_pairs, which are drawn from the seed."""
    found: dict[tuple[int, int], reference.Moment] = {}
    for w, lines in kept.lines.items():
        for line in lines:
            if line["event"] == "launch":
                found[w, line["t"]] = reference.Moment(launches=line["round"])
                continue
            partner = tuple(line["peers"][0]) if line["peers"] else None
            if drawn:
                row = weights(Topology("random_pairs"), workers, line["round"], 3, w)
                partner = next(((peer, line["round"]) for peer, _ in row if peer != w), None)
            found[w, line["t"]] = reference.Moment(lands=line["round"], partner=partner)
    return found


def noise(worker: int, round: int) -> Any:
    """The draws of the first encoding of a program (wire/dither.py)."""
    key0, key1 = map(np.uint32, parameter_keys(message_key(3, round, 0, worker), 0))
    mixed = np.arange(SIZE, dtype=np.uint32) ^ key0
    for add in (key1, np.uint32(0)):
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
        mixed = (mixed ^ (mixed >> np.uint32(16))) + add
    return (mixed >> np.uint32(8)) / 2.0**24


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("name", ALL)
def test_fifty_steps_are_those_of_plain_numpy(name: str, workers: int) -> None:
    kept, turns = Kept(), schedule(workers, 50)
    found = run(name, workers, turns, kept)
    start = [np.arange(SIZE) / 10.0 for _ in range(workers)]
    made = SIMULATIONS[name](start, RATE, lambda w, x: x - pulls(workers)[w])
    made.noise = noise
    wanted = made.run(turns, moments(kept, workers, name == "swarm_8bit"))
    assert sum(line["event"] == "land" for lines in kept.lines.values() for line in lines) >= 1
    for w in range(workers):
        np.testing.assert_allclose(found.weights(w)[0], wanted[w], rtol=1e-9, atol=1e-12)


def test_updates_of_one_worker_are_its_own() -> None:
    """With a rate of 1 and no momentum what comes back is what it has done already."""
    text = "relax updates { delay = async, every = 3, rate = 1, momentum = 0 }"
    made = pipeline.to_program(pipeline.to_spec(Source("spec", text), {}))
    interpreter = Interpreter(made, PARAMETERS, 1, 3, [np.arange(SIZE) / 10.0], Descent())
    plain = np.arange(SIZE) / 10.0
    for _ in range(20):
        interpreter.iterate([[interpreter.weights[0][0] - pulls(1)[0]]])
        plain = plain - RATE * (plain - pulls(1)[0])
    np.testing.assert_allclose(interpreter.weights[0][0], plain, rtol=1e-12)
