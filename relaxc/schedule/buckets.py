"""Which gradients leave together.

DDP's rule for now: in reverse order of registration, which is about the order in which backward makes them, closed when
full; the first bucket is small, so that the exchange starts early. A bucket holds parameters of one body and one dtype.
Behind this function comes the exact dynamic programme over a profile of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxc.wire.parameters import Parameter


@dataclass(frozen=True, slots=True)
class Bucket:
    """`parameters` are numbers of parameters, in the order in which they are expected."""

    body: int
    dtype: str
    parameters: tuple[int, ...]


def cut_buckets(
    parameters: Sequence[Parameter], bodies: Sequence[int], first_bytes: int, limit_bytes: Sequence[int]
) -> tuple[Bucket, ...]:
    """`bodies[i]` governs `parameters[i]`; limits are bytes of gradient, by body. A bucket is closed by the
    parameter that fills it."""
    open_: dict[tuple[int, str], list[Parameter]] = {}
    closed: list[tuple[int, Bucket]] = []
    first = True
    for position, parameter in enumerate(reversed(parameters)):
        key = (bodies[len(parameters) - 1 - position], parameter.dtype)
        members = open_.setdefault(key, [])
        limit = first_bytes if first else limit_bytes[key[0]]
        members.append(parameter)
        if sum(p.bytes for p in members) >= limit:
            closed.append((position, _bucket(key, open_.pop(key))))
            first = False
    closed += [(len(parameters), _bucket(key, members)) for key, members in open_.items()]
    return tuple(bucket for _, bucket in closed)


def _bucket(key: tuple[int, str], members: Sequence[Parameter]) -> Bucket:
    return Bucket(key[0], key[1], tuple(p.number for p in members))
