"""`relaxed.profile`: the measured iteration has the lanes, the buckets and the order that the plan says."""

from __future__ import annotations

from pathlib import Path

import loops
import pytest
import torch
from pool import Pool
from torch import nn

import relaxc
from relaxc.errors import ExchangeError
from relaxc.schedule.schedule import first_site
from relaxc.schedule.timeline import busy
from relaxc.schedule.timeline_file import read_timeline

WIDTH = 64


def train(relaxed: relaxc.Relaxed, model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, times: int) -> None:
    for t in range(times):
        loops.backward(model, rank, t)
        optimizer.step()
        optimizer.zero_grad()


def profiled(rank: int, workers: int, spec: str, path: str) -> None:
    model = loops.mlp(width=WIDTH)
    optimizer = loops.sgd(model)
    relaxed = loops.plan(spec).attach(model, optimizer, timeout=30)
    train(relaxed, model, optimizer, rank, 2)
    with relaxed.profile(path, iterations=4):
        train(relaxed, model, optimizer, rank, 6)
    train(relaxed, model, optimizer, rank, 2)
    relaxed.detach()
    if rank:
        return
    found = read_timeline(Path(path))
    assert (found.kind, found.workers, found.rank, found.iterations) == ("measured", workers, 0, 4)
    timeline, schedule = found.timeline, relaxed._schedule
    assert 0 < timeline.alone <= timeline.iteration
    labels = [s.label for s in sorted(timeline.spans, key=lambda s: s.start) if s.lane == "compute"]
    assert [x for x in dict.fromkeys(labels) if x in ("forward", "backward", "step")] == ["forward", "backward", "step"]
    buckets = {s.bucket for s in timeline.spans if s.lane == "link"}
    if schedule.buckets:
        assert buckets == {*range(len(schedule.buckets) + 1)}  # the census too
    else:
        assert buckets == {first_site(schedule)}
    assert busy(timeline.spans, "link") > 0


@pytest.mark.parametrize("spec", [loops.CODED, loops.EXACT, "relax with dpsgd", "relax with choco"])
def test_a_profile_has_the_lanes_of_the_plan(pool: Pool, tmp_path: Path, spec: str) -> None:
    pool.run(profiled, 2, spec, str(tmp_path / "measured.json"))
    coded = {s.lane for s in read_timeline(tmp_path / "measured.json").timeline.spans}
    assert {"encode", "decode"} <= coded or spec == loops.EXACT


def empty(rank: int, workers: int, path: str) -> None:
    model = loops.mlp()
    optimizer = loops.sgd(model)
    relaxed = loops.plan(loops.EXACT).attach(model, optimizer, timeout=30)
    with pytest.raises(ExchangeError, match="RX0640"), relaxed.profile(path):
        pass
    with pytest.raises(ExchangeError, match="RX0640"), relaxed.profile(path, iterations=0):
        pass
    with pytest.raises(ZeroDivisionError), relaxed.profile(path):
        1 / 0  # noqa: B018
    assert not Path(path).exists()
    with relaxed.profile(path, iterations=1):
        train(relaxed, model, optimizer, rank, 1)
    assert read_timeline(Path(path)).iterations == 1
    assert not model._forward_hooks
    relaxed.detach()


def misplaced(rank: int, workers: int, path: str) -> None:
    model = loops.mlp()
    optimizer = loops.sgd(model)
    relaxed = loops.plan(loops.EXACT).attach(model, optimizer, timeout=30)
    with relaxed.profile(path, iterations=1):
        with pytest.raises(ExchangeError, match="RX0640: torch's profiler is at work already"), relaxed.profile(path):
            pass
        train(relaxed, model, optimizer, rank, 2)
    assert read_timeline(Path(path)).iterations == 1
    relaxed.detach()
    with pytest.raises(ExchangeError, match="RX0640: the plan has been detached"):
        relaxed.profile(path)


def test_a_profile_within_another_or_behind_the_plan_is_refused(pool: Pool, tmp_path: Path) -> None:
    pool.run(misplaced, 1, str(tmp_path / "measured.json"))


def test_what_is_no_iteration_is_refused(pool: Pool, tmp_path: Path) -> None:
    pool.run(empty, 1, str(tmp_path / "measured.json"))
