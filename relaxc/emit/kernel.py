"""The kernel IR: a fused kernel over the blocks of a codec, the same for every target.

A section is a list of values in single assignment. A value is one number per element or one per block. The work of a
block is a sequence of *stages*: stage s first computes its values per block, then runs over the elements of the block
once. A reduction over values of stage s is there from stage s + 1 on. A value per element that later stages need is
recomputed there, or *kept* in block-sized scratch where that is cheaper (emit/keep.py).

Operations, with `a`, `b` as arguments (a *truth* is a comparison's result, else all are of the arithmetic's type):

    constant                   the number `detail`, folded in f64
    count, average             of a block's elements; 1 / workers
    tensor, residual, total    loads per element; total is the sum of the decoded inputs
    field                      what was received as field `detail` (per element or per block)
    add sub mul neg            IEEE, never contracted
    over, divide               a / b with b known not to be 0, and a / b or 0 where b is 0
    least greatest sqrt abs sign round floor power
    lt le gt ge eq ne          to a truth; `number` makes 1 or 0 of it
    and or not where           on truths; where(truth, a, b)
    finite                     a truth: neither infinite nor NaN
    dither                     floor(a + u)
    level                      a cut off, clamped to field `detail`'s range, 0 for NaN
    narrow                     a rounded to the float type of field `detail`
    reduce_min reduce_max      of the elements, in any order, of unspecified value where one is NaN
    reduce_nan                 a truth: whether one is NaN
    reduce_sum                 in the order of wire/sums.py
    guard                      guard(truth, a): NaN where the truth holds, else a + 0
"""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxc.wire.layout import Layout

TRUTHS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "finite", "reduce_nan"})
REDUCTIONS = frozenset({"reduce_min", "reduce_max", "reduce_nan", "reduce_sum"})
DTYPES = ("f32", "f16", "bf16", "f64")


@dataclass(frozen=True, slots=True)
class Value:
    """`arguments` are places in the section's list. `name` is a hint for readers: a let or a field of the codec."""

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
    """Write `value` to `target`: field (number `field` of the output), residual, tensor or total, in stage `stage`."""

    target: str
    value: int
    per_element: bool
    stage: int
    field: int | None = None


@dataclass(frozen=True, slots=True)
class Section:
    values: tuple[Value, ...]
    stores: tuple[Store, ...]
    kept: frozenset[int] = frozenset()

    @property
    def stages(self) -> int:
        return 1 + max((store.stage for store in self.stores), default=0)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        out = []
        for stage in range(self.stages):
            out.append(f"  stage {stage}")
            shown = [(i, v) for i, v in enumerate(self.values) if v.stage == stage]
            for per_element in (False, True):
                out += [f"    {self._line(i, v)}" for i, v in shown if v.per_element == per_element]
                stores = [s for s in self.stores if s.stage == stage and s.per_element == per_element]
                out += [f"    {_target(s)} <- %{s.value}" for s in stores]
        return out

    def _line(self, number: int, value: Value) -> str:
        detail = [] if value.detail is None else [f"{value.detail:g}"]
        inside = ", ".join([*detail, *(f"%{a}" for a in value.arguments)])
        marks = ("[i]" if value.per_element else "") + (" kept" if number in self.kept else "")
        return f"%{number}{marks} = {value.op}({inside})" + (f"  # {value.name}" if value.name else "")


def _target(store: Store) -> str:
    name = store.target if store.field is None else f"field {store.field}"
    return name + ("[i]" if store.per_element else "")


@dataclass(frozen=True, slots=True)
class BlockKernel:
    """`inputs` is none, one or many. Where it is many, `gather` runs for each message and adds to `total`, which starts
    as -0; else it is None and `main` reads the fields of the one message itself."""

    symbol: str
    text: str
    layout: Layout
    dtype: str
    inputs: str
    gather: Section | None
    main: Section

    @property
    def real(self) -> str:
        return "f64" if self.dtype == "f64" else "f32"

    def __str__(self) -> str:
        head = f"kernel {self.symbol}: {self.text}, {self.dtype} in {self.real}, inputs {self.inputs}"
        gather = [] if self.gather is None else [" for each input", str(self.gather)]
        return "\n".join([head, *gather, " per block", str(self.main)])
