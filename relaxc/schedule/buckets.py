"""Which gradients leave together.

DDP's rule for now: in reverse order of registration, which is about the order in which backward makes them, closed when
full; the first bucket is small, so that the exchange starts early. A bucket holds parameters of one body, one dtype and
one group, which is whatever else the caller wants to keep apart. Behind this function comes the exact dynamic programme
over a profile of the model.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from relaxc.wire.parameters import Parameter


@dataclass(frozen=True, slots=True)
class Bucket:
    """`parameters` are numbers of parameters, in the order in which they are expected."""

    body: int
    dtype: str
    parameters: tuple[int, ...]
    group: Hashable = None


_Key = tuple[int, str, Hashable]


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
