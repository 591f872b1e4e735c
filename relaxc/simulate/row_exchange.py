"""The common exchanges for many workers at once, to the bits of program/exchange.py: the all-reduce of plain numbers,
the mean of codes by owners, and all that is gathered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from relaxc.program.codec import EXACT
from relaxc.program.exchange import NOBODY, Occurrence, Residuals, shared_keys
from relaxc.program.functions import Array
from relaxc.program.ir import Codec, Exchange
from relaxc.simulate.codes import Codes, Rows, at_once, encode_all
from relaxc.topology.kinds import Rows as Matrix
from relaxc.wire.ownership import shares
from relaxc.wire.parameters import Parameter
from relaxc.wire.routes import gathers, route_of


def by_rows(exchange: Exchange, values: Rows | Codes | Sequence[Any]) -> bool:
    """Whether this exchange can be done here."""
    coded = isinstance(values, Codes)
    if exchange.kind == "relay" or exchange.rank or (isinstance(values, list) and not isinstance(values[0], float)):
        return False
    if exchange.codec is not None and not at_once(exchange.codec):
        return False
    return gathers(exchange.kind, coded, exchange.route) or (
        exchange.codec is None or (route_of(exchange.route).name == "all" and exchange.codec.near is None)
    )


@dataclass
class RowExchange:
    """program/exchange.Occurrence, with `values` as rows, `keys` as an array of each half, and `matrix` the rows of the
    topology. Every worker takes part."""

    exchange: Exchange
    values: Rows | Codes
    residuals: Residuals
    parameter: Parameter
    seed: int
    iteration: int
    keys: tuple[Array, Array]
    matrix: Matrix | None

    def run(self) -> Rows:
        """What each worker receives."""
        if gathers(self.exchange.kind, isinstance(self.values, Codes), self.exchange.route):
            return self._gathered()
        assert not isinstance(self.values, Codes)
        if self.exchange.codec is None:
            return self._for_all(self._averaged(summed(self.values)))
        return self._for_all(self._by_owners(self.values, self.exchange.codec))

    def _for_all(self, row: Array) -> Rows:
        return np.broadcast_to(row, (len(self.values), row.size))

    def _averaged(self, total: Array) -> Array:
        if self.exchange.kind != "mean":
            return total
        with np.errstate(all="ignore"):
            mean: Array = total * total.dtype.type(1 / len(self.values))
        return mean

    # --- by owners

    def _by_owners(self, values: Rows, codec: Codec) -> Array:
        result: Array = np.zeros_like(values[0])
        workers = len(values)
        if route_of(self.exchange.route).roundings(workers) == 0:
            return self._averaged(summed(values))
        for start, stop in shares(self.parameter.number, self.parameter.elements, codec.layout, workers):
            if start < stop:
                result[start:stop] = self._owned(values, codec, slice(start, stop))
        return result

    def _owned(self, values: Rows, codec: Codec, at: slice) -> Array:
        sent = self._encoded(values[:, at], codec, at).decoded()
        return self._again(self._averaged(summed(sent)), at)

    def _again(self, total: Array, at: slice) -> Array:
        """What everyone decodes of the owner's code of the sum."""
        this = Occurrence(self.exchange, [total], self.residuals, self.parameter, self.seed, self.iteration)
        code = this.encoded(total, at, NOBODY, self.exchange.feedback == "both")
        return this.decoded(code.message, at)

    def _encoded(self, value: Rows, codec: Codec, at: slice) -> Codes:
        """Of all workers, with their residuals where they are kept."""
        shared = shared_keys(self.seed, self.iteration, self.parameter)
        if self.exchange.feedback == "none":
            return encode_all(codec, np.ascontiguousarray(value), self.keys, at.start, shared)
        loss: Rows = self.residuals.worker[:, at]  # type: ignore[call-overload]
        with np.errstate(all="ignore"):
            value = value + loss
        codes = encode_all(codec, value, self.keys, at.start, shared)
        with np.errstate(all="ignore"):
            lost = value - codes.decoded()
        loss[...] = np.where(np.isfinite(lost), lost, loss)
        return codes

    # --- gathered

    def _gathered(self) -> Rows:
        codes = self._codes()
        if self.matrix is None:
            return self._for_all(self._averaged(summed(codes.decoded())))
        senders, weights = padded(self.matrix)
        decoded = None if codes.codec.near is not None else codes.decoded()
        return self._averaged(self._weighted(codes, decoded, senders, weights))

    def _codes(self) -> Codes:
        if isinstance(self.values, Codes):
            return self.values
        codec = self.exchange.codec or EXACT
        if codec is EXACT and self.exchange.feedback == "none":
            return _Plain(EXACT, self.values, np.zeros((len(self.values), 0), np.uint8))
        return self._encoded(self.values, codec, slice(0, self.values.shape[1]))

    def _weighted(self, codes: Codes, decoded: Rows | None, senders: Array, weights: Array) -> Rows:
        """Each worker adds up in rank order what it hears; -1 stands behind the last that it hears."""
        real = codes.put.dtype
        total = np.zeros_like(codes.put)
        with np.errstate(all="ignore"):
            for turn in range(senders.shape[1]):
                heard, by = senders[:, turn], weights[:, turn].astype(real).reshape(-1, 1)
                term = (codes.decoded(heard) if decoded is None else decoded[heard]) * by
                total = term if turn == 0 else np.where((heard >= 0).reshape(-1, 1), total + term, total)
        return np.asarray(total)


@dataclass(frozen=True)
class _Plain(Codes):
    """Plain numbers, of which nothing is lost."""

    def decoded(self, senders: Array | None = None) -> Rows:
        return self.put if senders is None else self.put[senders]


def summed(rows: Rows) -> Array:
    """In rank order."""
    total: Array = rows[0].copy()
    with np.errstate(all="ignore"):
        for row in rows[1:]:
            total += row
    return total


@lru_cache(maxsize=8)
def padded(matrix: Matrix) -> tuple[Array, Array]:
    """Whom each worker hears in turn, -1 behind the last, and with which weight."""
    most = max(len(row) for row in matrix)
    senders, weights = np.full((len(matrix), most), -1), np.zeros((len(matrix), most))
    for worker, row in enumerate(matrix):
        for turn, (peer, weight) in enumerate(row):
            senders[worker, turn], weights[worker, turn] = peer, weight
    return senders, weights
