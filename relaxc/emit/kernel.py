"""The kernel IR: a fused kernel over blocks of elements, the same for every target.

A section is a list of values in single assignment. A value is one number per element or one per block. The work of a
block is a sequence of *stages*: stage s first computes its values per block, then runs over the elements of the block
once. A reduction over values of stage s is there from stage s + 1 on, and so is a blockwise operation on them, which
needs all elements of the block to make any. What a later stage needs of an earlier one is for
the target to compute again or to put into block-sized scratch.

All loads of operands see what memory held before the kernel: stores to operands are in the last stage, and come last in
what it does for an element.

Operations, with `a`, `b` as arguments (a *truth* is a comparison's result, else all are of the arithmetic's type):

    constant                   the number `detail`, folded in f64
    given                      number `detail` of the call's, rounded once
    count, average             of a block's elements; 1 / workers
    index                      an element's number in its block
    near                       what the input at hand is decoded near to: values of the call's, else operand `detail`
    operand                    operand `detail`: loaded per element, or a cell's one element
    total, weight              the sum of the decoded inputs; what the input at hand is multiplied by
    field                      what was received as field `detail` (per element or per block)
    add sub mul neg            IEEE, never contracted
    over, divide               a / b as IEEE has it, and a / b or 0 where b is 0
    least greatest sqrt abs sign round floor logb
    power exp log log2         in f64, rounded once
    power_of_two               2 to a, of which is known that it has no fraction
    lt le gt ge eq ne          to a truth; `number` makes 1 or 0 of it
    and or not where           on truths; where(truth, a, b)
    finite                     a truth: neither infinite nor NaN
    dither                     floor(a + u)
    chosen                     a truth: whether this is the element that everyone chooses of its block
    top                        a where it is among the largest, as field `detail` holds them, 0 elsewhere
    dct idct                   a of the whole block, transformed with sides of `detail`
    level                      a cut off, clamped to field `detail`'s range, 0 for NaN
    narrow, stored             a rounded to the float type of field `detail`, or of the parameter
    reduce_min reduce_max      of the elements, in any order, of unspecified value where one is NaN
    reduce_nan                 a truth: whether one is NaN
    reduce_sum                 in the order of wire/sums.py
    guard                      guard(truth, a): NaN where the truth holds, else a + 0
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from relaxc.wire.layout import Field

TRUTHS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "finite", "chosen", "reduce_nan"})
REDUCTIONS = frozenset({"reduce_min", "reduce_max", "reduce_nan", "reduce_sum"})
BLOCKWISE = frozenset({"top", "dct", "idct"})
DTYPES = ("f32", "f16", "bf16", "f64")


@dataclass(frozen=True, slots=True)
class Value:
    """`arguments` are places in the section's list. `name` is a hint for readers: a let, a field or an operand."""

    op: str
    arguments: tuple[int, ...]
    per_element: bool
    stage: int
    detail: float | None = None
    name: str = field(default="", compare=False)

    @property
    def truth(self) -> bool:
        return self.op in TRUTHS


@dataclass(frozen=True, slots=True)
class Store:
    """Write `value` in stage `stage` to `target`: field `number` of the output, operand `number`, total, or trip, the
    byte of this block in an output that has one for each."""

    target: str
    value: int
    per_element: bool
    stage: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class Section:
    values: tuple[Value, ...]
    stores: tuple[Store, ...]

    @property
    def stages(self) -> int:
        return 1 + max((store.stage for store in self.stores), default=0)

    @property
    def structure(self) -> str:
        """Equal for sections that do the same under other names."""
        return repr([[replace(v, name="") for v in self.values], self.stores])

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        out = []
        for stage in range(self.stages):
            out.append(f"  stage {stage}")
            shown = [(i, v) for i, v in enumerate(self.values) if v.stage == stage]
            for per_element in (False, True):
                out += [f"    {_line(i, v)}" for i, v in shown if v.per_element == per_element]
                stores = [s for s in self.stores if s.stage == stage and s.per_element == per_element]
                out += [f"    {_target(s)} <- %{s.value}" for s in stores]
        return out


def _line(number: int, value: Value) -> str:
    detail = [] if value.detail is None else [f"{value.detail:g}"]
    inside = ", ".join([*detail, *(f"%{a}" for a in value.arguments)])
    mark = "[i]" if value.per_element else ""
    return f"%{number}{mark} = {value.op}({inside})" + (f"  # {value.name}" if value.name else "")


def _target(store: Store) -> str:
    name = store.target if store.target in ("total", "trip") else f"{store.target} {store.number}"
    return name + ("[i]" if store.per_element else "")


@dataclass(frozen=True, slots=True)
class Operand:
    """`type` is tensor (the parameter's own type), real (the arithmetic's), cell (one number of that type for a
    parameter) or block (one for each block)."""

    name: str = field(compare=False)
    type: str


@dataclass(frozen=True, slots=True)
class BlockKernel:
    """`block` is in elements; None where each segment is one block. `fields` are those of its messages. `inputs` is
    none, one or many. Where it is many, `gather` runs for each message and adds to `total`, which starts as -0; `main`
    reads the fields of this worker's own. Else `gather` is None and `main` reads those of the one message."""

    symbol: str
    text: str
    dtype: str
    block: int | None
    fields: tuple[Field, ...]
    operands: tuple[Operand, ...]
    inputs: str
    gather: Section | None
    main: Section

    @property
    def real(self) -> str:
        return real_of(self.dtype)

    @property
    def digest(self) -> str:
        """Equal for kernels that do the same, whatever the names of what they do it to."""
        parts = (self.dtype, self.block, self.fields, [o.type for o in self.operands], self.inputs)
        sections = (self.gather.structure if self.gather else "", self.main.structure)
        return hashlib.sha256(repr((parts, sections)).encode()).hexdigest()[:10]

    def __str__(self) -> str:
        head = f"kernel {self.symbol}: {self.text}, {self.dtype} in {self.real}, inputs {self.inputs}"
        operands = "  operands " + ", ".join(f"{o.name}: {o.type}" for o in self.operands)
        gather = [] if self.gather is None else [" for each input", str(self.gather)]
        return "\n".join([head, *([operands] if self.operands else []), *gather, " per block", str(self.main)])


def real_of(dtype: str) -> str:
    """The type in which arithmetic on a parameter is done."""
    return "f64" if dtype == "f64" else "f32"
