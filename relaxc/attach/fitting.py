"""Programs fitted to a model and a number of workers, before anything is made: buckets, every message, and refusals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from relaxc.attach.parameters import ModelParameters
from relaxc.attach.partners import Partners
from relaxc.attach.places import Place, places, reads_settings, refuse_ignored, refuse_missing
from relaxc.errors import ExchangeError, ModelError
from relaxc.manifest import BodyPlan, Manifest, ProgramPlan
from relaxc.schedule.actions import Piece
from relaxc.schedule.buckets import Bucket
from relaxc.schedule.programs import program_buckets
from relaxc.schedule.schedule import Schedule
from relaxc.schedule.transfers import TransferSchedule, schedule_transfer
from relaxc.topology.kinds import changes, directed, met, refusal
from relaxc.topology.spectrum import AT, SURELY, connected, smallest_eigenvalue
from relaxc.topology.topology import from_plain
from relaxc.topology.trees import not_a_tree

LARGEST_BLOCK = 2**31 - 2**13
"""Elements that a kernel takes as one: it counts in 32 bits, and ends up to a block of threads' runs behind."""


@dataclass(frozen=True)
class FittedPrograms:
    """`placed` is by parameter. `pieces` are all messages of the first round, `dense` the bytes of each all-reduce."""

    placed: tuple[Place, ...]
    buckets: tuple[Bucket, ...]
    pieces: tuple[Piece, ...]
    dense: tuple[int, ...]


def fit_programs(
    manifest: Manifest, read: ModelParameters, schedule: Schedule, optimizers: Sequence[torch.optim.Optimizer]
) -> FittedPrograms:
    """Raise ModelError (RX0414 to RX0417) or ExchangeError (RX0608, RX0614) where a program can't serve them."""
    placed = places(manifest, read, schedule.bodies, optimizers, schedule.workers)
    refuse_ignored(manifest, schedule.bodies, placed, optimizers)
    refuse_missing(manifest, schedule.bodies, placed, optimizers)
    together = [
        _in_step(manifest.bodies[body].program, place) for body, place in zip(schedule.bodies, placed, strict=True)
    ]
    buckets = program_buckets(manifest, read.parameters, schedule.bodies, together)
    _refuse_large(manifest, read, schedule.bodies)
    if buckets:
        _refuse_lbfgs(optimizers)
    for bucket in buckets:
        program = _program(manifest, bucket)
        _refuse_workers(program, schedule.workers)
    fitted = list(_fit(manifest, read, schedule, buckets))
    return FittedPrograms(
        tuple(placed), buckets, tuple(piece for one in fitted for piece in one.pieces),
        tuple(one.dense_bytes for one in fitted if one.dense_bytes),
    )  # fmt: skip


def _in_step(program: ProgramPlan | None, place: Place) -> Place:
    """Groups of an optimizer count where the program reads their settings."""
    return place if program is not None and reads_settings(program) else replace(place, group=0)


def _fit(
    manifest: Manifest, read: ModelParameters, schedule: Schedule, buckets: Sequence[Bucket]
) -> Iterator[TransferSchedule]:
    for number, bucket in enumerate(buckets):
        members = [read.parameters[p] for p in bucket.parameters]
        for transfer in _program(manifest, bucket).transfers:
            meeting = Partners(transfer.exchange, schedule.workers, schedule.rank, manifest.seed).meet(0)
            yield schedule_transfer(
                transfer, members, number, schedule.workers, schedule.rank, manifest.piece_bytes,
                targets=meeting.targets, sources=meeting.sources, few_piece_bytes=manifest.few_piece_bytes,
            )  # fmt: skip


def _program(manifest: Manifest, bucket: Bucket) -> ProgramPlan:
    program = manifest.bodies[bucket.body].program
    assert program is not None
    return program


def unfit(manifest: Manifest, workers: int) -> list[str]:
    """What a user should hear where the plan was fitted to another number of workers."""
    if manifest.fit is None or manifest.fit.workers == workers:
        return []
    fitted = f"the plan was fitted to {manifest.fit.workers} workers, and {workers} train"
    return [f"{fitted}: its buckets and codecs were chosen for those; compile it with --workers {workers}"]


