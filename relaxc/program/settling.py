"""Does what workers disagree about die out, and does what a code loses? Found by following a push through the body's
linear recurrence (linear.py), in plain Python: matrices are of the size of the states."""

from __future__ import annotations

from enum import Enum
from math import log2

from relaxc.program.agreement import phases_of
from relaxc.program.ir import Body, Encode, Exchange
from relaxc.program.linear import Iteration, Unjudged, cycle, iteration, reads_time, variables
from relaxc.topology.topology import Topology

Matrix = list[list[complex]]

SQUARINGS = 20
"""A push is followed for 2^20 cycles of blocks: what is left then of a factor of 1 - 1e-5 is nothing."""
FORGOTTEN = 1e-6
"""What is left of a push when it has died out."""
GROWN = 1e-4
"""The least logarithm of a factor that counts as growth."""
MIDDLE = 0.5
"""An eigenvalue that every topology has or comes near to, for some number of workers."""
NEAR_LOWEST = -0.9999
BELOW_ALL = -2.0
"""Lower than any eigenvalue."""
PRECISION = 1e-5
"""To which the lowest eigenvalue is found."""
SINCE, FOR = 100, 64
"""The iteration in which a loss is tried, and for how many cycles it is followed."""
KEPT = 0.01


class Fate(Enum):
    """Of a push: it dies out, stays as large as it is, or grows."""

    SETTLES = 0
    STAYS = 1
    GROWS = 2


def judged_topology(body: Body) -> Topology | None:
    """The topology of all mixes, where there is one."""
    found = {e.topology for e in _exchanges(body) if e.kind == "mix"}
    return found.pop() if len(found) == 1 else None


def fate(body: Body, mode: complex) -> Fate | None:
    """Of a disagreement in the eigenvector of W with eigenvalue `mode`, in the worst of the body's phases that mix;
    None where that can't be said."""
    if reads_time(body):
        return None
    try:
        fates = [_fate(body, phase, mode) for phase in phases_of(body.statements) if _mixes(body, phase)]
    except Unjudged:
        return None
    return max(fates, key=lambda f: f.value, default=None)


def lowest(body: Body) -> float | None:
    """The eigenvalue of W above which disagreements die out; -1 where all between -1 and 1 do, BELOW_ALL where -1 does
    too, 1 where none does, None where that can't be said."""
    worst, middle = fate(body, NEAR_LOWEST), fate(body, MIDDLE)
    if worst is None or middle is None:
        return None
    if middle is not Fate.SETTLES:
        return 1.0
    if worst is Fate.SETTLES:
        return BELOW_ALL if fate(body, -1.0) is Fate.SETTLES else -1.0
    low, high = NEAR_LOWEST, MIDDLE
    while high - low > PRECISION:
        between = (low + high) / 2
        low, high = (low, between) if fate(body, between) is Fate.SETTLES else (between, high)
    return high


def lost_for_good(body: Body, encode: Encode) -> bool:
    """Whether what this code loses stays in weights, all workers losing the same."""
    try:
        return any(_stays(body, phase, f"+lost.{encode.place}") for phase in phases_of(body.statements))
    except Unjudged:
        return False


def _exchanges(body: Body) -> list[Exchange]:
    from relaxc.program.ir import exchanges

    return list(exchanges(body.statements))


def _mixes(body: Body, phase: str) -> bool:
    from relaxc.program.ir import Phase, exchanges

    inside = tuple(s for s in body.statements if not isinstance(s, Phase) or s.name == phase)
    return any(e.kind == "mix" for e in exchanges(inside))


# --- a push, followed


def _fate(body: Body, phase: str, mode: complex) -> Fate:
    whole, push = _cycled(body, phase, mode)
    if not push[0]:
        return Fate.SETTLES
    power, scale = whole, 0.0
    for _ in range(SQUARINGS):
        power, more = _normal(_times(power, power))
        scale = 2 * scale + more
    left = max(_weight(whole, _times(power, push)))
    if left == 0 or log2(left) + scale < log2(FORGOTTEN):
        return Fate.SETTLES
    return Fate.GROWS if (log2(left) + scale) / 2**SQUARINGS > GROWN else Fate.STAYS


def _weight(whole: Matrix, state: Matrix) -> list[float]:
    """How large weight is in this cycle and in the two after it: an oscillation may pass through zero."""
    found = []
    for _ in range(3):
        found.append(max(abs(x) for x in state[0]))
        state = _times(whole, state)
    return found


def _cycled(body: Body, phase: str, mode: complex) -> tuple[Matrix, Matrix]:
    """A whole cycle of the body's blocks, and what pushes in all of its iterations come to, each of another size so
    that they don't cancel."""
    names, known = variables(body), {}
    blocks = cycle(body, phase)
    for runs in blocks:
        if runs not in known:
            known[runs] = iteration(body, phase, runs, mode)
    inputs = sorted({name for one in known.values() for name in one.inputs() if not name.startswith("+lost")})
    whole = [[complex(i == j) for j in range(len(names))] for i in range(len(names))]
    push: Matrix = [[0j] * len(inputs) for _ in names]
    for number, runs in enumerate(blocks):
        step, pushed = _matrix(known[runs], names, names), _matrix(known[runs], names, inputs)
        size = 1 + (number * 0.618034) % 1
        whole = _times(step, whole)
        carried = _times(step, push)
        push = [[c + size * p for c, p in zip(*rows, strict=True)] for rows in zip(carried, pushed, strict=True)]
    return whole, push


def _stays(body: Body, phase: str, lost: str) -> bool:
    names, blocks, timed = variables(body), cycle(body, phase), reads_time(body)
    known: dict[object, Iteration] = {}
    state, largest = [[0j] for _ in names], 0.0
    for number in range(FOR * len(blocks)):
        runs = blocks[number % len(blocks)]
        key = (runs, number) if timed else runs
        if key not in known:
            known[key] = iteration(body, phase, runs, 1.0, float(SINCE + number))
        state = _times(_matrix(known[key], names, names), state)
        if number < len(blocks):
            lose = _matrix(known[key], names, [lost])
            state = [[a + b] for (a,), (b,) in zip(state, lose, strict=True)]
        largest = max(largest, abs(state[0][0]))
    return abs(state[0][0]) > KEPT * largest


# --- small matrices


def _matrix(one: Iteration, rows: tuple[str, ...], columns: tuple[str, ...] | list[str]) -> Matrix:
    return [[complex(one.after[row].get(column, 0)) for column in columns] for row in rows]


def _times(a: Matrix, b: Matrix) -> Matrix:
    columns = list(zip(*b, strict=True))
    return [[sum((x * y for x, y in zip(row, column, strict=True)), 0j) for column in columns] for row in a]


def _normal(a: Matrix) -> tuple[Matrix, float]:
    """The matrix with a largest element of 1, and the logarithm of what that took."""
    largest = max(abs(x) for row in a for x in row)
    if largest == 0:
        return a, 0.0
    return [[x / largest for x in row] for row in a], log2(largest)
