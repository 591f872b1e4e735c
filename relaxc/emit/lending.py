"""Which fragments need not copy what they send: the weight itself is the message, and its memory can be lent.

That takes that nothing writes the weight before its messages have landed. Fragments that do stand in the paths. The
user's optimiser writes it between `before` and `after`; the user's own changes behind the step are refused where a tail
is to come (attach/clock.py), and earlier ones are not, so only what leaves behind the step is lent.
"""

from __future__ import annotations

from collections.abc import Iterator

from relaxc.program.codec import EXACT
from relaxc.program.ir import Read
from relaxc.program.paths import Fragment, Operation, Path, PathBody

WEIGHT = "weight"
BEHIND_STEP = ("after", "tail")


def lends(body: PathBody, number: int) -> bool:
    """Whether the messages of fragment `number` may be the weight's memory, where that is of the arithmetic type."""
    fragment = body.fragments[number]
    return _sends_weight(body, fragment) and all(
        _lands_unchanged(body, list(_behind_step(path)), number) for path in body.paths if _computes(path, number)
    )


def _sends_weight(body: PathBody, fragment: Fragment) -> bool:
    """As it is, and does nothing else."""
    if fragment.sends is None or fragment.value != Read(WEIGHT) or fragment.stores:
        return False
    transfer = body.transfers[fragment.sends]
    exact = transfer.exchange.codec == EXACT and transfer.exchange.feedback == "none"
    return exact and (transfer.leaves, transfer.lands) == ("code", "code") and not transfer.asynchronous


def _computes(path: Path, number: int) -> bool:
    return any(o.kind == "compute" and o.number == number for _, stage in path.stages for o in stage)


def _behind_step(path: Path) -> Iterator[Operation]:
    return (operation for stage in BEHIND_STEP for operation in path.stage(stage))


def _lands_unchanged(body: PathBody, operations: list[Operation], number: int) -> bool:
    """Whether the fragment stands among these, and what decodes its messages behind it is the first to write."""
    computed = [o.number for o in operations if o.kind == "compute"]
    if number not in computed:
        return False
    for later in computed[computed.index(number) + 1 :]:
        if body.fragments[later].receives == body.fragments[number].sends:
            return True
        if any(store.target == WEIGHT for store in body.fragments[later].stores):
            return False
    return False
