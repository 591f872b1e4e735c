"""Program -> Paths: for every combination of what the host decides, a straight line of fragments and transfers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeGuard

from relaxc.program.codec import EXACT
from relaxc.program.gradients import take_gradient
from relaxc.program.ir import After, Body, Expression, Program, Step
from relaxc.program.passes.control import combinations, control_of
from relaxc.program.passes.cut import Draft, Entry, Mark, cut, is_near
from relaxc.program.passes.fragments import fragment
from relaxc.program.passes.items import Block, Item, Sent, all_items
from relaxc.program.passes.keeping import Memory, keep
from relaxc.program.passes.line import Line, Names, Specialiser, number_reads
from relaxc.program.passes.normal import Normal, normalise, refuse
from relaxc.program.passes.placement import stages, why
from relaxc.program.passes.start import start_fragments
from relaxc.program.passes.verify_paths import verify_paths
from relaxc.program.paths import STAGES, Fragment, Kept, Operation, Path, PathBody, Paths, Transfer, expressions
from relaxc.wire.routes import DEFAULT_ROUTE, NEIGHBOURLY


def to_paths(program: Program) -> Paths:
    """Raise SpecError where a body has more paths than are made, or needs what is not built (RX0340 to RX0343)."""
    return verify_paths(Paths(tuple(map(_body, program.bodies))))


def _body(body: Body) -> PathBody:
    gradient, rest = take_gradient(body.statements)
    if all(isinstance(statement, Step) for statement in rest):
        return PathBody(body.selector, gradient, body.states, (), (), (), (), (), (), body.span)
    return replace(_Body(body, normalise(body, rest)).made(), gradient=gradient)


def _lands_alone(item: Item) -> TypeGuard[Block]:
    return isinstance(item, Block) and isinstance(item.statement, After) and item.statement.asynchronous


def _transfer(sent: Sent) -> Transfer:
    exchange = sent.exchange
    if exchange.kind in NEIGHBOURLY and exchange.codec is None:
        exchange = replace(exchange, codec=EXACT, feedback="none")
    elsewhere = exchange.route not in ("", DEFAULT_ROUTE) or exchange.kind == "relay" or sent.shape == "cell"
    dense = exchange.codec is None or elsewhere
    leaves = "slot" if dense else "code"
    fed_back = is_near(exchange) and exchange.feedback != "none"  # decodes near value + residual: no fragment has that
    lands = "slot" if dense or sent.late or fed_back else "code"
    if exchange.codec is not None and exchange.codec.states and sent.copies > 1:
        help = "let them be further apart than they are late, or write a number for what is auto"
        raise refuse("RX0368", "a codec with states, and several of its exchanges under way", exchange.span, help)
    return Transfer(
        exchange, sent.code is not None, leaves, lands, sent.block, sent.copies, sent.after, sent.shape,
        sent.asynchronous,
    )  # fmt: skip


@dataclass
class _Body:
    """The paths of one body share its fragments and kept values."""

    body: Body
    normal: Normal
    names: Names = field(default_factory=Names)
    fragments: dict[Fragment, int] = field(default_factory=dict)
    pools: dict[str, list[int]] = field(default_factory=lambda: {"tensor": [], "cell": []})

    def made(self) -> PathBody:
        normal, body = self.normal, self.body
        self.kept: list[Kept] = list(normal.kept)
        self.transfers = tuple(map(_transfer, normal.sent))
        start = tuple(self.number(f) for f in start_fragments(body.states))
        paths = tuple(map(self.path, combinations(normal.guards, body.places)))
        landings = tuple(self.landing(item) for item in all_items(normal.items) if _lands_alone(item))
        return PathBody(
            body.selector, None, body.states, control_of(normal, body.span), self.transfers, tuple(self.kept),
            tuple(self.fragments), start, paths, body.span, owns=tuple(normal.owns), landings=landings,
        )  # fmt: skip

    def number(self, made: Fragment) -> int:
        return self.fragments.setdefault(made, len(self.fragments))

    def path(self, truths: tuple[bool, ...]) -> Path:
        return self.of_line(truths, Specialiser(self.normal, truths, self.names).run())

    def landing(self, block: Block) -> Path:
        """What an async block does where it lands outside of an iteration."""
        truths = tuple(number == block.guard for number in range(len(self.normal.guards)))
        return self.of_line(truths, Specialiser(self.normal, truths, self.names).run_landing(block))

    def of_line(self, truths: tuple[bool, ...], line: Line) -> Path:
        entries = keep(line, self.transfers, cut(line, self.normal.sent, self.transfers))
        memory, kept = Memory(line, self.transfers, entries), self.kept_names(line, entries)
        placed: dict[str, list[Operation]] = {}
        used: set[str] = set()
        for stage, entry in stages(line, entries):
            operation = self.operation(line, entry, memory, kept, used)
            placed.setdefault(stage, []).append(replace(operation, why=why(stage, entry, line)))
        return Path(
            truths, _numbers(line, used), tuple(line.last.items()),
            tuple((name, tuple(placed[name])) for name in STAGES if name in placed), line.steps, tuple(line.captures),
        )  # fmt: skip

    def operation(self, line: Line, entry: Entry, memory: Memory, kept: dict[str, str], used: set[str]) -> Operation:
        if isinstance(entry, Mark):
            return Operation(entry.kind, entry.number, entry.late)
        made = fragment(line, entry, memory.of(entry), kept.__getitem__)
        used.update(n for e in expressions(made) for n in number_reads(e))
        return Operation("compute", self.number(made))

    def kept_names(self, line: Line, entries: list[Entry]) -> dict[str, str]:
        """kept.N for what is kept within a path. Other paths use the same ones."""
        taken = {"tensor": 0, "cell": 0}
        names: dict[str, str] = {}
        for value in (v for entry in entries if isinstance(entry, Draft) for v in entry.keeps):
            shape = line.shapes[value]
            if value in names:
                continue
            if taken[shape] == len(self.pools[shape]):
                self.pools[shape].append(len(self.kept))
                self.kept.append(Kept(shape, 1))
            names[value] = f"kept.{self.pools[shape][taken[shape]]}"
            taken[shape] += 1
        return names


def _numbers(line: Line, used: set[str]) -> tuple[tuple[str, Expression], ...]:
    """The numbers that fragments, states and captures need, in order."""
    wanted = used | set(line.last.values()) | {n for _, _, e in line.captures for n in number_reads(e)}
    for name in reversed(line.numbers):
        if name in wanted:
            wanted.update(number_reads(line.numbers[name]))
    return tuple((name, e) for name, e in line.numbers.items() if name in wanted)
