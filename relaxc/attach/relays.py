"""What relays hold from one round to the next: for each edge, what the neighbour sent last time.

It lives in messages, which the `hold` kernels of a relay write (wire/routes.py); a checkpoint sees it by neighbour and
parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from relaxc.attach.buffers import real_type
from relaxc.attach.calls import Site
from relaxc.attach.cohort import Cohort
from relaxc.attach.traffic import Link, Traffic
from relaxc.schedule.actions import Action, Piece

RELAY = "relay"


@dataclass(frozen=True)
class HeldEntry:
    """What a neighbour sent of one parameter: `parts` are views, in the order of elements."""

    key: str
    parts: list[torch.Tensor] = field(default_factory=list)

    def value(self) -> torch.Tensor:
        return torch.cat(self.parts).clone()

    def split(self, value: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Each part with its share of `value`."""
        yield from zip(self.parts, torch.split(value, [part.numel() for part in self.parts]), strict=True)

    @property
    def elements(self) -> int:
        return sum(part.numel() for part in self.parts)


def relays_of(site: Site) -> list[int]:
    """The transfers of a site that are relays."""
    return [n for n, transfer in enumerate(site.program.transfers) if transfer.exchange.kind == "relay"]


def held_entries(cohort: Cohort, traffic: Traffic) -> Iterator[HeldEntry]:
    for site in cohort.sites:
        for number in relays_of(site):
            link = traffic.link(site, number, cohort.partners[number].meet(0), 0)
            yield from _entries(site, number, link)


def key_of(number: int, peer: int, name: str) -> str:
    return f"{RELAY}/{number}.{peer}/{name}"


def _entries(site: Site, number: int, link: Link) -> Iterator[HeldEntry]:
    names = {p.number: p.name for p in site.members}
    found: dict[str, HeldEntry] = {}
    for piece, buffers in zip(link.schedule.pieces, link.buffers, strict=True):
        for peer, hold in _holds(piece):
            at = 0
            numbers = buffers[hold.buffer].view(real_type(site.bucket.dtype))
            for range in hold.ranges:
                key = key_of(number, peer, names[range.parameter])
                found.setdefault(key, HeldEntry(key)).parts.append(numbers[at : at + range.elements])
                at += range.elements
    yield from found.values()


def _holds(piece: Piece) -> Iterator[tuple[int, Action]]:
    """The copies that a piece makes, each with the neighbour that it is of."""
    actions: Sequence[Action] = [action for phase in piece.phases for action in phase]
    peers = {action.buffer: action.peer for action in actions if action.kind == "receive"}
    for action in actions:
        if action.kernel is not None and action.kernel.name == "hold":
            yield peers[action.inputs[0]], action
