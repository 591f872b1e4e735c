"""Kernels -> one C++ source for CPUs. What is decided is decided here; codegen/kernels.cpp.j2 only spells it.

A block is worked on by plain loops that g++ vectorises, with its scratch in the first-level cache. Whole blocks have
their length compiled in; the short last one of a segment runs the same text with a length known at run time.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import jinja2

from relaxc import resources
from relaxc.emit.keep import needed
from relaxc.emit.kernel import REDUCTIONS, BlockKernel, Section, Store, Value
from relaxc.wire.layout import Field

C_TYPES = {"f32": "float", "f64": "double", "f16": "uint16_t", "bf16": "uint16_t"}
WHOLE = frozenset({"round", "floor", "dither", "number", "sign"})
"""Operations whose results have no fraction."""
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
class _Loop:
    """One run over the elements. `ordered` ones add up in lanes, the others reduce in any order and store.

    `ahead` names the arrays of which this run asks memory for a later part; it does not reduce then.
    """

    ordered: bool
    values: list[int]
    reductions: list[int]
    stores: list[Store]
    kept: list[int]
    ahead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Item:
    """A field of a message. How an element of it is held while the loops run: `direct` in the message itself, else in
    block-sized scratch that is packed or unpacked as a whole (fields of less than 8 bits, and f16)."""

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
        return self.field.per_element and not (0 < self.bits < 8 or self.kind == "f16")


class _SectionView:
    def __init__(self, section: Section, view: _View) -> None:
        self.section = section
        self.values = section.values
        self.stages = range(section.stages)
        self.kept = sorted(section.kept)
        self.names = [_name(i, v) for i, v in enumerate(section.values)]
        self.received = [view.items[n] for n in sorted({int(v.detail or 0) for v in section.values if v.op == "field"})]
        self.sent = [view.items[s.field] for s in section.stores if s.field is not None]
        self.reads_tensor = any(v.op == "tensor" for v in section.values)
        loaded = {v.op for v in section.values} & {"tensor", "residual"}
        self.loaded = tuple(sorted(loaded)) if view.block in ASKING else ()

    def scalars(self, stage: int) -> list[int]:
        """The values per block that a stage computes before it runs over the elements."""
        numbered = enumerate(self.values)
        return [i for i, v in numbered if v.stage == stage and not v.per_element and v.op not in REDUCTIONS]

    def reduced(self, stage: int) -> list[int]:
        return [i for i, v in enumerate(self.values) if v.stage == stage and v.op in REDUCTIONS]

    def scalar_stores(self, stage: int) -> list[Store]:
        return [s for s in self.section.stores if s.stage == stage and not s.per_element]

    def loops(self, stage: int) -> Iterator[_Loop]:
        sums = [r for r in self.reduced(stage + 1) if self.values[r].op == "reduce_sum"]
        others = [r for r in self.reduced(stage + 1) if self.values[r].op != "reduce_sum"]
        stores = [s for s in self.section.stores if s.stage == stage and s.per_element]
        kept = [k for k in self.kept if self.values[k].stage == stage]
        wanted = [self.values[r].arguments[0] for r in others] + [s.value for s in stores] + kept
        if others or stores or kept:
            ahead = self.loaded if stage and stage == self.stages[-1] else ()
            yield _Loop(False, needed(self.section, wanted, stage), others, stores, kept, ahead)
        if sums:
            wanted = [self.values[r].arguments[0] for r in sums]
            yield _Loop(True, needed(self.section, wanted, stage + 1), sums, [], [])  # what this stage keeps is there

    def whole(self, value: Value) -> str:
        """Whether the argument of a level has no fraction."""
        return "true" if self.values[value.arguments[0]].op in WHOLE else "false"

    def from_scratch(self, number: int, stage: int, ordered: bool) -> bool:
        return number in self.section.kept and self.values[number].stage < stage + ordered


class _View:
    """What the template asks of a kernel."""

    def __init__(self, kernel: BlockKernel) -> None:
        self.symbol, self.text, self.dtype, self.inputs = kernel.symbol, kernel.text, kernel.dtype, kernel.inputs
        self.block = kernel.layout.block
        self.distance = max(self.block, SHORTEST_DISTANCE)
        self.real, self.real_kind = C_TYPES[kernel.real], kernel.real
        self.tensor_type = C_TYPES[kernel.dtype]
        self.items = [_Item(number, field) for number, field in enumerate(kernel.layout.fields)]
        self.main = _SectionView(kernel.main, self)
        self.gather = _SectionView(kernel.gather, self) if kernel.gather else None
        ops = {v.op for v in kernel.main.values}
        targets = {s.target for s in kernel.main.stores}
        self.averages, self.dithers = "average" in ops, "dither" in ops
        self.writes_tensor = "tensor" in targets
        self.tensor = self.writes_tensor or "tensor" in ops
        self.residual = "residual" in targets or "residual" in ops
        self.scratch = "static thread_local" if self._scratch_bytes(kernel) > STACK_BYTES else "alignas(64)"

    def _scratch_bytes(self, kernel: BlockKernel) -> int:
        arrays = len(kernel.main.kept) + 2 * len(self.items) + 2
        return arrays * self.block * (8 if kernel.real == "f64" else 4)

    def name(self, item: _Item, direction: str) -> str:
        return f"{item.field.name}_{direction}{item.number}"


def _name(number: int, value: Value) -> str:
    return f"{value.name}_{number}" if value.name else f"v{number}"
