"""Buckets of the parameters that a program governs: those of gradients by the same rule, cut apart where the numbers
that kernels are given differ."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from relaxc.manifest import Manifest, ProgramPlan
from relaxc.schedule.buckets import Bucket, cut_buckets, fitted_buckets
from relaxc.wire.draws import head_start
from relaxc.wire.numbers import evaluate
from relaxc.wire.parameters import Parameter

HeadStarts = tuple[tuple[int, int], ...]


def program_buckets(
    manifest: Manifest, parameters: Sequence[Parameter], bodies: Sequence[int], groups: Sequence[Hashable]
) -> tuple[Bucket, ...]:
    """`bodies[i]` governs parameter i, which is of `groups[i]`. Parameters of bodies without a program are in none."""
    programs = [body.program for body in manifest.bodies]
    limits = [manifest.coded_bucket_bytes if p and _coded(p) else manifest.bucket_bytes for p in programs]
    members = [p for p in parameters if programs[bodies[p.number]]]
    of, apart = [bodies[p.number] for p in members], [groups[p.number] for p in members]
    fitted, left = fitted_buckets(manifest.fit.programs if manifest.fit else (), members, of, apart)
    cut = cut_buckets(
        [members[n] for n in left], [of[n] for n in left], manifest.first_bucket_bytes, limits, [apart[n] for n in left]
    )
    return (*fitted, *cut)


def _coded(program: ProgramPlan) -> bool:
    return any(transfer.exchange.codec for transfer in program.transfers)


def head_starts(program: ProgramPlan | None, before: int, total: int, workers: int) -> HeadStarts:
    """Of a parameter with `before` of the model's `total` elements ahead of it: (block, head start) of each staggered
    `every` of its program."""
    if program is None:
        return ()
    fixed = {"t": 0.0, "workers": float(workers)}
    for state in program.states:
        if state.shape == "number":
            fixed[state.name] = evaluate(state.initial, fixed)
    staggered = [c for c in program.control if c.kind == "every" and c.how == "staggered"]
    return tuple((c.block, head_start(before, total, evaluate(c.value, fixed))) for c in staggered)
