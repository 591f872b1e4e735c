"""Kernels -> one C++ source for CPUs. What is decided is decided here; codegen/kernels.cpp.j2 only spells it.

A block is worked on by plain loops that g++ vectorises, with its scratch in the first-level cache. Whole blocks have
their length compiled in; the short last one of a segment, and blocks that are a segment each, run the same text with a
length known at run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxc.emit import cpu_costs
from relaxc.emit.kernel import BLOCKWISE, BlockKernel, Section, Store, Value
from relaxc.emit.spelling import Array, Item, KernelView, SectionView, sections, template
from relaxc.emit.stages import Loop

STACK_BYTES = 1 << 16
"""Scratch beyond this is not put on the stack of whatever thread runs the kernel."""
ASKING = range(128, 4097)
"""Block sizes at which kernels ask memory for later blocks (relaxrt/ahead.h)."""
SHORTEST_DISTANCE = 1024
"""How far ahead, in elements, and at least a block. Measured: encoding minmax 8bit 1.63 -> 1.76 of memcpy, 4bit absmax
1.55 -> 1.74; adding up four messages and encoding 0.43 -> 0.47 of its own traffic."""


def emit_kernels(kernels: Sequence[BlockKernel]) -> str:
    """One readable translation unit that includes relaxrt/ only; an extern "C" relaxrt_kernel for each kernel."""
    return template("kernels.cpp.j2").render(kernels=[_View(kernel) for kernel in kernels])


class _SectionView(SectionView):
    """`leaves` and `lands` map a field to the operand from which it is converted into the message, or into which it is
    from there: a run of the block's length, so that no element is put into scratch between."""

    total = "total[i]"

    def __init__(self, section: Section, arrays: list[Array], items: list[Item]) -> None:
        self.lent = _lent(section, arrays)
        super().__init__(section, cpu_costs.scratch(section) - self.lent.keys(), items)
        leaving, landing = _leaving(section, arrays, items), _landing(section, arrays, items)
        self.leaves = {store.number: array for store, array in leaving.items()}
        self.lands = {int(section.values[s.value].detail or 0): array for s, array in landing.items()}
        self._elsewhere = {*leaving, *landing}

    def whole_block(self, number: int) -> str:
        """Where a value is, element after element."""
        return self.lent[number].name if number in self.lent else f"{self.names[number]}_scratch"

    def ask_for(self, arrays: list[Array]) -> None:
        """Of these the last run asks memory for a later part: other runs over the block come between, with which the
        processor's own prefetcher rests. Not where operands are written, too. Measured, with and without: encoding with
        the residual 0.87 and 1.01 of memcpy; decoding, which asked for what it would write, 1.39 and 1.62."""
        loaded = {int(v.detail or 0) for v in self.values if v.op == "operand" and v.per_element}
        writes = any(s.target == "operand" for s in self.section.stores)
        self.ahead = [] if writes or not arrays else [arrays[n] for n in sorted(loaded)]

    def loops(self, stage: int) -> Iterator[tuple[Loop, list[Array]]]:
        """With the operands of which a run asks memory for a later part."""
        for loop in self.staged.loops(stage, self._elsewhere):
            yield loop, self.ahead if loop.last else []


def _lent(section: Section, arrays: list[Array]) -> dict[int, Array]:
    """What is made of a whole block reads an operand where it is, if that has the arithmetic's type and is not written
    to meanwhile."""
    made_of = {a for v in section.values if v.op in BLOCKWISE for a in v.arguments}
    operands = {n: arrays[int(section.values[n].detail or 0)] for n in made_of if section.values[n].op == "operand"}
    return {n: array for n, array in operands.items() if array.kind in ("f32", "f64") and not array.stored}


def _leaving(section: Section, arrays: list[Array], items: list[Item]) -> dict[Store, Array]:
    """Stores to fields of what an operand holds, which nothing is written to."""
    found = {}
    for store in section.stores:
        value = section.values[store.value]
        if store.target == "field" and items[store.number].halved and value.op == "operand":
            found[store] = arrays[int(value.detail or 0)]
    return {store: array for store, array in found.items() if _is_run(array) and not array.stored}


def _landing(section: Section, arrays: list[Array], items: list[Item]) -> dict[Store, Array]:
    """Stores to operands, which nothing reads, of what a field holds: of each field one."""
    near = {int(v.detail or 0) for v in section.values if v.op == "near"}
    found: dict[int, Store] = {}
    for store in section.stores:
        value = section.values[store.value]
        if store.target == "operand" and value.op == "field" and items[int(value.detail or 0)].halved:
            array = arrays[store.number]
            if _is_run(array) and not array.loaded and store.number not in near:
                found.setdefault(store.value, store)
    return {store: arrays[store.number] for store in found.values()}


def _is_run(array: Array) -> bool:
    """Of numbers in the arithmetic's type, as they are in memory or widened as a whole."""
    return array.kind != "bf16" and not array.one


class _View(KernelView):
    """An element of a field is held in the message itself, or (fields of less than 8 bits, f16, and a top) in
    block-sized scratch that is packed or unpacked as a whole. A run of f16 is widened into scratch, and narrowed from
    there, as a whole; one of a message is so from or into an operand itself, where nothing is computed between."""

    near, widens = "near[i]", True

    def __init__(self, kernel: BlockKernel) -> None:
        super().__init__(kernel)
        self.distance = max(self.block or 0, SHORTEST_DISTANCE)
        self.asks = self.block in ASKING
        made = [_SectionView(s, self.arrays, self.items) for s in sections(kernel)]
        for section in made:
            section.ask_for(self.arrays if self.asks else [])
        self.main, self.gather = made[-1], made[0] if kernel.gather else None
        if self.gather is not None:  # the first message needs no total of zeros before it: x + -0 is x
            self.gather.total = f"(m == 0 ? -{self.real}(0) : total[i])"
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

    def place(self, array: Array) -> str:
        return f"{array.name}_wide" if self.widened(array) else array.name

    def element(self, array: Array) -> str:
        return self.place(array) + ("[0]" if array.one else "[i]")

    def put(self, store: Store, value: str) -> str:
        array = self.arrays[store.number]
        made = f"relaxrt::bf16_bits({value})" if array.kind == "bf16" else value
        return f"{self.element(array)} = {made}"

    def load(self, value: Value) -> str:
        array = self.arrays[int(value.detail or 0)]
        return f"relaxrt::bf16_value({self.element(array)})" if array.kind == "bf16" else self.element(array)
