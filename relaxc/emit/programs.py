"""The paths of a body as data of a plan, its fragments as kernels."""

from __future__ import annotations

from collections.abc import Iterator

from relaxc.emit.exchanges import Kernels, slot_exchange
from relaxc.emit.fragment import build_fragment
from relaxc.emit.kernel import real_of
from relaxc.emit.lending import lends
from relaxc.emit.numbers import plain
from relaxc.manifest import (
    ControlPlan,
    FragmentPlan,
    KeptPlan,
    OperationPlan,
    PathPlan,
    ProgramPlan,
    StatePlan,
    TransferPlan,
)  # fmt: skip
from relaxc.program.ir import Apply, Expression, Optimizer, State, within
from relaxc.program.paths import STORED, Fragment, Guard, Path, PathBody, SetNumber, Transfer, expressions
from relaxc.topology.topology import to_plain

FRAGMENT = "fragment"


def program_plan(body: PathBody, kernels: Kernels) -> ProgramPlan:
    initial = {store.target for n in body.start for store in body.fragments[n].stores}
    return ProgramPlan(
        states=tuple(_state(state, initial) for state in body.states),
        control=tuple(_control(entry) for entry in body.control),
        transfers=tuple(_transfer(transfer, kernels) for transfer in body.transfers),
        kept=tuple(KeptPlan(k.shape, k.copies) for k in body.kept),
        fragments=tuple(_fragment(body, number, kernels) for number in range(len(body.fragments))),
        start=body.start,
        paths=tuple(_path(path) for path in body.paths),
        settings=tuple(sorted({o.name for o in _optimizers(body) if not o.tensor})),
        owns=tuple((to_plain(topology), block) for topology, block in body.owns),
        landings=tuple(_path(path) for path in body.landings),
    )


def _state(state: State, computed: set[str]) -> StatePlan:
    return StatePlan(state.name, state.shape, None if state.name in computed else plain(state.initial))


def _control(entry: Guard | SetNumber) -> ControlPlan:
    if isinstance(entry, SetNumber):
        return ControlPlan("set", entry.guard, value=plain(entry.value), name=entry.name)
    period = None if entry.period is None else plain(entry.period)
    return ControlPlan(
        entry.kind, entry.parent, entry.block, entry.how, period, entry.first, entry.end, entry.delay, most=entry.most
    )  # fmt: skip


def _transfer(transfer: Transfer, kernels: Kernels) -> TransferPlan:
    exchange = slot_exchange(transfer, kernels)
    return TransferPlan(
        exchange, transfer.leaves, transfer.lands, transfer.block, transfer.copies, transfer.shape,
        transfer.asynchronous,
    )  # fmt: skip


def _path(path: Path) -> PathPlan:
    return PathPlan(
        guards=path.guards,
        numbers=tuple((name, plain(value)) for name, value in path.numbers),
        states=path.states,
        stages={
            name: tuple(OperationPlan(o.kind, o.number, o.late, o.why) for o in operations)
            for name, operations in path.stages
        },
        steps=path.steps,
        captures=tuple((block, name, plain(value)) for block, name, value in path.captures),
    )


# --- fragments


def _fragment(body: PathBody, number: int, kernels: Kernels) -> FragmentPlan:
    fragment = body.fragments[number]
    first = build_fragment("", body, fragment, "f32")
    made = {"f32": first.kernel}
    plans = []
    for dtype in kernels.dtypes:
        type = dtype if first.own_type or _rounds(fragment) else real_of(dtype)
        if type not in made:
            made[type] = build_fragment("", body, fragment, type).kernel
        plans.append(kernels.plan(FRAGMENT, dtype, made[type]))
    return FragmentPlan(
        kernels=tuple(plans), numbers=first.numbers, writes=tuple(dict.fromkeys(s.target for s in fragment.stores)),
        sends=fragment.sends, receives=fragment.receives, late=fragment.late, label=label(fragment),
        lends=lends(body, number),
    )  # fmt: skip


def _rounds(fragment: Fragment) -> bool:
    """Whether a value is rounded to the parameter's type on its way, though no tensor of that type is touched."""
    return any(isinstance(e, Apply) and e.function == STORED for value in expressions(fragment) for e in within(value))


def label(fragment: Fragment) -> str:
    """What a profiler calls it."""
    if fragment.sends is not None:
        return "encode"
    if fragment.receives is not None:
        return "decode"
    return "measure" if fragment.measures else "update"


# --- what is read of the user's optimiser


def _optimizers(body: PathBody) -> Iterator[Optimizer]:
    for e in _expressions(body):
        yield from (part for part in within(e) if isinstance(part, Optimizer))


def _expressions(body: PathBody) -> Iterator[Expression]:
    yield from (state.initial for state in body.states)
    for entry in body.control:
        value = entry.value if isinstance(entry, SetNumber) else entry.period
        if value is not None:
            yield value
    for path in (*body.paths, *body.landings):
        yield from (value for _, value in path.numbers)
        yield from (value for _, _, value in path.captures)
    for fragment in body.fragments:
        yield from expressions(fragment)
