"""Drafts -> paths.Fragment: every value of a draft spelled out over what the draft reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from relaxc.program.ir import Apply, Expression, Let, Optimizer, Read, Reduce, within
from relaxc.program.passes.cut import Draft
from relaxc.program.passes.keeping import Held
from relaxc.program.passes.line import STEPPED, Line
from relaxc.program.paths import FINITE, STORED, Fragment, Store

DEEPEST = 12

KeptName = Callable[[str], str]
"""kept.N for a value that is kept within a path."""


def fragment(line: Line, draft: Draft, held: Held, kept: KeptName) -> Fragment:
    return _Writer(line, draft, held, kept).run()


@dataclass
class _Writer:
    line: Line
    draft: Draft
    held: Held
    kept: KeptName
    lets: list[Let] = field(default_factory=list)
    made: dict[str, Expression] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    """How many definitions have been put into one expression."""
    late: set[str] = field(default_factory=set)
    versions: Counter[str] = field(default_factory=Counter)

    def run(self) -> Fragment:
        draft = self.draft
        self.uses = self.count()
        for made in (v for v in self.line.order if v in self.uses):
            self.make(made)
        value = None if draft.value is None else self.value(draft.value)
        near = None if draft.near is None else self.value(draft.near)
        stores = [Store(target, self.stored(target, v)) for target, v in draft.stores]
        stores += [Store(self.kept(v), self.value(v)) for v in draft.keeps]
        return Fragment(
            tuple(self.lets), tuple(stores), draft.sends, value, draft.receives, tuple(sorted(self.late)),
            draft.measures, near,
        )  # fmt: skip

    def definition(self, value: str) -> Expression | None:
        if value in self.held:
            return None
        return self.line.defined.get(value) or self.line.norms.get(value)

    def count(self) -> Counter[str]:
        """How often each value is read in this draft."""
        uses: Counter[str] = Counter()
        open_ = self.draft.outputs()
        while open_:
            value = open_.pop()
            uses[value] += 1
            if uses[value] == 1 and (e := self.definition(value)) is not None:
                open_ += [name for name in _reads(e) if name in self.line.shapes]
        return uses

    def make(self, value: str) -> None:
        """What is read more than once, and what grows too deep, is a let; the rest stands where it is read."""
        e = self.definition(value)
        if e is None or (self.uses[value] == 1 and self.is_stored_plainly(value, e)):
            return
        depth = 1 + max((self.depths.get(name, 0) for name in _reads(e)), default=0)
        written = self.written(e)
        if self.uses[value] > 1 or value in self.line.norms or depth > DEEPEST:
            let = Let(self.name(value), written)
            self.lets.append(let)
            self.made[value] = Read(let.name)
        else:
            self.made[value], self.depths[value] = written, depth

    def is_stored_plainly(self, value: str, e: Expression) -> bool:
        """A store rounds, and keeps what is finite, by itself."""
        target = next((t for t, v in self.draft.stores if v == value), None)
        if target is None or not isinstance(e, Apply):
            return False
        if e.function == STORED:
            return target in ("weight", "grad")
        return e.function == FINITE and isinstance(old := e.arguments[1], Read) and self.held.get(old.name) == target

    def stored(self, target: str, value: str) -> Expression:
        if value in self.held or value in self.made:
            return self.value(value)
        e = self.definition(value)
        assert isinstance(e, Apply), f"{value} is not known in its fragment"
        return self.written(e.arguments[0])

    def value(self, value: str) -> Expression:
        return self.operand(value) if value in self.held else self.made[value]

    def operand(self, value: str) -> Expression:
        operand = self.held[value]
        if operand.startswith("keep "):
            return Read(self.kept(value))
        if operand.startswith("optimizer."):
            return Optimizer(operand.removeprefix("optimizer.").removesuffix(STEPPED), tensor=True)
        if value.startswith("late."):
            self.late.add(operand)
        return Read(operand)

    def name(self, value: str) -> str:
        """The same names for the same arithmetic, whatever came before in the path: versions count anew."""
        base, at, _ = value.partition("@")
        if not at:
            return f"{value}@0" if value in ("arrived", "coded", "own_coded") else value
        self.versions[base] += 1
        return f"{base}@{self.versions[base]}"

    def written(self, e: Expression) -> Expression:
        match e:
            case Read(name=name) if name in self.line.shapes:
                return self.value(name)
            case Apply(function=function, arguments=arguments):
                return Apply(function, tuple(map(self.written, arguments)))
            case Reduce(function=function, argument=argument):
                return Reduce(function, self.written(argument))
        return e


def _reads(e: Expression) -> list[str]:
    """Every read, as often as it stands there."""
    return [part.name for part in within(e) if isinstance(part, Read)]
