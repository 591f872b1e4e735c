"""Kernels -> one CUDA source. What is decided is decided here; codegen/kernels.cu.j2 only spells it.

A thread block works on a codec block at a time. A thread takes runs of a few neighbouring elements, the same ones in
each stage; what later stages need is kept on chip, or in global scratch where that is too small. Reductions meet at a
barrier. Many messages are decoded element by element where their total is needed; or, where a message has to be seen as
a whole, one after the other into a total in scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxc.emit import cuda_costs
from relaxc.emit.kernel import REDUCTIONS, BlockKernel, Section, Store, Value
from relaxc.emit.spelling import Array, Item, KernelView, SectionView, template
from relaxc.emit.stages import Loop
from relaxc.manifest import SCRATCH_ROUNDED, scratch_bytes
from relaxc.wire.layout import Field

PARTS = 2 * 32 + 2
"""Numbers of 4 bytes that a top needs beside its bins (relaxrt/cuda_top.h)."""


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched. `threads` is blockDim.x; `per_block` elements are a codec block (None: each segment is
    one, an empty segment only if `empty`). `fields` are those of a block's message, `real_bytes` the bytes of a number
    of the arithmetic's type."""

    symbol: str
    threads: int
    per_block: int | None
    empty: bool
    scratch_per_element: int
    real_bytes: int
    fields: tuple[Field, ...]

    def blocks_of(self, elements: int) -> int:
        """Codec blocks of a segment."""
        if self.per_block is None:
            return 1 if elements or self.empty else 0
        return -(-elements // self.per_block)

    def bytes_of(self, elements: int) -> int:
        """Of a segment's part of a message."""
        if self.per_block is None:
            return self._block_bytes(elements) if elements else 0
        whole, rest = divmod(elements, self.per_block)
        return whole * self._block_bytes(self.per_block) + (self._block_bytes(rest) if rest else 0)

    def scratch_bytes(self, largest: int) -> int:
        """Of global memory for each thread block; `largest` is the number of elements of the largest codec block."""
        return scratch_bytes(self.scratch_per_element, largest)

    def _block_bytes(self, elements: int) -> int:
        return sum(f.wire.bytes_of(elements if f.per_element else 1, self.real_bytes) for f in self.fields)


def emit_cuda(kernels: Sequence[BlockKernel]) -> tuple[str, tuple[Launch, ...]]:
    """One readable translation unit that includes relaxrt/ only, with an extern "C" __global__ function for each kernel
    (relaxrt/cuda_abi.h), and how each is launched."""
    views = [_View(kernel) for kernel in kernels]
    return template("kernels.cu.j2").render(kernels=views), tuple(view.launch for view in views)


class _SectionView(SectionView):
    total = "total_here[j]"

    def __init__(self, section: Section, scratch: frozenset[int], items: list[Item], prefix: str) -> None:
        super().__init__(section, scratch, items)
        self.prefix = prefix
        self.stored_ones = [s for s in section.stores if s.target == "operand" and not s.per_element]
        """At the very end: other threads may have read the old ones late."""

    def room(self, value: int) -> str:
        return f"{self.prefix}{self.names[value]}_kept"

    def type_of(self, value: int, real: str) -> str:
        return "bool" if self.values[value].truth else real

    def sent_ones(self, stage: int) -> list[Store]:
        return [s for s in self.scalar_stores(stage) if s.target != "operand"]

    def runs(self, stage: int) -> list[Loop]:
        return [loop for loop in self.staged.loops(stage) if not loop.ordered]

    def reductions(self, stage: int) -> list[int]:
        """Those that are there after the run of a stage: extremes first, then sums."""
        found = [i for i, v in enumerate(self.values) if v.stage == stage + 1 and v.op in REDUCTIONS]
        return sorted(found, key=lambda i: self.values[i].op == "reduce_sum")

    def sums(self, stage: int) -> list[int]:
        return [r for r in self.reductions(stage) if self.values[r].op == "reduce_sum"]

    @property
    def reduced(self) -> list[int]:
        return [r for stage in self.stages for r in self.reductions(stage)]

    def loaded(self, loop: Loop, stage: int) -> list[int]:
        """The values of a run that are read as runs, from scratch or from memory."""
        read = ("operand", "near", "field", "total")
        return [n for n in loop.values if self.from_scratch(n, stage, False) or self.values[n].op in read]

    def transforms(self) -> list[int]:
        return [i for i, v in enumerate(self.values) if v.op in ("dct", "idct")]


class _View(KernelView):
    """A field's elements are read from the message where they are needed, but for a top, which is spread into scratch.
    Levels of less than 8 bits are put into scratch and packed at the end, all others written as they come."""

    near, widens = "near_here[j]", False

    def __init__(self, kernel: BlockKernel) -> None:
        super().__init__(kernel)
        self.threads, self.run = cuda_costs.threads(kernel), cuda_costs.run(kernel)
        self.digit = cuda_costs.digit(kernel)
        self.warps = self.threads // cuda_costs.WARP
        self.flat = cuda_costs.flat(kernel)
        self.main = _SectionView(kernel.main, cuda_costs.scratch(kernel.main, self.flat), self.items, "")
        self.gather = self._gather(kernel)
        self.all = [s for s in (self.gather, self.main) if s]
        self.rooms = self._rooms()
        self.selects = self.has("top")
        self.meets = bool(self.rooms or any(s.reduced or s.stored_ones for s in self.all))
        """Whether threads see what others did."""
        self.on_chip = self.block is not None and self._chip_bytes() <= cuda_costs.ON_CHIP_BYTES
        per_element = 0 if self.on_chip else len(self.rooms) * self.real_bytes
        self.launch = Launch(
            self.symbol, self.threads, self.block, self.cells, per_element, self.real_bytes, kernel.fields
        )  # fmt: skip

    def _gather(self, kernel: BlockKernel) -> _SectionView | None:
        if kernel.gather is None:
            return None
        return _SectionView(kernel.gather, cuda_costs.scratch(kernel.gather), self.items, "each_")

    def _rooms(self) -> list[tuple[str, str]]:
        """Arrays of a block's elements: types and names."""
        rooms = [(s.type_of(n, self.real), s.room(n)) for s in self.all for n in s.scratch]
        rooms += [(self.real, s.prefix + self.name(i, "in")) for s in self.all for i in s.received if i.listed]
        rooms += [("uint8_t", self.name(item, "out")) for item in self.main.sent if item.packed]
        rooms += [(self.real, "total")] if self.gather and not self.flat else []
        return rooms + ([(self.real, "block_room")] if any(s.transforms() for s in self.all) else [])

    def _chip_bytes(self) -> int:
        size = {"uint8_t": 1, "bool": 1}
        block = -(-(self.block or 0) // SCRATCH_ROUNDED) * SCRATCH_ROUNDED
        fixed = (2**self.digit + PARTS) * 4 if self.selects else 0
        fixed += sum((8 * max(self.sides) + 4) * self.real_bytes for _ in self.sides[:1])
        fixed += sum(len(s.reduced) for s in self.all) * self.warps * self.real_bytes
        return fixed + sum(size.get(type, self.real_bytes) * block for type, _ in self.rooms)

    @property
    def sides(self) -> list[int]:
        """Of transforms."""
        return sorted({int(v.detail or 0) for v in self.values if v.op in ("dct", "idct")})

    def array(self, place: int) -> str:
        """The declaration of an array of scratch in global memory."""
        type, name = self.rooms[place]
        return f"{type}* const {name} = relaxrt::scratch_array<{type}, {self.real}>(call, {place}, n);"

    @property
    def rounded_block(self) -> int:
        return -(-(self.block or 0) // SCRATCH_ROUNDED) * SCRATCH_ROUNDED

    def held(self, item: Item) -> str:
        """The type of a field's item in a message."""
        if item.bits:
            return "uint8_t"
        return {"f32": "float", "real": self.real}.get(item.kind, "uint16_t")

    def element_in(self, item: Item) -> str:
        return f"{self.name(item, 'in')}_here[j]"

    def one_in(self, item: Item) -> str:
        return self.name(item, "in")

    def element(self, array: Array) -> str:
        return f"{array.name}[0]" if array.one else f"{array.name}_here[j]"

    def put(self, store: Store, value: str) -> str:
        array = self.arrays[store.number]
        made = f"relaxrt::{array.kind}_bits({value})" if array.kind in ("f16", "bf16") else value
        return f"{array.name}[0] = {made}" if array.one else f"{array.name}_next[j] = {made}"

    def load(self, value: Value) -> str:
        array = self.arrays[int(value.detail or 0)]
        halved = array.kind in ("f16", "bf16")
        return f"relaxrt::{array.kind}_value({self.element(array)})" if halved else self.element(array)

    def stored_items(self, loop: Loop) -> list[Item]:
        return [self.items[s.number] for s in loop.stores if s.target == "field"]

    def stored_arrays(self, loop: Loop) -> list[Array]:
        return [self.arrays[s.number] for s in loop.stores if s.target == "operand"]

    def totals(self, loop: Loop) -> bool:
        return any(s.target == "total" for s in loop.stores)

    @property
    def packs(self) -> list[Item]:
        return [item for item in self.main.sent if item.packed]

    @property
    def packs_at_once(self) -> bool:
        """Whether no barrier stands between the levels and their packing."""
        last = self.main.section.stages - 1
        stores = [s for s in self.main.section.stores if s.target == "field" and s.stage == last]
        return any(self.items[s.number].packed for s in stores)
