"""Encoding and decoding what many workers have at once: the blocks of all of them as rows of one matrix. The bits are
those of program/evaluate.py, whose arithmetic this is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxc.program.evaluate import NO_KEYS, Blocks, Keys
from relaxc.program.exchange import Code
from relaxc.program.functions import Array
from relaxc.program.ir import Codec

Rows = Array
"""A row for each worker."""


@dataclass(frozen=True)
class Codes:
    """program/exchange.Code of each worker: `put` (workers, elements), `messages` (workers, bytes)."""

    codec: Codec
    put: Rows
    messages: Rows
    first: int = 0
    shared: Keys = NO_KEYS

    def __len__(self) -> int:
        return len(self.put)

    def __getitem__(self, worker: int) -> Code:
        message = self.messages[worker].tobytes()
        return Code(self.codec, self.put[worker], message, {}, self.first, self.shared)

    def decoded(self, senders: Array | None = None) -> Rows:
        """What each worker makes of its own message, or of that of `senders[worker]`, next to what it put in itself."""
        messages = self.messages if senders is None else self.messages[senders]
        return decode_all(self.codec, messages, self.put, self.first, self.shared)


def at_once(codec: Codec) -> bool:
    """Whether this codec can be done here: what is checked, and what learns from messages, goes worker by worker."""
    return codec.guard is None and not codec.states


def encode_all(codec: Codec, put: Rows, keys: tuple[Any, Any], first: int, shared: Keys) -> Codes:
    """`keys` are arrays with one of each worker, which only a codec that dithers reads."""
    workers = len(put)
    made = [np.zeros((workers, 0), np.uint8)]
    with np.errstate(all="ignore"):
        for rows, start, _ in _cut(codec, put):
            blocks = Blocks(codec, rows.shape, put.dtype, keys, first + start, shared, workers)
            made.append(blocks.encode(rows, {}).reshape(workers, -1))
    return Codes(codec, put, np.concatenate(made, axis=1), first, shared)


def decode_all(codec: Codec, messages: Rows, near: Rows, first: int, shared: Keys) -> Rows:
    """Next to the rows of `near`, of whose shape and type the result is."""
    workers, out, at = len(near), np.empty_like(near), 0
    size = near.dtype.itemsize
    with np.errstate(all="ignore"):
        for rows, start, count in _cut(codec, near):
            end = at + codec.layout.block_bytes(rows.shape[1], size) * count
            received = np.ascontiguousarray(messages[:, at:end]).reshape(workers * count, -1)
            blocks = Blocks(codec, rows.shape, near.dtype, NO_KEYS, first + start, shared, workers)
            found = blocks.decode(received, rows)
            out[:, start : start + rows.size // workers] = np.broadcast_to(found, rows.shape).reshape(workers, -1)
            at = end
    return out


def _cut(codec: Codec, values: Rows) -> Iterator[tuple[Rows, int, int]]:
    """The whole blocks of all workers as rows, then the short last ones; where they begin, and how many a worker
    has."""
    elements = values.shape[1]
    block = codec.layout.block_of(elements)
    whole = elements // block * block
    if whole:
        yield np.ascontiguousarray(values[:, :whole]).reshape(-1, block), 0, whole // block
    if whole < elements:
        yield np.ascontiguousarray(values[:, whole:]), whole, 1
