"""What a codec means, evaluated as directly as numpy allows: the oracle of the generated kernels.

Independent of emit/: no shared code but the layout and the dither's keys. What functions mean is in functions.py, with
x / 0 = 0. On the wire:

- a value sent as uint or int is cut off towards 0, clamped to the field's range, and 0 for NaN;
- a value sent as a top is what of its block has the largest magnitude, 0 elsewhere; a NaN counts as largest, and of
  equal ones the first are taken;
- a value sent as a float is rounded to nearest even; every NaN is sent as the one quiet NaN without sign or payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxc.program.drawn import chosen, drawn
from relaxc.program.functions import CODEC, REDUCE, Array, power
from relaxc.program.ir import Apply, Chosen, Codec, Constant, Dither, Expression, Read, Reduce, Send, Transform
from relaxc.program.selection import largest, spread, transform
from relaxc.wire.layout import PLACE_BYTES, Field, WireType, parts

Keys = tuple[int, int]
NO_KEYS: Keys = (0, 0)
States = dict[str, Array]
"""Of one encoder and parameter: a number for each block."""


def encode(
    codec: Codec, value: Array, keys: Keys = NO_KEYS, first: int = 0, states: States | None = None,
    shared: Keys = NO_KEYS,
) -> bytes:  # fmt: skip
    """The message of `value` (f32 or f64, one dimension), a run that starts at element `first` of its parameter.

    `first` is a block border; `keys` are wire/dither.parameter_keys, of the message and, for `shared`, of shared_key.
    With a layout per tensor or chunk the run is one block. `states` are the encoder's, by default as they begin.
    """
    message, block = b"", codec.layout.block_of(value.size)
    with np.errstate(all="ignore"):
        for rows, start in cut_blocks(value, block):
            blocks = Blocks(codec, rows.shape, value.dtype, keys, first + start, shared)
            message += blocks.encode(rows, _rows_of(codec, states, start // block, rows)).tobytes()
    return message


def follow(codec: Codec, message: bytes, near: Array, states: States) -> None:
    """Give a receiver's states what they become with a message of another worker."""
    block = codec.layout.block_of(near.size)
    if codec.guard is None or not codec.states:
        return
    with np.errstate(all="ignore"):
        for blocks, received, own in _received(codec, message, near, near):
            assert own is not None
            held = _rows_of(codec, states, (blocks.first + block - 1) // block, own)
            for name, value in blocks.followed(received, own, held).items():
                held[name][:] = np.where(np.isfinite(value), value, held[name])


def _rows_of(codec: Codec, states: States | None, first: int, rows: Array) -> States:
    """Views of the states of some blocks, a row each; what is not there yet begins."""
    states, count = {} if states is None else states, rows.shape[0]
    for name, value in codec.states:
        held = states.get(name, np.zeros(0, rows.dtype))
        if held.size < first + count:
            states[name] = np.concatenate([held, np.full(first + count - held.size, value, rows.dtype)])
    return {name: states[name][first : first + count].reshape(-1, 1) for name, _ in codec.states}


def decode(
    codec: Codec, message: bytes, elements: int, real: Any, near: Array | None = None, first: int = 0,
    shared: Keys = NO_KEYS,
) -> Array:  # fmt: skip
    """The values, of dtype `real` (numpy's float32 or float64), that a receiver of `message` has.

    `near` has as many, the receiver's own: for a codec with `receive near`.
    """
    out = np.empty(elements, real)
    with np.errstate(all="ignore"):
        for (rows, _), (blocks, received, own) in zip(
            cut_blocks(out, codec.layout.block_of(elements)),
            _received(codec, message, out, near, first, shared),
            strict=True,
        ):
            rows[:] = blocks.decode(received, own)
    return out


def _received(
    codec: Codec, message: bytes, like: Array, near: Array | None = None, first: int = 0, shared: Keys = NO_KEYS
) -> Iterator[tuple[Blocks, Array, Array | None]]:
    """The blocks of a message of values `like` these, with their bytes, a row each, and the receiver's own values."""
    received, block, size = np.frombuffer(message, np.uint8), codec.layout.block_of(like.size), like.itemsize
    for rows, start in cut_blocks(like, block):
        at = start // block * codec.layout.block_bytes(block, size)
        end = at + codec.layout.block_bytes(rows.shape[1], size) * rows.shape[0]
        own = None if near is None else near[start : start + rows.size].reshape(rows.shape)
        blocks = Blocks(codec, rows.shape, like.dtype, NO_KEYS, first + start, shared)
        yield blocks, received[at:end].reshape(rows.shape[0], -1), own


def trusted(codec: Codec, message: bytes, near: Array) -> Array:
    """For each block of `message` whether a receiver with `near` decodes it rightly, as the codec's guard says."""
    with np.errstate(all="ignore"):
        found = [blocks.holds(rows, own) for blocks, rows, own in _received(codec, message, near, near)]
    return np.concatenate([f.ravel() for f in found]) if found else np.zeros(0, bool)


def nearest(codec: Codec, message: bytes, near: Array, put: Array) -> Array:
    """What `message` is decoded near to: a receiver's own value, and in blocks whose guard does not hold what the
    sender put in."""
    if codec.guard is None:
        return near
    block = codec.layout.block_of(near.size)
    return np.where(np.repeat(trusted(codec, message, near), block)[: near.size], near, put)


def round_to(value: Array, dtype: str) -> Array:
    """`value` (f32 or f64), each element rounded to what a tensor of `dtype` (f32, f16, bf16, f64) can hold."""
    with np.errstate(all="ignore"):
        return value.copy() if dtype == "f64" else _rounded(value, dtype)


def cut_blocks(value: Array, block: int) -> list[tuple[Array, int]]:
    """Views: the whole blocks as rows of a matrix, a short last one as another's; with their first elements."""
    whole = value.size // block * block
    cut = [(value[:whole].reshape(-1, block), 0), (value[whole:].reshape(1, -1), whole)]
    return [(rows, start) for rows, start in cut if rows.size]


@dataclass
class Blocks:
    """Blocks of one length, a row each. Names are bound to arrays of shape (blocks, elements) or (blocks, 1).

    The rows may be of several `encoders`, of each as many, one behind the other; `keys` are then arrays with one of
    each.
    """

    codec: Codec
    shape: tuple[int, ...]
    real: np.dtype[Any]
    keys: tuple[Any, Any]
    first: int
    shared: Keys
    encoders: int = 1

    def encode(self, rows: Array, states: States) -> Array:
        self.names: dict[str, Array] = {"x": rows, "index": self.index(), **states}
        sent: list[Array] = []
        for step in self.codec.steps:
            value = self.value(step.value)
            if isinstance(step, Send):
                field = self.codec.layout.fields[step.field]
                value = self.spread(value, field.per_element)
                sent.append(_written(value, field.wire))
                value = _sent(value, field.wire)
            self.names[step.name] = value
        return np.concatenate(sent, axis=1)

    def decode(self, messages: Array, near: Array | None) -> Array:
        self.receive(messages, near)
        return self.value(self.codec.receive)

    def holds(self, messages: Array, near: Array | None, states: States | None = None) -> Array:
        """The guard's truth, a row for each block."""
        assert self.codec.guard is not None
        self.receive(messages, near)
        self.names |= states or {name: np.full((1, 1), value, self.real) for name, value in self.codec.states}
        for let in self.codec.guard.lets:
            self.names[let.name] = self.value(let.value)
        return self.spread(self.value(self.codec.guard.holds) != 0, False)

    def followed(self, messages: Array, near: Array | None, states: States) -> States:
        """The new values of the states."""
        assert self.codec.guard is not None
        self.holds(messages, near, states)
        new = {}
        for update in self.codec.guard.updates:
            new[update.name] = self.names[update.name] = self.spread(self.value(update.value), False)
        return new

    def receive(self, messages: Array, near: Array | None) -> None:
        """Bind what a receiver has."""
        self.names = {"index": self.index()}
        at = 0
        for step in self.codec.steps:
            if isinstance(step, Send):
                field = self.codec.layout.fields[step.field]
                size = field.wire.bytes_of(self.items(field), self.real.itemsize)
                self.names[step.name] = _read(messages[:, at : at + size], field.wire, self.items(field), self.real)
                at += size
            elif self.receivable(step.value):
                self.names[step.name] = self.value(step.value)
            else:
                self.names.pop(step.name, None)
        if self.codec.near is not None:
            assert near is not None, "this codec decodes next to the receiver's own value"
            self.names[self.codec.near] = near

    def index(self) -> Array:
        return np.broadcast_to(np.arange(self.shape[1]).astype(self.real), self.shape)

    def items(self, field: Field) -> int:
        return self.shape[1] if field.per_element else 1

    def receivable(self, e: Expression) -> bool:
        """Whether the receiver can evaluate a let: it reads fields, and lets like it, alone."""
        match e:
            case Constant() | Chosen():
                return True
            case Read(name=name):
                return name in self.names
            case Apply(arguments=arguments):
                return all(self.receivable(a) for a in arguments)
            case Transform(argument=argument):
                return self.receivable(argument)
        return False

    def spread(self, value: Array, per_element: bool) -> Array:
        return np.broadcast_to(value, (self.shape[0], self.shape[1] if per_element else 1))

    def value(self, e: Expression) -> Array:
        match e:
            case Constant(value=value):
                return np.full((1, 1), value, self.real)
            case Read(name=name):
                return self.names[name]
            case Apply(function="^", arguments=(base, exponent)):
                by = exponent.value if isinstance(exponent, Constant) else self.value(exponent)
                return power(self.value(base), by, CODEC["/"])
            case Apply(function=function, arguments=arguments):
                return np.asarray(CODEC[function](*map(self.value, arguments))).astype(self.real)
            case Reduce(function=function, argument=argument):
                return REDUCE[function](self.spread(self.value(argument), True))
            case Dither(argument=argument):
                return np.asarray(np.floor(self.value(argument) + self.uniform()))
            case Chosen():
                return self.chosen()
            case Transform(function=function, argument=argument, side=side):
                return transform(function, self.spread(self.value(argument), True), side)
        raise TypeError(f"{e} in a codec")

    def chosen(self) -> Array:
        block, count = self.codec.layout.block, self.shape[0] // self.encoders
        numbers = np.arange(count, dtype=np.uint64) + np.uint64(self.first // block)
        places = np.tile(chosen(numbers, self.shared, block), self.encoders)
        return np.asarray((np.arange(self.shape[1], dtype=np.uint64) == places[:, None]).astype(self.real))

    def uniform(self) -> Array:
        count, items = self.shape[0] // self.encoders, self.shape[1]
        index = np.arange(count * items, dtype=np.uint64).reshape(count, items) + np.uint64(self.first)
        index = np.tile(index, (self.encoders, 1))
        key0, key1 = (np.repeat(np.asarray(key, np.uint32), count).reshape(-1, 1) for key in self.keys)
        bits = drawn(index, key0, key1)
        return np.asarray((bits >> np.uint32(8)).astype(self.real) * self.real.type(2.0**-24))


# --- the wire


def _rounded(value: Array, kind: str) -> Array:
    """To the nearest float of `kind`, ties to even, in the type of `value`."""
    if kind == "bf16":
        return _rounded_bf16(value)
    return value.astype({"f16": np.float16, "f32": np.float32}[kind]).astype(value.dtype)


def _rounded_bf16(value: Array) -> Array:
    """8 significant bits, exponents down to -126 and below that multiples of 2^-133."""
    exact = value.astype(np.float64)
    _, exponent = np.frexp(np.where(np.isfinite(exact), exact, 1.0))
    exponent = np.maximum(exponent - 8, -133)
    rounded = np.ldexp(np.rint(np.ldexp(exact, -exponent)), exponent)
    rounded = np.where(np.abs(rounded) >= 2.0**128, np.copysign(np.inf, exact), rounded)
    return np.where(np.isfinite(exact), rounded, exact).astype(value.dtype)


def _sent(value: Array, wire: WireType) -> Array:
    """What the receiver has."""
    if wire.kind == "top":
        places = largest(value, wire.kept(value.shape[1]))
        return spread(places, np.take_along_axis(value, places, axis=1), value.shape[1])
    if wire.bits:
        return _level(value, wire).astype(value.dtype)
    return value if wire.kind == "real" else _rounded(value, wire.kind)


def _level(value: Array, wire: WireType) -> Array:
    low, high = (0, 2**wire.bits - 1) if wire.kind == "uint" else (-(2 ** (wire.bits - 1)), 2 ** (wire.bits - 1) - 1)
    return np.where(np.isnan(value), 0, np.clip(np.trunc(value), low, high)).astype(np.int64)


def _written(value: Array, wire: WireType) -> Array:
    """Bytes, a row for each block."""
    if wire.bits:
        return _packed(_level(value, wire) & (2**wire.bits - 1), wire.bits)
    if wire.kind == "top":
        return _listed(value, wire)
    sent = np.where(np.isnan(value), value.dtype.type(np.nan), _sent(value, wire))
    if wire.kind == "bf16":
        return (sent.astype("<f4").view("<u4") >> 16).astype("<u2").view(np.uint8)
    kind = {"f32": "<f4", "f16": "<f2", "real": f"<f{value.itemsize}"}[wire.kind]
    return np.ascontiguousarray(sent.astype(kind)).view(np.uint8)


def _listed(value: Array, wire: WireType) -> Array:
    """Places, then values."""
    places = largest(value, wire.kept(value.shape[1]))
    values = _written(np.take_along_axis(value, places, axis=1), WireType("real"))
    return np.concatenate([np.ascontiguousarray(places.astype("<u4")).view(np.uint8), values], axis=1)


def _unlisted(message: Array, count: int, items: int, real: np.dtype[Any]) -> Array:
    places, values = (np.ascontiguousarray(part) for part in np.split(message, [count * PLACE_BYTES], axis=1))
    return spread(places.view("<u4").astype(np.int64), values.view(f"<f{real.itemsize}").astype(real), items)


def _read(message: Array, wire: WireType, items: int, real: np.dtype[Any]) -> Array:
    message = np.ascontiguousarray(message)
    if wire.kind == "top":
        return _unlisted(message, wire.kept(items), items, real)
    if wire.bits:
        levels = _unpacked(message, wire.bits, items)
        negative = (wire.kind == "int") & (levels >= 2 ** (wire.bits - 1))
        return np.where(negative, levels - 2**wire.bits, levels).astype(real)
    if wire.kind == "bf16":
        return (message.view("<u2").astype("<u4") << 16).view("<f4").astype(real)
    return message.view({"f32": "<f4", "f16": "<f2", "real": f"<f{real.itemsize}"}[wire.kind]).astype(real)


def _packed(levels: Array, bits: int) -> Array:
    """wire/layout.py: element i + k * stride of a part of p bits is in bits k * p and up of byte i."""
    blocks, items = levels.shape
    out, shift = [], 0
    for part in parts(bits):
        stride = -(-items * part // 8)
        padded = np.zeros((blocks, 8 // part * stride), np.int64)
        padded[:, :items] = levels >> shift & (2**part - 1)
        planes = padded.reshape(blocks, 8 // part, stride)
        out.append((planes << (part * np.arange(8 // part))[:, None]).sum(axis=1).astype(np.uint8))
        shift += part
    return np.concatenate(out, axis=1)


def _unpacked(message: Array, bits: int, items: int) -> Array:
    levels = np.zeros((message.shape[0], items), np.int64)
    at = shift = 0
    for part in parts(bits):
        stride = -(-items * part // 8)
        plane = message[:, at : at + stride].astype(np.int64)
        values = np.concatenate([plane >> k * part & (2**part - 1) for k in range(8 // part)], axis=1)
        levels |= values[:, :items] << shift
        at, shift = at + stride, shift + part
    return levels
