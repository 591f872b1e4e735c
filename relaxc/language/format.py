"""Canonical layout: one statement a line, two blanks of indentation, comments where they stood.

The text is a list of rows. A row knows where it came from, which is how comments and blank lines find their places.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from relaxc.language import syntax
from relaxc.language.source import Source

WIDTH = 100
"""Clauses that make a longer line get a line each."""

INDENT = "  "
LOOSEST, TIGHTEST = 1, 9
BINDING = {"or": 1, "and": 2, "+": 5, "-": 5, "*": 6, "/": 6, "^": 8}
COMPARISON = 4
NOT, NEGATIVE = 3, 7


def format(file: syntax.File) -> str:
    """The text of `file` in canonical layout: parse(format(file)) == file, and format of that is the same text."""
    rows = [row for item in file.items for row in _item(item, file.comments)]
    return "".join(f"{line}\n" for line in _lines(_placed(file, rows)))


def statement(item: syntax.Relax) -> str:
    """A `relax` statement on one line, however long."""
    header = _header(item)
    if item.clauses is None:
        return header
    return _one_line(header, [_clause(clause) for clause in item.clauses])


# --- expressions


def expression(e: syntax.Expression, least: int = LOOSEST) -> str:
    """The text of an expression, in parentheses where it binds less than `least`."""
    text, binding = _bound(e)
    return text if binding >= least else f"({text})"


def _bound(e: syntax.Expression) -> tuple[str, int]:
    """The text and how tightly it binds."""
    match e:
        case syntax.Binary():
            return _binary(e)
        case syntax.Unary(operator="-", operand=operand):
            return f"-{expression(operand, NEGATIVE)}", NEGATIVE
        case syntax.Unary(operand=operand):
            return f"not {expression(operand, NOT)}", NOT
        case syntax.Call():
            return f"{e.function}({', '.join(_arguments(e))})", TIGHTEST
        case _:
            return _atom(e), TIGHTEST


def _binary(e: syntax.Binary) -> tuple[str, int]:
    binding = BINDING.get(e.operator, COMPARISON)
    if e.operator == "^":
        left, right = TIGHTEST, NEGATIVE
    else:
        left, right = binding + (binding == COMPARISON), binding + 1
    return f"{expression(e.left, left)} {e.operator} {expression(e.right, right)}", binding


def _arguments(call: syntax.Call) -> Iterator[str]:
    yield from map(expression, call.arguments)
    for keyword in call.keywords:
        yield f"{keyword.name} = {expression(keyword.value)}"


def _atom(e: syntax.Number | syntax.Quantity | syntax.String | syntax.Name | syntax.Member) -> str:
    match e:
        case syntax.Number():
            return e.text
        case syntax.Quantity():
            return number(e.value) + _unit(e)
        case syntax.String():
            return f'"{e.value}"'
        case syntax.Name():
            return e.name
        case syntax.Member():
            return f"{e.base}.{e.name}"


def _unit(e: syntax.Quantity) -> str:
    return "steps" if e.unit == "step" and e.value != 1 else e.unit


def number(value: float) -> str:
    """The shortest text of a number that reads back as the same number."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e16 else repr(value)


# --- rows


@dataclass(frozen=True, slots=True)
class Row:
    """One line, for the text from `start` to `end`. `outer` marks the ends of a top-level item of many rows."""

    level: int
    text: str
    start: int
    end: int
    outer: str = ""
    comment: str = field(default="", kw_only=True)

    @property
    def closes(self) -> bool:
        return self.text == "}"


def _item(item: syntax.Item, comments: Sequence[syntax.Comment]) -> list[Row]:
    match item:
        case syntax.Param():
            return [_row(0, item, f"param {item.name} = {expression(item.value)}")]
        case syntax.Cluster():
            return _with_clauses(item, "cluster", item.span.start + len("cluster"), item.clauses, comments)
        case syntax.Relax():
            return _relax(item, comments)
        case syntax.Algorithm():
            return _definition(item, "algorithm", _statements(1, item.body, comments))
        case syntax.Codec():
            return _definition(item, "codec", [_row(1, s, _codec_statement(s)) for s in item.body])


