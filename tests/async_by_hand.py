"""A plan that no compiler made, for `relax weights { topology = T, delay = async }`: weights are mixed in the background,
and what the mix made of the launch's is added to what they are when it has come."""

from __future__ import annotations

from typing import Any

import plans_by_hand as by_hand

from relaxc.attach.plan import Plan
from relaxc.manifest import (
    ControlPlan,
    FragmentPlan,
    KeptPlan,
    KernelPlan,
    Manifest,
    OperationPlan,
    PathPlan,
    ProgramPlan,
    TransferPlan,
)

BLOCK = 1


def _add(target: str, factor: float, other: str) -> FragmentPlan:
    kernel = KernelPlan("add", "fragment", "f32", (target, other))
    late = tuple(name for name in (target, other) if name in ("slot.0", "kept.0")) if target == "weight" else ()
    return FragmentPlan((kernel,), (factor,), (target,), None, None, late, "add")


FRAGMENTS = (
    _add("slot.0", -1.0, "slot.0"), _add("slot.0", 1.0, "weight"), _add("kept.0", -1.0, "kept.0"),
    _add("kept.0", 1.0, "weight"), _add("weight", 1.0, "slot.0"), _add("weight", -1.0, "kept.0"),
)  # fmt: skip


def _compute(*numbers: int) -> tuple[OperationPlan, ...]:
    return tuple(OperationPlan("compute", number, False, "") for number in numbers)


LAUNCH = {"begin": (*_compute(0, 1, 2, 3), OperationPlan("start", 0, False, ""))}
LAND = {"after": (OperationPlan("finish", 0, True, ""), *_compute(4, 5))}


def plan(kind: str = "mix", topology: Any = None, most: int = 0) -> Plan:
    """Of a mix, or of a mean or sum, which is all-reduced."""
    codec = by_hand.EXACT if kind == "mix" else None
    exchange = by_hand.exchange(kind, codec, topology=topology)
    control = (
        ControlPlan("land", -1, BLOCK, delay=-1, most=most), ControlPlan("launch", -1, BLOCK, delay=-1)
    )  # fmt: skip
    paths = (
        PathPlan((False, False), (), (), {}, True),
        PathPlan((False, True), (), (), LAUNCH, True),
        PathPlan((True, False), (), (), LAND, True),
    )
    program = ProgramPlan(
        (), control, (TransferPlan(exchange, "slot", "slot", BLOCK, 1, asynchronous=True),), (KeptPlan("tensor", 1),),
        FRAGMENTS, (), paths, (), landings=(PathPlan((True, False), (), (), LAND, False),),
    )  # fmt: skip
    made: Manifest = by_hand.manifest(by_hand.body(of=program, agreement="local"))
    return Plan(made, by_hand.library())
