"""Each algorithm of the library against code that shares nothing with relaxc: plain torch in float64, the workers simulated
in one process, from the papers' update rules. What is drawn at random is taken from the plan's own draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from pool import Pool

from relaxc.emit.plan import SEED
from relaxc.topology.topology import Topology
from relaxc.topology.weights import weights as mixing_weights
from relaxc.wire.dither import message_key, parameter_keys
from relaxc.wire.draws import geometric

STEPS, RATE, MOMENTUM = 30, 0.05, 0.9
SHAPES = ((40, 30), (7,), (1,))
"""A parameter of several blocks, one of a part of a block, one of a single element."""


def problem(rank: int, number: int) -> tuple[Any, Any]:
    """Worker `rank`'s loss of parameter `number` is sum(a * (w - b)^2) / 2: (a, b)."""
    import torch

    draw = torch.Generator().manual_seed(1000 * rank + number)
    shape = SHAPES[number]
    return 0.5 + torch.rand(shape, generator=draw, dtype=torch.float64), torch.randn(shape, generator=draw).double()


def start(number: int) -> Any:
    import torch

    return torch.randn(SHAPES[number], generator=torch.Generator().manual_seed(7 + number)).double()


def train(rank: int, workers: int, spec: str, momentum: float) -> list[list[Any]]:
    """The plan at work: the weights after each step."""
    import torch

    import relaxc

    model = torch.nn.ParameterList([start(number) for number in range(len(SHAPES))])
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=momentum)
    relaxed = relaxc.compile(spec).attach(model, optimizer, timeout=60)
    made = []
    for _ in range(STEPS):
        loss = torch.zeros((), dtype=torch.float64)
        for number, weight in enumerate(model):
            a, b = problem(rank, number)
            loss = loss + (a * (weight - b) ** 2).sum() / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.state_dict()  # whoever reads the weights sees them complete
        made.append([weight.detach().clone().numpy() for weight in model])
    relaxed.detach()
    return made


# --- the simulated workers


class Worker:
    """One worker's share of one parameter, with torch's SGD with momentum."""

    def __init__(self, rank: int, number: int, momentum: float) -> None:
        self.rank, self.number, self.momentum = rank, number, momentum
        self.weight = start(number)
        self.a, self.b = problem(rank, number)
        self.buffer: Any = None

    @property
    def gradient(self) -> Any:
        return self.a * (self.weight - self.b)

    def step(self, gradient: Any) -> None:
        self.buffer = gradient if self.buffer is None else self.momentum * self.buffer + gradient
        self.weight = self.weight - RATE * (self.buffer if self.momentum else gradient)


Team = list[Worker]
Rule = Callable[[Team], Iterator[None]]
"""A generator: it carries out one iteration each time that it is resumed."""


def simulate(rule: Rule, workers: int, momentum: float) -> list[list[list[Any]]]:
    """By worker, step and parameter."""
    made: list[list[list[Any]]] = [[[] for _ in range(STEPS)] for _ in range(workers)]
    for number in range(len(SHAPES)):
        team = [Worker(rank, number, momentum) for rank in range(workers)]
        running = rule(team)
        for step in range(STEPS):
            next(running)
            for rank, worker in enumerate(team):
                made[rank][step].append(worker.weight.clone().numpy())
    return made


def ring(workers: int) -> Any:
    """Each of up to two neighbours and oneself alike."""
    import torch

    matrix = torch.zeros(workers, workers, dtype=torch.float64)
    for i in range(workers):
        near = {i, (i - 1) % workers, (i + 1) % workers}
        matrix[i, list(near)] = 1 / len(near)
    return matrix


def mixed(matrix: Any, values: list[Any]) -> list[Any]:
    return [sum(float(matrix[i, j]) * values[j] for j in range(len(values))) for i in range(len(values))]


def average(values: list[Any]) -> Any:
    return sum(values) / len(values)


# --- codecs, on a flat vector


def in_blocks(code: Callable[[Any, int], Any], size: int, x: Any) -> Any:
    import torch

    flat = x.reshape(-1)
    return torch.cat([code(part, size * n) for n, part in enumerate(flat.split(size))]).reshape(x.shape)


def signs(x: Any) -> Any:
    """Signs times the mean magnitude in each 2048 elements; the magnitude travels in f32."""
    return in_blocks(lambda part, _: part.abs().mean().float().double() * ((part >= 0).double() * 2 - 1), 2048, x)


def minmax8(x: Any) -> Any:
    """256 levels between the least and the greatest of each 512 elements."""

    def code(part: Any, _: int) -> Any:
        low = part.min().float().double()
        scale = ((part.max() - low) / 255).float().double()
        level = ((part - low) / scale).nan_to_num(0).round().clamp(0, 255) if scale else 0 * part
        return low + level * scale

    return in_blocks(code, 512, x)


