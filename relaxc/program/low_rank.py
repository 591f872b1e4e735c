"""A mean or sum of low rank, among N workers: PowerSGD (Vogels et al. 2019).

For each worker M = value + residual, as a matrix (wire/low_rank.py). P = mean of M Q; P becomes orthonormal; Q = mean
of M' P. What everyone receives for the mean is P Q', and the residual is M - P Q', own contribution included, as
published. Q is kept for the next exchange, divided by a power of two, which changes nothing but that products stay in
range; where it would be zero or not finite, the old one is. A residual keeps its old elements where the new ones would
not be finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from relaxc.program.functions import Array
from relaxc.wire.low_rank import factors_of, first_q

if TYPE_CHECKING:
    from relaxc.program.exchange import Occurrence

LARGEST_EXPONENT = 120
"""Of what f32 can be multiplied by, with room."""


def run_low_rank(this: Occurrence) -> list[Array]:
    """What each worker receives."""
    shape = factors_of(this.parameter.shape, this.exchange.rank)
    if not shape.rank:
        return [this.tensor(w) for w in range(this.workers)]
    with np.errstate(all="ignore"):
        wanted = [_matrix(this, w).reshape(shape.rows, shape.columns) for w in range(this.workers)]
        q = _kept(this).reshape(shape.columns, shape.rank)
        p = orthonormal(_mean([m @ q for m in wanted]))
        q = _mean([m.T @ p for m in wanted])
        found = (p @ q.T).ravel()
        if np.isfinite(q).all() and q.any():
            this.residuals.factor = scaled(q).ravel()
        for w, m in enumerate(wanted if this.exchange.feedback == "worker" else ()):
            lost, old = m.ravel() - found, this.residuals.worker[w]
            old[...] = np.where(np.isfinite(lost), lost, old)
        result = found if this.exchange.kind == "mean" else found * found.dtype.type(this.workers)
    return [result] * this.workers


def orthonormal(p: Array) -> Array:
    """Columns that span what those of `p` do; not a number where one is not."""
    if not np.isfinite(p).all():
        return np.full_like(p, np.nan)
    made: Array = np.linalg.qr(p)[0]
    return made


def scaled(q: Array) -> Array:
    """With a largest element from 1/2 to 1."""
    _, exponent = np.frexp(np.abs(q).max())
    made: Array = q * q.dtype.type(2.0 ** -int(np.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT)))
    return made


def _matrix(this: Occurrence, worker: int) -> Array:
    value = this.tensor(worker)
    return value + this.residuals.worker[worker] if this.exchange.feedback == "worker" else value


def _kept(this: Occurrence) -> Array:
    if this.residuals.factor is None:
        parameter = this.parameter
        drawn = first_q(this.seed, this.exchange.place, parameter.number,
                        factors_of(parameter.shape, this.exchange.rank).q)  # fmt: skip
        this.residuals.factor = drawn.astype(this.tensor(0).dtype)
    return this.residuals.factor


def _mean(parts: Sequence[Array]) -> Array:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    mean: Array = total * total.dtype.type(1 / len(parts))
    return mean
