"""What the host decides before an iteration: guards, the numbers that they depend on, and which truths they can
have."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from relaxc.language.diagnostics import Label
from relaxc.language.source import Span
from relaxc.program.ir import ASYNC, Assign, Constant, Let
from relaxc.program.passes.items import Block, Item
from relaxc.program.passes.normal import Normal, refuse
from relaxc.program.paths import Control, Guard, SetNumber
from relaxc.program.reads import reads

MOST_PATHS = 64


def control_of(normal: Normal, span: Span | None) -> Control:
    """Raise SpecError where a guard depends on a number that an `after` has of its launch."""
    steps = _steps(normal, normal.items, -1)
    needed: set[str] = set()
    open_ = {n for step in steps if isinstance(step, Guard) and step.period for n in reads(step.period)}
    while open_:
        needed |= (name := {open_.pop()})
        open_ |= {n for s in steps if isinstance(s, SetNumber) and s.name in name for n in reads(s.value)} - needed
    captured = {n for c in _captured(normal.items) for n in c}
    if taken := sorted(captured & needed):
        raise refuse("RX0342", f"whether a block runs depends on `{taken[0]}` of an earlier iteration", span)
    return tuple(s for s in steps if isinstance(s, Guard) or s.name in needed)


def _captured(items: tuple[Item, ...]) -> list[tuple[str, ...]]:
    blocks = [item for item in items if isinstance(item, Block)]
    return [b.captured.numbers for b in blocks] + [c for b in blocks for c in _captured(b.body)]


def _steps(normal: Normal, items: tuple[Item, ...], guard: int) -> list[Guard | SetNumber]:
    """Everything that is a number, in text order."""
    steps: list[Guard | SetNumber] = []
    for item in items:
        match item:
            case Let(name=name, value=value) if normal.shapes[name] == "number":
                steps.append(SetNumber(name, value, guard))
            case Assign(name=name, value=value) if normal.shapes[name] == "number":
                steps.append(SetNumber(name, value, guard))
            case Block(guard=number, body=body):
                inside = [normal.guards[number]]
                inside += [normal.guards[number + 1]] if inside[0].delay == ASYNC else []
                steps += [*inside, *_steps(normal, body, number)]
    return steps


def combinations(guards: list[Guard], places: Sequence[Span]) -> list[tuple[bool, ...]]:
    """The truths that guards can have together. Raise SpecError (RX0340) where there are too many."""
    if (count := _count(guards, -1)) > MOST_PATHS:
        message = f"too many combinations of every, phase and after: {count}; at most {MOST_PATHS}"
        also = [Label(use, "run here") for use in places[1:]]
        span = places[0] if places else None
        raise refuse("RX0340", message, span, "nest blocks, or give them one period", also)
    found: list[tuple[tuple[bool, ...], dict[int, int]]] = [((), {})]
    for guard in guards:
        found = [extended for truths, moments in found for extended in _extended(guard, guards, truths, moments)]
    return [truths for truths, _ in found]


def _extended(
    guard: Guard, guards: list[Guard], truths: tuple[bool, ...], moments: dict[int, int]
) -> list[tuple[tuple[bool, ...], dict[int, int]]]:
    """`moments`: for a block with phases, the run that it has reached, one for all of its phases."""
    if guard.kind != "land" and guard.parent >= 0 and not truths[guard.parent]:
        return [((*truths, False), moments)]
    if guard.kind == "launch" and truths[-1]:  # right behind its landing
        return [((*truths, False), moments)]
    if guard.kind != "phase":
        return [((*truths, truth), moments) for truth in _free(guard)]
    tried = [moments[guard.parent]] if guard.parent in moments else _moments(guards, guard.parent)
    return [((*truths, _on(guard, moment)), {**moments, guard.parent: moment}) for moment in tried]


def _free(guard: Guard) -> tuple[bool, ...]:
    always = guard.kind == "every" and isinstance(guard.period, Constant) and guard.period.value <= 1
    return (True,) if always else (True, False)


def _on(phase: Guard, moment: int) -> bool:
    return phase.first <= moment and (phase.end is None or moment < phase.end)


def _moments(guards: list[Guard], parent: int) -> list[int]:
    """One run for each set of phases that are on together."""
    phases = [g for g in guards if g.kind == "phase" and g.parent == parent]
    borders = {0} | {g.first for g in phases} | {g.end for g in phases if g.end is not None}
    seen: dict[tuple[bool, ...], int] = {}
    for moment in sorted(borders):
        seen.setdefault(tuple(_on(g, moment) for g in phases), moment)
    return list(seen.values())


def _count(guards: list[Guard], parent: int) -> int:
    """How many combinations there are inside of a block that runs, and of what lands there."""
    inside = [n for n, g in enumerate(guards) if g.parent == parent]
    free = prod(
        _count(guards, n) if len(_free(guards[n])) == 1 else _count(guards, n) + _other(guards, n)
        for n in inside
        if guards[n].kind not in ("phase", "launch")
    )
    phases = [n for n in inside if guards[n].kind == "phase"]
    if not phases:
        return free
    return free * sum(
        prod(_count(guards, n) if _on(guards[n], moment) else _idle(guards, n) for n in phases)
        for moment in _moments(guards, parent)
    )


def _other(guards: list[Guard], number: int) -> int:
    """Where a block does not run; where an async block does not land, it may be launched."""
    return _idle(guards, number) * (2 if guards[number].delay == ASYNC else 1)


def _idle(guards: list[Guard], parent: int) -> int:
    """The same inside of a block that does not run: only landings are free there."""
    inside = [n for n, g in enumerate(guards) if g.parent == parent]
    return prod(_count(guards, n) + _idle(guards, n) if guards[n].kind == "land" else _idle(guards, n) for n in inside)