def _row(level: int, node: syntax.Node, text: str) -> Row:
    return Row(level, text, node.span.start, node.span.end)


def _relax(item: syntax.Relax, comments: Sequence[syntax.Comment]) -> list[Row]:
    header = _header(item)
    end = item.target_span.end if item.selector is None else item.selector.span.end
    if item.clauses is None:
        return [_row(0, item, header)]
    return _with_clauses(item, header, end, item.clauses, comments)


def _header(item: syntax.Relax) -> str:
    target = f"relax {item.quantity}" if item.algorithm is None else f"relax with {item.algorithm}"
    return target if item.selector is None else f"{target} for {expression(item.selector)}"


def _clause(clause: syntax.Clause) -> str:
    return f"{clause.key} = {expression(clause.value)}"


def _one_line(header: str, clauses: Sequence[str]) -> str:
    return f"{header} {{ {', '.join(clauses)} }}" if clauses else f"{header} {{ }}"


def _with_clauses(
    item: syntax.Node,
    header: str,
    header_end: int,
    clauses: Sequence[syntax.Clause],
    comments: Sequence[syntax.Comment],
) -> list[Row]:
    """On one line where that is short and no comment stands between the braces."""
    texts = [_clause(clause) for clause in clauses]
    line = _one_line(header, texts)
    if not _any_within(comments, header_end, item.span.end) and (len(line) <= WIDTH or not texts):
        return [_row(0, item, line)]
    body = [_row(1, clause, text) for clause, text in zip(clauses, texts, strict=True)]
    return _braced(0, item, header, header_end, body)


def _any_within(comments: Sequence[syntax.Comment], start: int, end: int) -> bool:
    """Whether one of the comments, which are in text order, begins in that range."""
    first = bisect_left(comments, start, key=lambda c: c.span.start)
    return first < len(comments) and comments[first].span.start < end


def _braced(level: int, node: syntax.Node, header: str, header_end: int, body: list[Row]) -> list[Row]:
    outer = level == 0
    opening = Row(level, header + " {", node.span.start, header_end, "first" if outer else "")
    return [opening, *body, Row(level, "}", max(node.span.end - 1, 0), node.span.end, "last" if outer else "")]


def _definition(item: syntax.Algorithm | syntax.Codec, word: str, body: list[Row]) -> list[Row]:
    parameters = ", ".join(map(_parameter, item.parameters))
    end = item.parameters[-1].span.end if item.parameters else item.span.start + len(word)
    return _braced(0, item, f"{word} {item.name}({parameters})", end, body)


def _parameter(parameter: syntax.Parameter) -> str:
    return parameter.name if parameter.default is None else f"{parameter.name} = {expression(parameter.default)}"


Comments = Sequence[syntax.Comment]
Block = syntax.Every | syntax.After | syntax.Phase
Simple = syntax.State | syntax.Let | syntax.Assign | syntax.Step


def _statements(level: int, body: Sequence[syntax.Statement], comments: Comments) -> list[Row]:
    return [row for statement in body for row in _statement(level, statement, comments)]


def _statement(level: int, s: syntax.Statement, comments: Comments) -> list[Row]:
    match s:
        case syntax.Every():
            return _nested(level, s, f"every {expression(s.period)}", s.period, comments)
        case syntax.After():
            return _nested(level, s, f"after {expression(s.delay)}", s.delay, comments)
        case syntax.Phase():
            length = "" if s.length is None else f" for {expression(s.length)}"
            return _nested(level, s, f"phase {s.name}{length}", s.length, comments)
    return [_row(level, s, _simple(s))]


def _simple(s: Simple) -> str:
    match s:
        case syntax.Step():
            return "step"
        case syntax.Assign():
            return f"{s.name} {s.operator} {expression(s.value)}"
        case syntax.Let():
            return _let(s)
        case syntax.State():
            return f"state {s.name}" + _given(s.value)


def _given(value: syntax.Expression | None) -> str:
    return "" if value is None else f" = {expression(value)}"


