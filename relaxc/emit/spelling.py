"""What the sources of all targets have in common: how types, numbers, fields and operands of a kernel are spelled."""

from __future__ import annotations

import hashlib
import math
import re
import struct
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

import relaxc
from relaxc import keep, resources
from relaxc.emit.arithmetic import PLAIN
from relaxc.emit.kernel import BlockKernel, Operand, Section, Value
from relaxc.emit.operands import ONE
from relaxc.emit.stages import Staged, of_block
from relaxc.emit.whole import whole
from relaxc.wire.layout import Field

C_TYPES = {"f32": "float", "f64": "double", "f16": "uint16_t", "bf16": "uint16_t"}
CALLS = frozenset({*PLAIN.values(), "divide", "power", "power_of_two", "finite", "guard"})
"""Operations that are calls of relaxrt/arithmetic.h, where the template has no shorter spelling."""


@cache
def template(name: str) -> jinja2.Template:
    """Of codegen/."""
    return _environment().get_template(name)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.folder("codegen")),
        bytecode_cache=_Kept(),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["literal"] = literal
    environment.globals["calls"] = CALLS
    return environment


class _Kept(jinja2.BytecodeCache):
    """Templates as Python, which takes jinja2 longer to make than to run."""

    def load_bytecode(self, bucket: Bucket) -> None:
        kept = keep.recall(_path(bucket))
        if kept is not None:
            bucket.bytecode_from_string(kept)

    def dump_bytecode(self, bucket: Bucket) -> None:
        keep.remember(_path(bucket), bucket.bytecode_to_string())


def _path(bucket: Bucket) -> Path:
    made_by = f"{relaxc.__version__} {jinja2.__version__} {sys.version}"
    name = hashlib.sha256(f"{made_by} {bucket.key} {bucket.checksum}".encode()).hexdigest()
    return resources.cache_folder() / "templates" / f"{name[:32]}.bytecode"


def literal(number: float, real: str) -> str:
    """A constant, rounded once from f64 to the arithmetic's type."""
    if real == "f32":
        try:
            number = struct.unpack("f", struct.pack("f", number))[0]
        except OverflowError:
            number = math.copysign(math.inf, number)
    if math.isnan(number):
        return f"relaxrt::nan<{C_TYPES[real]}>()"
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}relaxrt::infinity<{C_TYPES[real]}>()"
    return repr(number) + ("f" if real == "f32" else "")


@dataclass(frozen=True, slots=True)
class Item:
    """A field of a message."""

    number: int
    field: Field

    @property
    def kind(self) -> str:
        return self.field.wire.kind

    @property
    def bits(self) -> int:
        return self.field.wire.bits

    @property
    def packed(self) -> bool:
        """Whether its elements share bytes."""
        return self.field.per_element and 0 < self.bits < 8

    @property
    def listed(self) -> bool:
        return self.kind == "top"

    @property
    def halved(self) -> bool:
        """Whether its elements are f16, of which a CPU converts whole runs."""
        return self.field.per_element and self.kind == "f16"

    @property
    def part(self) -> str:
        return repr(float(self.field.wire.part))


@dataclass(frozen=True, slots=True)
class Array:
    """An operand. `kind` is the type of its elements in memory."""

    number: int
    operand: Operand
    kind: str
    name: str
    loaded: bool
    stored: bool

    @property
    def type(self) -> str:
        return C_TYPES[self.kind]

    @property
    def one(self) -> bool:
        """Whether a block sees one number of it."""
        return self.operand.type in ONE


class SectionView:
    """What a template asks of a section. `scratch` are the values that it keeps for later stages. `total` is how an
    element of the sum of messages is spelled."""

    total: str

    def __init__(self, section: Section, scratch: frozenset[int], items: list[Item]) -> None:
        self.section, self.staged = section, Staged(section, scratch)
        self.values = section.values
        self.stages = range(section.stages)
        self.scratch = sorted(scratch)
        self.names = [_name(i, v) for i, v in enumerate(section.values)]
        self.received = [items[n] for n in sorted({int(v.detail or 0) for v in section.values if v.op == "field"})]
        self.sent = [items[s.number] for s in section.stores if s.target == "field"]
        read = {a for v in section.values for a in v.arguments}
        self.read = read | {s.value for s in section.stores if not of_block(section, s)}
        self.scalars, self.scalar_stores = self.staged.scalars, self.staged.scalar_stores
        self.blockwise = self.staged.blockwise
        self._whole = whole(section.values)
        self.from_scratch = self.staged.from_scratch

    def whole(self, value: Value) -> str:
        """Whether the argument of a level has no fraction."""
        return "true" if value.arguments[0] in self._whole else "false"


class KernelView:
    """What a template asks of a kernel."""

    def __init__(self, kernel: BlockKernel) -> None:
        self.symbol, self.text, self.dtype, self.inputs = kernel.symbol, kernel.text, kernel.dtype, kernel.inputs
        self.block = kernel.block
        self.real, self.real_kind = C_TYPES[kernel.real], kernel.real
        self.real_bytes = 8 if kernel.real == "f64" else 4
        self.items = [Item(number, field) for number, field in enumerate(kernel.fields)]
        self.arrays = [_array(kernel, number) for number in range(len(kernel.operands))]
        self.values = [v for section in sections(kernel) for v in section.values]
        self.averages, self.dithers, self.chooses, self.weighs = map(
            self.has, ("average", "dither", "chosen", "weight")
        )
        self.nears = [self.arrays[int(v.detail or 0)] for v in self.values if v.op == "near"][:1]
        self.trips = any(s.target == "trip" for s in kernel.main.stores)
        self.counts = bool(self.nears) or self.trips
        self.given = sorted({int(v.detail or 0) for v in self.values if v.op == "given"})
        self.cells = any(a.stored and a.operand.type == "cell" for a in self.arrays)

    def has(self, op: str) -> bool:
        return any(v.op == op for v in self.values)

    def name(self, item: Item, direction: str) -> str:
        return f"{item.field.name}_{direction}{item.number}"


def sections(kernel: BlockKernel) -> list[Section]:
    return [kernel.main] if kernel.gather is None else [kernel.gather, kernel.main]


def _array(kernel: BlockKernel, number: int) -> Array:
    operand = kernel.operands[number]
    kind = kernel.dtype if operand.type == "tensor" else kernel.real
    loaded = any(v.op == "operand" and v.detail == number for s in sections(kernel) for v in s.values)
    stored = any(s.target == "operand" and s.number == number for section in sections(kernel) for s in section.stores)
    name = f"{re.sub(r'[^A-Za-z0-9]', '_', operand.name)}_p{number}"
    return Array(number, operand, kind, name, loaded, stored)


def _name(number: int, value: Value) -> str:
    return f"{value.name}_{number}" if value.name else f"v{number}"