def uniform(t: int, place: int, rank: int, number: int, count: int, first: int) -> Any:
    """The plan's own draws in [0, 1) for `count` elements from `first`: lowbias32 of the element under two keys."""
    import torch

    key0, key1 = parameter_keys(message_key(SEED, t, place, rank), number)

    def mix(h: Any) -> Any:
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D)
        h = (h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B)
        return h ^ (h >> np.uint32(16))

    with np.errstate(over="ignore"):
        low = np.arange(first, first + count, dtype=np.uint64).astype(np.uint32)
        bits = mix(mix(low ^ np.uint32(key0)) + np.uint32(key1))
    return torch.from_numpy((bits >> np.uint32(8)).astype(np.float64) / 2**24)


def qsgd(bits: int, x: Any, t: int, place: int, rank: int, number: int) -> Any:
    """Levels of the norm of each 512 elements, rounded at random; the norm travels in f32."""
    top = 2 ** (bits - 1) - 1

    def code(part: Any, first: int) -> Any:
        size = part.norm().float().double()
        if size == 0:
            return 0 * part
        level = (part / size * top + uniform(t, place, rank, number, len(part), first)).floor()
        return size * level.clamp(-top - 1, top) / top

    return in_blocks(code, 512, x)


EVERYONE = 0xFFFFFFFF


# --- the papers' rules


def allreduce(team: Team) -> Iterator[None]:
    while True:
        gradient = average([w.gradient for w in team])
        for worker in team:
            worker.step(gradient)
        yield


def two_roundings(code: Callable[[Any, int, int, int], Any], team: Team) -> Iterator[None]:
    """Each contribution is coded, and their mean once more. code(x, iteration, place, who)."""
    t = 0
    while True:
        shares = [code(w.gradient, t, 0, w.rank) for w in team]
        result = code(average(shares), t, 1, EVERYONE)
        for worker in team:
            worker.step(result)
        t += 1
        yield


def bytegrad(team: Team) -> Iterator[None]:
    return two_roundings(lambda x, *_: minmax8(x), team)


def qsgd_gradients(team: Team) -> Iterator[None]:
    return two_roundings(lambda x, t, place, who: qsgd(4, x, t, place, who, team[0].number), team)


def delayed_sgd(team: Team) -> Iterator[None]:
    late = None
    while True:
        fresh = average([w.gradient for w in team])
        if late is not None:
            for worker in team:
                worker.step(late)
        late = fresh
        yield


def one_bit_adam(team: Team, warmup: int = 10) -> Iterator[None]:
    """Tang 2021, with both errors; the learning rate is the optimiser's."""
    m, v = 0 * team[0].weight, 0 * team[0].weight
    lost, lost_by_owner = [0 * m for _ in team], 0 * m
    t = 0
    while True:
        if t < warmup:
            gradient = average([w.gradient for w in team])
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        else:
            codes = []
            for worker in team:
                wanted = 0.9 * m + 0.1 * worker.gradient + lost[worker.rank]
                codes.append(signs(wanted))
                lost[worker.rank] = wanted - codes[-1]
            wanted = average(codes) + lost_by_owner
            m = signs(wanted)
            lost_by_owner = wanted - m
        for worker in team:
            worker.weight = worker.weight - RATE * m / (v.sqrt() + 1e-8)
        t += 1
        yield


def qadam(team: Team, warmup: int = 10) -> Iterator[None]:
    """Bagua's: torch's Adam while warming up, then v frozen with its correction, and m averaged in 8 bits on both legs."""
    import torch

    weight = torch.nn.Parameter(team[0].weight.clone())
    adam = torch.optim.Adam([weight], RATE)
    t = 0
    while True:
        t += 1
        if t <= warmup:
            weight.grad = average([w.gradient for w in team])
            adam.step()
            m, v = adam.state[weight]["exp_avg"].clone(), adam.state[weight]["exp_avg_sq"].clone()
            moved = weight.detach().clone()
        else:
            m = minmax8(average([minmax8(0.9 * m + 0.1 * w.gradient) for w in team]))
            step = RATE / (1 - 0.9**t) * m / ((v / (1 - 0.999**warmup)).sqrt() + 1e-8)
            moved = team[0].weight - step
        for worker in team:
            worker.weight = moved
        yield


def dpsgd(team: Team) -> Iterator[None]:
    while True:
        gradients = [w.gradient for w in team]
        for worker, weight in zip(team, mixed(ring(len(team)), [w.weight for w in team]), strict=True):
            worker.weight = weight
            worker.step(gradients[worker.rank])
        yield


def dpsgd_atc(team: Team) -> Iterator[None]:
    while True:
        for worker in team:
            worker.step(worker.gradient)
        for worker, weight in zip(team, mixed(ring(len(team)), [w.weight for w in team]), strict=True):
            worker.weight = weight
        yield


def dcd_psgd(team: Team) -> Iterator[None]:
    """Tang 2018 with a replica of each neighbour: y = sum_j W_ij r_j + update; q = C(y - x); x += q; r_j += q_j."""
    matrix, replicas = ring(len(team)), [w.weight for w in team]
    t = 0
    while True:
        around, codes = mixed(matrix, replicas), []
        for worker in team:
            before = worker.weight
            worker.step(worker.gradient)
            y = around[worker.rank] + (worker.weight - before)
            codes.append(qsgd(8, y - before, t, 0, worker.rank, worker.number))
            worker.weight = before + codes[-1]
        replicas = [r + q for r, q in zip(replicas, codes, strict=True)]
        t += 1
        yield


