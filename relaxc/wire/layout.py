"""Where the fields of a code stand in a message.

A message is a run of blocks, or several runs, without padding. A block of n elements holds the fields of its codec in
text order: a field per block takes one item; a field per element takes n items. Items of b bits are packed by planes:
b is split into powers of two, lowest bits first (7 = 1 + 2 + 4), and a part of p bits puts element i + k*stride into
bits k*p.. of byte i, with stride = ceil(n * p / 8). So packing is vertical arithmetic that vectorises, at any width
from 1 to 8.

A field `top(part)` holds the elements of largest magnitude: the k places in the block, ascending, as u32, then the k
values in the arithmetic's type. Numbers are little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

FLOAT_BYTES = {"f32": 4, "f16": 2, "bf16": 2}

PLACE_BYTES = 4

LARGEST_BLOCK = 1 << 20
"""Of elements: a block is encoded in one piece, which has to fit in cache; and a count of them is exact in f32."""


@dataclass(frozen=True, slots=True)
class WireType:
    """`kind` is f32, f16, bf16, real, uint, int or top; `real` is the type that the tensor's arithmetic uses (f32, or
    f64 for f64 tensors). `bits` is 1..8 for uint and int, 0 otherwise; `part` says how many a top keeps."""

    kind: str
    bits: int = 0
    part: float = 0.0

    def __repr__(self) -> str:
        """Kernels are named after it: a part is shown where there is one."""
        part = f", part={self.part!r}" if self.part else ""
        return f"WireType(kind={self.kind!r}, bits={self.bits!r}{part})"

    def __str__(self) -> str:
        if self.kind == "top":
            return f"top({self.part:g})"
        return f"{self.kind}({self.bits})" if self.bits else self.kind

    def kept(self, items: int) -> int:
        """How many of so many a top keeps: a part below 1 is a share of them, from 1 on a count."""
        wanted = self.part if self.part >= 1 else max(1, round(self.part * items))
        return min(items, int(wanted))

    def bytes_of(self, items: int, real_bytes: int) -> int:
        if self.kind == "top":
            return self.kept(items) * (PLACE_BYTES + real_bytes)
        if self.bits:
            return sum(-(-items * part // 8) for part in parts(self.bits))
        return items * (real_bytes if self.kind == "real" else FLOAT_BYTES[self.kind])


def parts(bits: int) -> Iterator[int]:
    """The powers of two that `bits` is made of, lowest first: 7 -> 1, 2, 4."""
    return (1 << k for k in range(4) if bits >> k & 1)


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    wire: WireType
    per_element: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a codec and what its blocks are. A *run* is what is encoded at once: an owner's share of a
    parameter, a piece of it, or, in an exchange without owners, a whole parameter.

    `unit` is block (`block` elements each, the last of a parameter may be shorter), tensor (the whole parameter is
    one block) or chunk (an owner's share of a parameter is one block, in an exchange without owners the parameter).
    With tensor and chunk each run is one block and is never cut; `block` is then 0. For a codec without `per` any
    block size gives the same bytes.
    """

    block: int
    fields: tuple[Field, ...]
    unit: str = "block"

    def block_of(self, elements: int) -> int:
        """The block size within a run of `elements`; at least 1."""
        return self.block if self.unit == "block" else max(elements, 1)

    def block_bytes(self, elements: int, real_bytes: int = 4) -> int:
        """Bytes of one block of `elements`."""
        return sum(f.wire.bytes_of(elements if f.per_element else 1, real_bytes) for f in self.fields)

    def bytes_of(self, elements: int, real_bytes: int = 4) -> int:
        """Bytes of one run of `elements` that starts at a block border."""
        block = self.block_of(elements)
        whole, rest = divmod(elements, block)
        size = whole * self.block_bytes(block, real_bytes)
        return size + (self.block_bytes(rest, real_bytes) if rest else 0)


EXACT = Layout(512, (Field("value", WireType("real"), True),))
"""Plain numbers of the arithmetic's type, one behind the other."""
