"""The whole probe, on every worker; all have its result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from relaxc.probe import links
from relaxc.probe.assemble import Assembled, Measured, assemble
from relaxc.probe.codings import coding_times
from relaxc.probe.pairs import Pair, rounds

PAIR_SECONDS, LONGEST_ROUND = 24.0, 2.0
"""For all pairs, and for one round of them at most."""
REDUCE_SECONDS, WIRE_SECONDS = 6.0, 4.0
TIMEOUT = timedelta(minutes=5)
"""Some machine may have a runtime to build first."""

Told = Callable[[str], None]


@contextmanager
def workers() -> Iterator[None]:
    """The process group of torchrun's workers, over Gloo."""
    dist.init_process_group("gloo", timeout=TIMEOUT)
    yield
    dist.destroy_process_group()


def probe(folder: Path | None, tell: Told = lambda said: None) -> Assembled:
    """Between workers of one process group. `folder` is the plan of codings.SPEC; where it is None on some worker,
    codecs are left out. `tell` is told what begins."""
    rank, count = dist.get_rank(), dist.get_world_size()
    per_machine = _per_machine(count)
    planned = rounds(count, per_machine)
    tell(f"links of {count} workers: {sum(map(len, planned))} directions")
    mine: dict[Pair, links.Times] = {}
    seconds = min(LONGEST_ROUND, PAIR_SECONDS / max(1, len(planned)))
    for together in planned:
        mine |= _round(together, rank, seconds)
        dist.barrier()
    tell("all-reduce")
    reduce = links.all_reduces(REDUCE_SECONDS)
    tell("what messages cost a core")
    wire = links.work(WIRE_SECONDS)
    tell("codecs" if folder is not None else "codecs: left out")
    found = _gathered((mine, {} if folder is None else _codings(folder)))
    pairs = {pair: times for of_worker, _ in found for pair, times in of_worker.items()}
    codings = [c for _, c in found]
    made = assemble(Measured(count, per_machine, pairs, reduce, wire, codings if all(codings) else [{}]))
    return _of_rank_0(made)


def _round(together: list[Pair], rank: int, seconds: float) -> dict[Pair, links.Times]:
    for pair in together:
        if rank == pair[0]:
            return {pair: links.send(pair, seconds)}
        if rank == pair[1]:
            links.receive(pair)
    return {}


def _per_machine(count: int) -> int:
    """LOCAL_WORLD_SIZE where it is everybody's, as torchrun numbers them; else each worker has a machine."""
    said = set(_gathered(int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    (one,) = said if len(said) == 1 else (1,)
    return one if one >= 1 and count % one == 0 else 1


def _codings(folder: Path) -> dict[str, tuple[links.Times, links.Times]]:
    return {text: (times.encode, times.decode) for text, times in coding_times(folder).items()}


def _gathered(value: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def _of_rank_0(made: Assembled) -> Assembled:
    """So that no rounding of another machine gives another network."""
    held = [made]
    dist.broadcast_object_list(held)
    return held[0]
