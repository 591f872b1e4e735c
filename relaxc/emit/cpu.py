"""Kernels -> one C++ source for CPUs. What is decided is decided here; codegen/kernels.cpp.j2 only spells it.

A block is worked on by plain loops that g++ vectorises, with its scratch in the first-level cache. Whole blocks have
their length compiled in; the short last one of a segment, and blocks that are a segment each, run the same text with a
length known at run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxc.emit import cpu_costs
from relaxc.emit.kernel import BLOCKWISE, BlockKernel, Store, Value
from relaxc.emit.spelling import Array, Item, KernelView, SectionView, sections, template
from relaxc.emit.stages import Loop

STACK_BYTES = 1 << 16
"""Scratch beyond this is not put on the stack of whatever thread runs the kernel."""
ASKING = range(128, 4097)
"""Block sizes at which the last of several runs over a block asks memory for later blocks (relaxrt/ahead.h)."""
SHORTEST_DISTANCE = 1024
"""How far ahead, in elements, and at least a block. Measured: minmax 8bit 1.28 -> 1.60 of memcpy, with the residual
0.77 -> 1.04; half the distance gave 1.40 and 0.98."""


def emit_kernels(kernels: Sequence[BlockKernel]) -> str:
    """One readable translation unit that includes relaxrt/ only; an extern "C" relaxrt_kernel for each kernel."""
    return template("kernels.cpp.j2").render(kernels=[_View(kernel) for kernel in kernels])


class _SectionView(SectionView):
    def ask_for(self, arrays: list[Array]) -> None:
        """Of these a last run asks memory for a later part, where they are loaded."""
        loaded = {int(v.detail or 0) for v in self.values if v.op == "operand" and v.per_element}
        self.ahead = [arrays[n] for n in sorted(loaded) if arrays]

    def loops(self, stage: int) -> Iterator[tuple[Loop, list[Array]]]:
        """With the operands of which a run asks memory for a later part."""
        yield from ((loop, self.ahead if loop.last else []) for loop in self.staged.loops(stage))


class _View(KernelView):
    """An element of a field is held in the message itself, or (fields of less than 8 bits, f16, and a top) in
    block-sized scratch that is packed or unpacked as a whole. A run of f16 is widened into scratch, and narrowed from
    there, as a whole."""

    total, near, widens = "total[i]", "near[i]", True

    def __init__(self, kernel: BlockKernel) -> None:
        super().__init__(kernel)
        self.distance = max(self.block or 0, SHORTEST_DISTANCE)
        made = [_SectionView(s, cpu_costs.scratch(s), self.items) for s in sections(kernel)]
        for section in made:
            section.ask_for(self.arrays if self.block in ASKING else [])
        self.main, self.gather = made[-1], made[0] if kernel.gather else None
        self.wide = cpu_costs.wide([v.op for v in self.values])
        self.places: dict[str, int] = {}
        self.room = self._most_arrays(kernel)
        self.on_stack = self.block is not None and self.room * self.block * self.real_bytes <= STACK_BYTES

    def _most_arrays(self, kernel: BlockKernel) -> int:
        scratch = sum(len(s.scratch) for s in (self.main, self.gather) if s)
        scratch += any(v.op in BLOCKWISE for s in sections(kernel) for v in s.values)
        return scratch + 2 * len(self.items) + sum(map(self.widened, self.arrays)) + (kernel.gather is not None)

    def direct(self, item: Item) -> bool:
        return item.field.per_element and not (item.packed or item.kind == "f16" or item.listed)

    def widened(self, array: Array) -> bool:
        return array.kind == "f16"

    def array(self, type: str, name: str) -> str:
        """The declaration of an array of a block's elements. Sections that do not live at once share places."""
        if self.on_stack:
            return f"alignas(64) {type} {name}[{self.block}];"
        place = self.places.setdefault(name, len(self.places))
        return f"{type}* const {name} = relaxrt::array<{type}, {self.real}>(room, {place}, n);"

    def element_in(self, item: Item) -> str:
        return f"{self.name(item, 'in')}[i]"

    def one_in(self, item: Item) -> str:
        return self.name(item, "in") + ("" if item.bits else "[0]")

    def element(self, array: Array) -> str:
        return f"{array.name}{'_wide' if self.widened(array) else ''}{'[0]' if array.one else '[i]'}"

    def put(self, store: Store, value: str) -> str:
        array = self.arrays[store.number]
        made = f"relaxrt::bf16_bits({value})" if array.kind == "bf16" else value
        return f"{self.element(array)} = {made}"

    def load(self, value: Value) -> str:
        array = self.arrays[int(value.detail or 0)]
        return f"relaxrt::bf16_value({self.element(array)})" if array.kind == "bf16" else self.element(array)
