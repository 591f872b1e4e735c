"""Buckets of the parameters that a program governs: those of gradients by the same rule, cut apart where the numbers
that kernels are given differ."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from relaxc.manifest import Manifest, ProgramPlan
from relaxc.schedule.buckets import Bucket, cut_buckets, fitted_buckets
from relaxc.wire.parameters import Parameter


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
