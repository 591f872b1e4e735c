"""Where messages know no tags: what leaves in a phase is what is waited for in the next one, in one order between two, in
pieces and phases that are the same on all workers. What NCCL needs of a group of messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest
from plans_of import manifest_of

from relaxc.attach.partners import Partners
from relaxc.manifest import Manifest, TransferPlan
from relaxc.resources import folder
from relaxc.schedule.actions import Piece
from relaxc.schedule.schedule import make_schedule
from relaxc.schedule.transfers import schedule_transfer
from relaxc.topology.kinds import refusal
from relaxc.topology.topology import from_plain
from relaxc.wire.parameters import Parameter

SPECS = sorted(path.stem for path in folder("specs").glob("*.relax"))
PARAMETERS = [
    Parameter(0, "a.weight", (130, 70), "f32"),
    Parameter(1, "a.bias", (70,), "f32"),
    Parameter(2, "b", (), "f32"),
]
WORKERS = (2, 3, 4, 8)
ROUNDS = 6
Groups = dict[tuple[int, int, int, int], list[int]]
"""Bytes of the messages of (piece, phase, from, to), in order."""


def messages(pieces: Sequence[Piece], rank: int, sent: Groups, received: Groups) -> list[int]:
    for number, piece in enumerate(pieces):
        for phase, actions in enumerate(piece.phases):
            for action in actions:
                size = piece.buffers[action.buffer]
                if action.kind == "send":
                    sent[number, phase, rank, action.peer].append(size)
                if action.kind == "receive":
                    received[number, phase - 1, action.peer, rank].append(size)
    return [len(piece.phases) for piece in pieces]


def agree(world: Sequence[Sequence[Piece]]) -> int:
    sent, received = defaultdict(list), defaultdict(list)
    shapes = [messages(pieces, rank, sent, received) for rank, pieces in enumerate(world)]
    assert all(shape == shapes[0] for shape in shapes)
    assert sent == received
    return len(sent)


def transfer_pieces(manifest: Manifest, transfer: TransferPlan, workers: int, rank: int, round: int) -> Sequence[Piece]:
    meeting = Partners(transfer.exchange, workers, rank, manifest.seed).meet(round)
    return schedule_transfer(
        transfer, PARAMETERS, 0, workers, rank, manifest.piece_bytes, targets=meeting.targets,
        sources=meeting.sources, few_piece_bytes=manifest.few_piece_bytes,
    ).pieces  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_groups_of_messages_agree(name: str) -> None:
    manifest = manifest_of(name)
    transfers = [t for b in manifest.bodies if b.program is not None for t in b.program.transfers if not t.asynchronous]
    for workers in WORKERS:
        agree([make_schedule(manifest, PARAMETERS, workers, rank).pieces for rank in range(workers)])
        for transfer in transfers:
            topology = transfer.exchange.topology
            if topology is not None and refusal(from_plain(topology), workers) is not None:
                continue
            for round_ in range(ROUNDS):
                agree([transfer_pieces(manifest, transfer, workers, rank, round_) for rank in range(workers)])