def _let(s: syntax.Let) -> str:
    return f"let {s.name} = {expression(s.value)}"


def _nested(level: int, s: Block, header: str, last: syntax.Expression | None, comments: Comments) -> list[Row]:
    """On one line where it holds one simple statement that is short, and no comment."""
    end = s.span.start + 1 if last is None else last.span.end
    only = s.body[0] if len(s.body) == 1 else None
    if only is not None and not isinstance(only, Block):
        line = f"{header} {{ {_simple(only)} }}"
        if not _any_within(comments, end, s.span.end) and len(INDENT * level + line) <= WIDTH:
            return [_row(level, s, line)]
    return _braced(level, s, header, end, _statements(level + 1, s.body, comments))


def _codec_statement(s: syntax.CodecStatement) -> str:
    match s:
        case syntax.Per():
            return f"per {s.unit}" + ("" if s.size is None else f"({expression(s.size)})")
        case syntax.Let() | syntax.State() | syntax.Assign():
            return _simple(s)
        case syntax.Send():
            width = "" if s.wire.width is None else f"({expression(s.wire.width)})"
            return f"send {s.name}: {s.wire.name}{width} = {expression(s.value)}"
        case syntax.Receive():
            near = "" if s.near is None else f" near {s.near}"
            return f"receive{near} = {expression(s.value)}"
        case syntax.Guard():
            return f"guard = {expression(s.value)}"


# --- comments and blank lines


@dataclass(frozen=True, slots=True)
class Line:
    """A row or comment in its final place. `spaced`: an empty line stood before it."""

    text: str
    spaced: bool
    opens: bool = False
    closes: bool = False
    outer: str = ""


def _placed(file: syntax.File, rows: list[Row]) -> Iterator[Line]:
    """Rows, each with the comments before it and the one behind it, then the comments at the end."""
    before, behind, after = _assigned(file.comments, rows)
    for index, row in enumerate(rows):
        *early, late = [*behind[index], ""] if not behind[index] else behind[index]
        level = row.level + row.closes
        for comment in [*before[index], *(c for c in early if isinstance(c, syntax.Comment))]:
            yield Line(INDENT * level + comment.text, _spaced(file.source, comment.span.start))
        text = INDENT * row.level + row.text
        if isinstance(late, syntax.Comment):
            text += f"  {late.text}"
        yield Line(text, _spaced(file.source, row.start), row.text.endswith("{"), row.closes, row.outer)
    for comment in after:
        yield Line(comment.text, _spaced(file.source, comment.span.start))


Found = list[syntax.Comment]


def _assigned(comments: Sequence[syntax.Comment], rows: list[Row]) -> tuple[list[Found], list[Found], Found]:
    """For each row the comments before it and behind it; and those after the last row. All are in text order."""
    before: list[Found] = [[] for _ in rows]
    behind: list[Found] = [[] for _ in rows]
    after: Found = []
    reached = 0  # rows[:reached] start before the comment
    for comment in comments:
        while reached < len(rows) and rows[reached].start <= comment.span.start:
            reached += 1
        inside = reached > 0 and comment.span.start < rows[reached - 1].end
        if not comment.own_line and reached:
            behind[reached - 1].append(comment)
        elif inside:
            before[reached - 1].append(comment)
        else:
            (before[reached] if reached < len(rows) else after).append(comment)
    return before, behind, after


def _spaced(source: Source, start: int) -> bool:
    """Whether an empty line comes before offset `start`."""
    text = source.text
    stop = start
    while stop and text[stop - 1] in " \t\r\n":
        stop -= 1
    return text.count("\n", stop, start) > 1


def _lines(lines: Iterator[Line]) -> Iterator[str]:
    """Empty lines: at most one, none beside a brace, always one around a top-level item of several rows."""
    previous: Line | None = None
    for line in lines:
        if previous is not None and not previous.opens and not line.closes:
            apart = previous.outer == "last" or (line.outer == "first" and not previous.text.startswith("#"))
            if line.spaced or apart:
                yield ""
        yield line.text
        previous = line