def choco(team: Team) -> Iterator[None]:
    """Koloskova 2019, algorithm 2, with a replica of each neighbour: x += gamma sum_j W_ij (r_j - r_i)."""
    matrix, replicas = ring(len(team)), [0 * w.weight for w in team]
    while True:
        for worker in team:
            worker.step(worker.gradient)
        replicas = [r + signs(w.weight - r) for r, w in zip(replicas, team, strict=True)]
        around = mixed(matrix, replicas)
        for worker in team:
            worker.weight = worker.weight + 0.4 * (around[worker.rank] - replicas[worker.rank])
        yield


def local_sgd(team: Team, period: int = 8) -> Iterator[None]:
    t = 0
    while True:
        t += 1
        for worker in team:
            worker.step(worker.gradient)
        if t % period == 0:
            weight = average([w.weight for w in team])
            for worker in team:
                worker.weight = weight
        yield


def post_local_sgd(team: Team, begin: int = 12, period: int = 4) -> Iterator[None]:
    alone = local_sgd(team, period)
    for _ in range(begin):
        gradient = average([w.gradient for w in team])
        for worker in team:
            worker.step(gradient)
        yield
    yield from alone


def diloco(team: Team, period: int = 5) -> Iterator[None]:
    """The outer optimiser is torch's own Nesterov SGD."""
    import torch

    anchor = torch.nn.Parameter(team[0].weight.clone())
    outer = torch.optim.SGD([anchor], 0.7, momentum=0.9, nesterov=True)
    t = 0
    while True:
        t += 1
        for worker in team:
            worker.step(worker.gradient)
        if t % period == 0:
            anchor.grad = average([anchor.detach() - w.weight for w in team])
            outer.step()
            for worker in team:
                worker.weight = anchor.detach().clone()
        yield


def swarm_blocking(team: Team) -> Iterator[None]:
    """Pairs and moments are the plan's draws: pairs average."""
    t = met = 0
    while True:
        for worker in team:
            worker.step(worker.gradient)
        if geometric(SEED, 1, t, 4):
            pairs = [
                next((j for j, _ in mixing_weights(Topology("random_pairs"), len(team), met, SEED, i) if j != i), i)
                for i in range(len(team))
            ]
            assert all(pairs[pairs[i]] == i for i in range(len(team)))
            weights = [(team[i].weight + team[pairs[i]].weight) / 2 for i in range(len(team))]
            for worker in team:
                worker.weight = weights[worker.rank]
            met += 1
        t += 1
        yield


RULES: dict[str, tuple[str, Rule, float]] = {
    "allreduce": ("allreduce", allreduce, MOMENTUM),
    "bytegrad": ("bytegrad", bytegrad, MOMENTUM),
    "qsgd": ("qsgd", qsgd_gradients, MOMENTUM),
    "delayed_sgd": ("delayed_sgd", delayed_sgd, MOMENTUM),
    "one_bit_adam": ("relax with one_bit_adam { warmup = 10 }", one_bit_adam, 0),
    "qadam": ("relax with qadam { warmup = 10 }", qadam, 0),
    "dpsgd": ("dpsgd", dpsgd, MOMENTUM),
    "dpsgd_atc": ("dpsgd_atc", dpsgd_atc, MOMENTUM),
    "dcd_psgd": ("dcd_psgd", dcd_psgd, MOMENTUM),
    "choco": ("choco", choco, MOMENTUM),
    "local_sgd": ("local_sgd", local_sgd, MOMENTUM),
    "post_local_sgd": ("relax with post_local_sgd { start = 12, period = 4 }", post_local_sgd, MOMENTUM),
    "diloco": ("relax with diloco { period = 5 }", diloco, MOMENTUM),
    "swarm_blocking": ("swarm_blocking", swarm_blocking, MOMENTUM),
}


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("name", RULES)
def test_an_algorithm_trains_as_its_paper_says(pool: Pool, name: str, workers: int) -> None:
    spec, rule, momentum = RULES[name]
    expected = simulate(rule, workers, momentum)
    for rank, found in enumerate(pool.run(train, workers, spec, momentum)):
        for step, (weights, wanted) in enumerate(zip(found, expected[rank], strict=True)):
            for number, (weight, right) in enumerate(zip(weights, wanted, strict=True)):
                difference = np.abs(weight - right).max() / np.abs(right).max()
                assert difference < 1e-9, f"rank {rank}, step {step}, parameter {number}: {difference}"


def test_a_rule_that_is_slightly_wrong_is_noticed() -> None:
    """The tolerance separates a rule from its neighbours: dpsgd from its adapt-then-combine form."""
    one, other = simulate(dpsgd, 3, MOMENTUM), simulate(dpsgd_atc, 3, MOMENTUM)
    assert np.abs(one[0][-1][0] - other[0][-1][0]).max() > 1e-3
