"""The fragments that compute at attach what states begin with. Number states are the host's."""

from __future__ import annotations

from relaxc.program.ir import Apply, Expression, Let, Read, Reduce, State
from relaxc.program.paths import Fragment, Store
from relaxc.program.reads import reads


def start_fragments(states: tuple[State, ...]) -> list[Fragment]:
    """One for runs of states of one shape; a state that reads one of its own run sees what that run has computed."""
    runs: list[list[State]] = []
    for state in (s for s in states if s.shape != "number"):
        if runs and runs[-1][-1].shape == state.shape and not (state.shape == "cell" and _reads_any(state, runs[-1])):
            runs[-1].append(state)
        else:
            runs.append([state])
    return [_fragment(run) for run in runs]


def _reads_any(state: State, run: list[State]) -> bool:
    return bool(reads(state.initial) & {s.name for s in run})


def _fragment(run: list[State]) -> Fragment:
    read_later = {n for s in run for n in reads(s.initial)} & {s.name for s in run}
    lets, stores, seen = [], [], frozenset[str]()
    for state in run:
        value = _renamed(state.initial, seen)
        if state.name in read_later:
            lets.append(Let(f"{state.name}@1", value))
            value = Read(f"{state.name}@1")
            seen |= {state.name}
        stores.append(Store(state.name, value))
    return Fragment(tuple(lets), tuple(stores), measures=run[0].shape == "cell")


def _renamed(e: Expression, seen: frozenset[str]) -> Expression:
    match e:
        case Read(name=name):
            return Read(f"{name}@1" if name in seen else name)
        case Apply(function=function, arguments=arguments):
            return Apply(function, tuple(_renamed(a, seen) for a in arguments))
        case Reduce(function=function, argument=argument):
            return Reduce(function, _renamed(argument, seen))
    return e