def refuse_backend(manifest: Manifest, backend: str) -> None:
    """Raise ExchangeError (RX0625) for pairs of whoever is ready on a group whose messages can't wait for two alone."""
    if "nccl" in backend and any(_by_readiness(body.program) for body in manifest.bodies if body.program is not None):
        raise ExchangeError(
            "RX0625", "ready_pairs on an NCCL group: its messages between two are launched in an order that both know "
            "before, and who meets whom is found out while training",
            "give attach a Gloo group, or take random_pairs()",
        )  # fmt: skip


def _by_readiness(program: ProgramPlan) -> bool:
    plain = [t.exchange.topology for t in program.transfers if t.exchange.kind == "mix"]
    return any(met(from_plain(topology)) for topology in plain)


def _refuse_workers(program: ProgramPlan, workers: int) -> None:
    for transfer in program.transfers:
        if transfer.exchange.topology is not None:
            topology = from_plain(transfer.exchange.topology)
            why = refusal(topology, workers)
            if why is None and transfer.exchange.kind == "relay":
                why = not_a_tree(topology, workers)
            if why is not None:
                raise ExchangeError("RX0608", why, "start another number of workers, or take another topology")


def disconnected(manifest: Manifest, workers: int) -> list[str]:
    """What is wrong with topologies that leave some workers apart for ever."""
    programs = [body.program for body in manifest.bodies if body.program is not None]
    plain = [t.exchange.topology for program in programs for t in program.transfers if t.exchange.topology is not None]
    topologies = dict.fromkeys(from_plain(topology) for topology in plain)
    return [
        f"{topology} never connects all {workers} workers: what some of them know never reaches the others"
        for topology in topologies
        if not connected(topology, workers)
    ]


def unsettled(manifest: Manifest, workers: int) -> list[str]:
    """What is wrong with topologies over which disagreements don't die out. Raise ExchangeError (RX0370) where they
    grow."""
    found = [doubt for body in manifest.bodies for doubt in _unsettled(body, workers)]
    return list(dict.fromkeys(found))


def _unsettled(body: BodyPlan, workers: int) -> Iterator[str]:
    """The bound is for a symmetric matrix that stays. Where it is 1, the compiler has said so."""
    transfers = [] if body.program is None or body.above == 1 or workers == 1 else body.program.transfers
    for topology in dict.fromkeys(from_plain(t.exchange.topology) for t in transfers if t.exchange.kind == "mix"):
        if changes(topology) or directed(topology):
            continue
        found = smallest_eigenvalue(topology, workers)
        needs = f"the smallest eigenvalue of {topology} of {workers} workers is {found:.3g}, and must be above"
        if found < body.above - SURELY:
            raise ExchangeError(
                "RX0370", f"{needs} {body.above:.3g}: what workers disagree about would grow",
                f"use lazy({topology}), or start another number of workers",
            )  # fmt: skip
        if found < body.above + AT:
            yield f"{needs} {body.above:.3g}: what workers disagree about never dies out; use lazy({topology})"


def _refuse_large(manifest: Manifest, read: ModelParameters, bodies: Sequence[int]) -> None:
    for parameter, body in zip(read.parameters, bodies, strict=True):
        if parameter.elements > LARGEST_BLOCK and _takes_whole(manifest.bodies[body]):
            raise ModelError(
                "RX0416", f"parameter {parameter.name} has {parameter.elements:,} elements, too many to be one block",
                "use a codec `per block`, or exclude the parameter with a selector",
            )  # fmt: skip


def _takes_whole(body: BodyPlan) -> bool:
    """Whether some kernel takes a tensor, or a worker's chunk of it, as one block."""
    fragments = body.program.fragments if body.program is not None else ()
    measures = any(fragment.label == "measure" for fragment in fragments)
    return measures or any(e.codec is not None and e.codec.unit != "block" for e in body.exchanges)


def _refuse_lbfgs(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    if any(isinstance(o, torch.optim.LBFGS) for o in optimizers):
        raise ExchangeError(
            "RX0614", "LBFGS evaluates the loss several times in a step, and a program runs once a step",
            "use another optimizer",
        )  # fmt: skip
