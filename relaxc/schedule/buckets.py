"""Which gradients leave together.

Those that a plan was fitted with (fit.py), or DDP's rule: in reverse order of registration, which is about the order in
which backward makes them, closed when full; the first bucket is small, so that the exchange starts early. A bucket
holds parameters of one body, one dtype and one group, which is whatever else the caller wants to keep apart.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from relaxc.manifest import BucketPlan
from relaxc.wire.parameters import Parameter


@dataclass(frozen=True, slots=True)
class Bucket:
    """`parameters` are numbers of parameters, in the order in which they are expected."""

    body: int
    dtype: str
    parameters: tuple[int, ...]
    group: Hashable = None


_Key = tuple[int, str, Hashable]


def fitted_buckets(
    plans: Sequence[BucketPlan], parameters: Sequence[Parameter], bodies: Sequence[int],
    groups: Sequence[Hashable] | None = None,
) -> tuple[tuple[Bucket, ...], list[int]]:  # fmt: skip
    """The buckets that a plan was fitted with, in its order, and which of `parameters` are in none: a fitted bucket
    holds no parameter that is frozen now, and is cut where groups are kept apart."""
    kept_apart = groups if groups is not None else [None] * len(parameters)
    keys = {p.name: (b, p.dtype, g) for p, b, g in zip(parameters, bodies, kept_apart, strict=True)}
    named = {p.name: p for p in parameters}
    made: list[Bucket] = []
    for plan in plans:
        together: dict[_Key, list[Parameter]] = {}
        for name in plan.parameters:
            if name in named and keys[name][0] == plan.body:
                together.setdefault(keys[name], []).append(named.pop(name))
        made += [_bucket(key, members) for key, members in together.items()]
    return tuple(made), [place for place, p in enumerate(parameters) if p.name in named]


def cut_buckets(
    parameters: Sequence[Parameter], bodies: Sequence[int], first_bytes: int, limit_bytes: Sequence[int],
    groups: Sequence[Hashable] | None = None,
) -> tuple[Bucket, ...]:  # fmt: skip
    """`bodies[i]` governs `parameters[i]`, which is of `groups[i]`; limits are bytes of gradient, by body. A bucket is
    closed by the parameter that fills it."""
    kept_apart = groups if groups is not None else [None] * len(parameters)
    open_: dict[_Key, list[Parameter]] = {}
    filled: dict[_Key, int] = {}
    closed: list[tuple[int, Bucket]] = []
    first = True
    for position, (parameter, body, group) in enumerate(
        zip(reversed(parameters), reversed(bodies), reversed(kept_apart), strict=True)
    ):
        key = (body, parameter.dtype, group)
        members = open_.setdefault(key, [])
        limit = first_bytes if first else limit_bytes[body]
        members.append(parameter)
        filled[key] = filled.get(key, 0) + parameter.bytes
        if filled[key] >= limit:
            closed.append((position, _bucket(key, open_.pop(key))))
            del filled[key]
            first = False
    closed += [(len(parameters), _bucket(key, members)) for key, members in open_.items()]
    return tuple(bucket for _, bucket in closed)


def _bucket(key: _Key, members: Sequence[Parameter]) -> Bucket:
    body, dtype, group = key
    return Bucket(body, dtype, tuple(p.number for p in members), group)
