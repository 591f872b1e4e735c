"""Before anything is exchanged: do all workers mean the same?

A message larger than its receive aborts the process, uncatchably, on the backend's own thread; this comparison is the
only defence, so it covers every size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

import relaxc
from relaxc.attach.fitting import FittedPrograms
from relaxc.attach.groups import Groups, lost
from relaxc.attach.parameters import ModelParameters
from relaxc.errors import ExchangeError, RelaxError
from relaxc.manifest import Manifest
from relaxc.schedule.actions import Piece
from relaxc.schedule.schedule import Schedule

Facts = Mapping[str, Any]
"""In the order in which they are compared; each is a value, or a list of which the first differing item is named."""


def facts_of(
    manifest: Manifest, model: torch.nn.Module, read: ModelParameters, schedule: Schedule, fitted: FittedPrograms,
    settings: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    return {
        "version of relaxc": relaxc.__version__,
        "version of torch": str(torch.__version__),
        "plan": f"{manifest.spec} ({manifest.hash[:12]})",
        "setting": [f"{k} = {v}" for k, v in settings.items()],
        "parameter": [
            f"{p.name} {p.dtype}{list(p.shape)} stride {list(t.stride())}"
            for p, t in zip(read.parameters, read.tensors, strict=True)
        ],
        "frozen parameter": [f"{name} {t.dtype}{list(t.shape)}" for name, t in read.frozen],
        "buffer": [f"{name} {b.dtype}{list(b.shape)}" for name, b in model.named_buffers()],
        "bucket": [f"{b.dtype} {list(b.parameters)}" for b in schedule.buckets],
        "group of the optimizers": [
            f"{p.name} {place.optimizer}.{place.group}" for p, place in zip(read.parameters, fitted.placed, strict=True)
        ],
        "bucket of a program": [f"{b.dtype} {list(b.parameters)}" for b in fitted.buckets],
        "all-reduce of a program": [str(size) for size in fitted.dense],
    }


def messages_of(pieces: Iterable[Piece]) -> dict[str, dict[int, list[tuple[int, int]]]]:
    """By direction and peer: (tag, bytes) of each message, in the order of tags: that of sending may be another than
    that of receiving."""
    result: dict[str, dict[int, list[tuple[int, int]]]] = {"send": {}, "receive": {}}
    for piece in pieces:
        for phase in piece.phases:
            for action in phase:
                if action.kind in result:
                    entry = (action.tag, piece.buffers[action.buffer])
                    result[action.kind].setdefault(action.peer, []).append(entry)
    return {kind: {peer: sorted(found) for peer, found in of.items()} for kind, of in result.items()}


def agree(groups: Groups, facts: Facts | RelaxError, messages: Mapping[str, Any]) -> None:
    """Raise ExchangeError (RX0601) on every worker, naming the first difference. `facts` is this worker's refusal
    where it has one: then all workers end with it."""
    mine = (
        {"refusal": str(facts), "rank": groups.rank} if isinstance(facts, RelaxError) else {"facts": facts, **messages}
    )
    try:
        gathered = groups.gather(mine)
    except RuntimeError as error:
        raise lost(groups.rank, error) from error
    if isinstance(facts, RelaxError):
        raise facts
    _raise_refusals(gathered)
    _compare_facts([g["facts"] for g in gathered])
    _compare_messages(gathered)


def agree_with(run: Facts, facts: Facts, rank: int) -> None:
    """The same for one that comes to a run: what its workers have agreed on."""
    for what, value in facts.items():
        difference = _difference(run.get(what), value)
        if difference:
            raise ExchangeError(
                "RX0601", f"the workers differ in {what}: the run has {difference[0]}, rank {rank} has {difference[1]}",
                "start it again with the plan, model and versions of the others",
            )  # fmt: skip


def _raise_refusals(gathered: Sequence[Mapping[str, Any]]) -> None:
    for other in gathered:
        if "refusal" in other:
            raise ExchangeError("RX0601", f"attach was refused on rank {other['rank']}: {other['refusal']}")


def _compare_facts(all_facts: Sequence[Facts]) -> None:
    first = all_facts[0]
    for what in first:
        for rank, facts in enumerate(all_facts):
            difference = _difference(first[what], facts.get(what))
            if difference:
                raise ExchangeError(
                    "RX0601",
                    f"the workers differ in {what}: rank 0 has {difference[0]}, rank {rank} has {difference[1]}",
                    "give every worker the same plan, model and versions",
                )  # fmt: skip


def _difference(left: Any, right: Any) -> tuple[str, str] | None:
    if left == right:
        return None
    if isinstance(left, list):
        length = max(len(left), len(right))
        pairs = ((_item(left, i), _item(right, i)) for i in range(length))
        return next(pair for pair in pairs if pair[0] != pair[1])
    return str(left), str(right)


def _item(items: Sequence[str], index: int) -> str:
    return items[index] if index < len(items) else "none"


def _compare_messages(gathered: Sequence[Mapping[str, Any]]) -> None:
    for sender, mine in enumerate(gathered):
        for receiver, theirs in enumerate(gathered):
            if mine["send"].get(receiver, []) != theirs["receive"].get(sender, []):
                raise ExchangeError("RX0601", f"ranks {sender} and {receiver} differ in the sizes of their messages")
