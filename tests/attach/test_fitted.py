"""Fitted plans at work: which parameters leave together never changes a result."""

from __future__ import annotations

import warnings
from dataclasses import replace

import loops
import pytest
import torch
from pool import Pool, WorkerError
from torch import nn

import relaxc
from relaxc.attach.plan import Plan
from relaxc.manifest import BucketPlan, FitPlan
from relaxc.schedule.fit import with_fit

NAMES = ("0.weight", "0.bias", "2.weight", "2.bias")
MIX = "relax weights { topology = ring }"
SPECS = [loops.EXACT, loops.CODED, MIX, "relax weights { topology = ring, compress = 8bit }"]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 5))


def fitted(spec: str, *buckets: tuple[str, ...]) -> Plan:
    plan = relaxc.compile(spec)
    made = tuple(BucketPlan(0, names) for names in buckets)
    of = FitPlan(2, "by hand", made, made, 0.0)
    return replace(plan, manifest=with_fit(plan.manifest, of)) if buckets else plan


def trained(rank: int, workers: int, spec: str, buckets: tuple[tuple[str, ...], ...]) -> tuple[list[list[float]], int]:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    relaxed = fitted(spec, *buckets).attach(net, optimizer)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(4):
        net(torch.randn(8, 40, generator=generator)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    relaxed.complete()
    count = len({bucket.parameters for bucket in (*relaxed._schedule.buckets, *_sites(relaxed))})
    relaxed.detach()
    return [p.detach().flatten().tolist() for p in net.parameters()], count


def _sites(relaxed: object) -> list[object]:
    programs = relaxed._programs
    return [site.bucket for cohort in programs.cohorts for site in cohort.sites] if programs is not None else []


@pytest.mark.parametrize("spec", SPECS)
def test_buckets_change_no_bit(pool: Pool, spec: str) -> None:
    plain = pool.run(trained, 2, spec, ())
    apart = pool.run(trained, 2, spec, (("2.bias", "0.weight"), ("2.weight",), ("0.bias",)))
    assert [weights for weights, _ in plain] == [weights for weights, _ in apart]
    assert [count for _, count in plain] == [1, 1]
    assert [count for _, count in apart] == [3, 3]


def differing(rank: int, workers: int) -> None:
    net = model()
    order = NAMES if rank else NAMES[::-1]
    fitted(loops.CODED, order).attach(net, torch.optim.SGD(net.parameters(), lr=0.05))


def test_workers_with_other_fits_are_refused(pool: Pool) -> None:
    with pytest.raises(WorkerError, match="the workers differ in plan"):
        pool.run(differing, 2)


def told(rank: int, workers: int) -> list[str]:
    net = model()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        fitted(loops.CODED, NAMES).attach(net, torch.optim.SGD(net.parameters(), lr=0.05)).detach()
    return [str(w.message) for w in heard if "fitted" in str(w.message)]


def test_a_plan_that_was_fitted_to_others_says_so_once(pool: Pool) -> None:
    assert pool.run(told, 2) == [[], []]
    (one,), *others = pool.run(told, 3)
    assert "fitted to 2 workers, and 3 train" in one and "--workers 3" in one
    assert others == [[], []]
