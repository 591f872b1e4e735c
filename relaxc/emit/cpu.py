"""Kernels -> one C++ source for CPUs. What is decided is decided here; codegen/kernels.cpp.j2 only spells it.

A block is worked on by plain loops that g++ vectorises, with its scratch in the first-level cache. Whole blocks have
their length compiled in; the short last one of a segment, and blocks that are a segment each, run the same text with a
length known at run time.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import jinja2

from relaxc import resources
from relaxc.emit import cpu_costs
from relaxc.emit.arithmetic import PLAIN
from relaxc.emit.kernel import BLOCKWISE, BlockKernel, Operand, Section, Store, Value
from relaxc.emit.operands import ONE
from relaxc.emit.stages import Loop, Staged, of_block
from relaxc.wire.layout import Field

C_TYPES = {"f32": "float", "f64": "double", "f16": "uint16_t", "bf16": "uint16_t"}
WHOLE = frozenset({"round", "floor", "dither", "number", "sign"})
"""Operations whose results have no fraction."""
CLOSED = frozenset({"add", "sub", "mul"})
CALLS = frozenset({*PLAIN.values(), "divide", "power", "finite", "guard"})
"""Operations that are calls of relaxrt/arithmetic.h, where the template has no shorter spelling."""
STACK_BYTES = 1 << 16
"""Scratch beyond this is not put on the stack of whatever thread runs the kernel."""
ASKING = range(128, 4097)
"""Block sizes at which the last of several runs over a block asks memory for later blocks (relaxrt/ahead.h)."""
SHORTEST_DISTANCE = 1024
"""How far ahead, in elements, and at least a block. Measured: minmax 8bit 1.28 -> 1.60 of memcpy, with the residual
0.77 -> 1.04; half the distance gave 1.40 and 0.98."""


def emit_kernels(kernels: Sequence[BlockKernel]) -> str:
    """One readable translation unit that includes relaxrt/ only; an extern "C" relaxrt_kernel for each kernel."""
    return _template().render(kernels=[_View(kernel) for kernel in kernels])


@cache
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(resources.folder("codegen"))
    environment = jinja2.Environment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["literal"] = literal
    environment.globals["calls"] = CALLS
    return environment.get_template("kernels.cpp.j2")


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
class _Item:
    """A field of a message. How an element of it is held while the loops run: `direct` in the message itself, else in
    block-sized scratch that is packed or unpacked as a whole (fields of less than 8 bits, f16, and a top)."""

    number: int
    field: Field

    @property
    def kind(self) -> str:
        return self.field.wire.kind

    @property
    def bits(self) -> int:
        return self.field.wire.bits

    @property
    def direct(self) -> bool:
        return self.field.per_element and not (0 < self.bits < 8 or self.kind in ("f16", "top"))

    @property
    def listed(self) -> bool:
        return self.kind == "top"

    @property
    def part(self) -> str:
        return repr(float(self.field.wire.part))


@dataclass(frozen=True, slots=True)
class _Array:
    """An operand in the generated code. A run of f16 is widened into scratch, and narrowed from there, as a whole."""

    number: int
    operand: Operand
    kind: str
    name: str
    loaded: bool
    stored: bool

    @property
    def wide(self) -> bool:
        return self.kind == "f16"

    @property
    def type(self) -> str:
        return C_TYPES[self.kind]

    @property
    def element(self) -> str:
        at = "[0]" if self.operand.type in ONE else "[i]"
        return f"{self.name}{'_wide' if self.wide else ''}{at}"

    @property
    def load(self) -> str:
        return f"relaxrt::bf16_value({self.element})" if self.kind == "bf16" else self.element

    def store(self, value: str) -> str:
        return f"{self.element} = {f'relaxrt::bf16_bits({value})' if self.kind == 'bf16' else value}"


class _SectionView:
    def __init__(self, section: Section, view: _View) -> None:
        self.section, self.staged = section, Staged(section, cpu_costs.scratch(section))
        self.values = section.values
        self.stages = range(section.stages)
        self.scratch = sorted(self.staged.scratch)
        self.names = [_name(i, v) for i, v in enumerate(section.values)]
        self.received = [view.items[n] for n in sorted({int(v.detail or 0) for v in section.values if v.op == "field"})]
        self.sent = [view.items[s.number] for s in section.stores if s.target == "field"]
        read = {a for v in section.values for a in v.arguments}
        read |= {s.value for s in section.stores if not of_block(section, s)}
        self.read = read
        loaded = {int(v.detail or 0) for v in section.values if v.op == "operand" and v.per_element}
        self.ahead = [view.arrays[n] for n in sorted(loaded)] if view.block in ASKING else []
        self.scalars, self.scalar_stores = self.staged.scalars, self.staged.scalar_stores
        self.blockwise = self.staged.blockwise
        self.from_scratch = self.staged.from_scratch

    def loops(self, stage: int) -> Iterator[tuple[Loop, list[_Array]]]:
        """With the operands of which a run asks memory for a later part."""
        yield from ((loop, self.ahead if loop.last else []) for loop in self.staged.loops(stage))

    def whole(self, value: Value) -> str:
        """Whether the argument of a level has no fraction."""
        return "true" if self._whole(self.values[value.arguments[0]]) else "false"

    def _whole(self, value: Value) -> bool:
        """Sums, differences and products of numbers without a fraction have none either, rounded or not."""
        if value.op == "constant":
            return value.detail is not None and value.detail.is_integer()
        return value.op in WHOLE or (value.op in CLOSED and all(self._whole(self.values[a]) for a in value.arguments))


class _View:
    """What the template asks of a kernel."""

    def __init__(self, kernel: BlockKernel) -> None:
        self.symbol, self.text, self.dtype, self.inputs = kernel.symbol, kernel.text, kernel.dtype, kernel.inputs
        self.block = kernel.block
        self.distance = max(self.block or 0, SHORTEST_DISTANCE)
        self.real, self.real_kind = C_TYPES[kernel.real], kernel.real
        self.items = [_Item(number, field) for number, field in enumerate(kernel.fields)]
        self.arrays = [_array(kernel, number) for number in range(len(kernel.operands))]
        self.main = _SectionView(kernel.main, self)
        self.gather = _SectionView(kernel.gather, self) if kernel.gather else None
        values = [v for section in _sections(kernel) for v in section.values]
        self.averages = any(v.op == "average" for v in values)
        self.dithers = any(v.op == "dither" for v in values)
        self.wide = cpu_costs.wide([v.op for v in values])
        self.chooses = any(v.op == "chosen" for v in values)
        self.weighs = any(v.op == "weight" for v in values)
        self.nears = [self.arrays[int(v.detail or 0)] for v in values if v.op == "near"][:1]
        self.counts = bool(self.nears) or any(s.target == "trip" for s in kernel.main.stores)
        self.given = sorted({int(v.detail or 0) for v in values if v.op == "given"})
        self.cells = any(a.stored and a.operand.type == "cell" for a in self.arrays)
        self.places: dict[str, int] = {}
        self.room = self._most_arrays(kernel)
        self.on_stack = self.block is not None and self.room * self.block * self._real_bytes() <= STACK_BYTES

    def _most_arrays(self, kernel: BlockKernel) -> int:
        scratch = sum(len(s.scratch) for s in (self.main, self.gather) if s)
        scratch += any(v.op in BLOCKWISE for s in _sections(kernel) for v in s.values)
        return scratch + 2 * len(self.items) + sum(a.wide for a in self.arrays) + (kernel.gather is not None)

    def _real_bytes(self) -> int:
        return 8 if self.real_kind == "f64" else 4

    def array(self, type: str, name: str) -> str:
        """The declaration of an array of a block's elements. Sections that do not live at once share places."""
        if self.on_stack:
            return f"alignas(64) {type} {name}[{self.block}];"
        place = self.places.setdefault(name, len(self.places))
        return f"{type}* const {name} = relaxrt::array<{type}, {self.real}>(room, {place}, n);"

    def name(self, item: _Item, direction: str) -> str:
        return f"{item.field.name}_{direction}{item.number}"

    def put(self, store: Store, value: str) -> str:
        return self.arrays[store.number].store(value)

    def load(self, value: Value) -> str:
        return self.arrays[int(value.detail or 0)].load


def _sections(kernel: BlockKernel) -> list[Section]:
    return [kernel.main] if kernel.gather is None else [kernel.gather, kernel.main]


def _array(kernel: BlockKernel, number: int) -> _Array:
    operand = kernel.operands[number]
    kind = kernel.dtype if operand.type == "tensor" else kernel.real
    sections = _sections(kernel)
    loaded = any(v.op == "operand" and v.detail == number for s in sections for v in s.values)
    stored = any(s.target == "operand" and s.number == number for section in sections for s in section.stores)
    name = f"{re.sub(r'[^A-Za-z0-9]', '_', operand.name)}_p{number}"
    return _Array(number, operand, kind, name, loaded, stored)


def _name(number: int, value: Value) -> str:
    return f"{value.name}_{number}" if value.name else f"v{number}"
