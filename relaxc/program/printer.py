"""A program in the language's own words, every default filled in. What is printed parses again."""

from __future__ import annotations

from relaxc.program.ir import (
    After,
    Apply,
    Assign,
    Body,
    Chosen,
    Constant,
    Decode,
    Dither,
    Encode,
    Every,
    Exchange,
    Expression,
    Let,
    Optimizer,
    Own,
    Phase,
    Program,
    Read,
    Reduce,
    State,
    Statement,
    Step,
    Transform,
)  # fmt: skip
from relaxc.topology.topology import OF_A_FILE, Topology, written
from relaxc.wire.routes import NEIGHBOURLY

INFIX = {
    "or": 1, "and": 2, "<": 4, "<=": 4, ">": 4, ">=": 4, "==": 4, "!=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "^": 8,
}  # fmt: skip
NOT, COMPARISON, NEGATIVE, POWER, ATOM = 3, 4, 7, 8, 9
UPDATES = ("+", "-", "*", "/")


def print_program(program: Program) -> str:
    return "\n".join(_algorithm(body, f"body{number}") for number, body in enumerate(program.bodies))


def _algorithm(body: Body, name: str) -> str:
    governs = f"# governs {print_selector(body.selector)}\n"
    states = "".join(f"  {_state(state)}\n" for state in body.states)
    return f"{governs}algorithm {name}() {{\n{states}{_block(body.statements, 1)}}}\n"


def _state(state: State) -> str:
    return f"state {state.name} = {print_expression(state.initial)}"


def _block(statements: tuple[Statement, ...], depth: int) -> str:
    return "".join(f"{'  ' * depth}{_statement(s, depth)}\n" for s in statements)


def _statement(statement: Statement, depth: int) -> str:
    match statement:
        case Let(name=name, value=value):
            return f"let {name} = {print_expression(value)}"
        case Assign():
            return _assign(statement)
        case Step():
            return "step"
        case Every(body=body):
            return f"every {_period(statement)} {_braced(body, depth)}"
        case Phase(name=name, first=first, end=end, body=body):
            length = "" if end is None else f" for {end - first}"
            return f"phase {name}{length} {_braced(body, depth)}"
        case After(body=body):
            return f"after {_delay(statement)} {_braced(body, depth)}"


def _delay(after: After) -> str:
    if not after.asynchronous:
        return str(after.delay)
    return f"async(max = {after.most})" if after.most else "async"


def _assign(statement: Assign) -> str:
    """`x += e`, which is how x = x + e is said."""
    match statement.value:
        case Apply(function=function, arguments=(Read(name=name), operand)):
            if function in UPDATES and name == statement.name:
                return f"{name} {function}= {print_expression(operand)}"
    return f"{statement.name} = {print_expression(statement.value)}"


def _period(every: Every) -> str:
    period = print_expression(every.period)
    return period if every.how == "number" else f"{every.how}({period})"


def _braced(body: tuple[Statement, ...], depth: int) -> str:
    return f"{{\n{_block(body, depth + 1)}{'  ' * depth}}}"


def print_expression(e: Expression, outer: int = 0) -> str:
    """The text of an expression, in parentheses where it binds less than `outer`."""
    text, level = _bound(e)
    return f"({text})" if level < outer else text


def _bound(e: Expression) -> tuple[str, int]:
    """The text of an expression and how tightly it binds."""
    match e:
        case Constant(value=value):
            return _number(value), NEGATIVE if value < 0 else ATOM
        case Apply(function="neg", arguments=(operand,)):
            return f"-{print_expression(operand, NEGATIVE + 1)}", NEGATIVE
        case Apply(function="not", arguments=(operand,)):
            return f"not {print_expression(operand, NOT)}", NOT
        case Apply(function=function, arguments=(left, right)) if function in INFIX:
            return _infix(function, left, right), INFIX[function]
        case Apply(function=function, arguments=arguments):
            return f"{function}({', '.join(map(print_expression, arguments))})", ATOM
    return _call(e), ATOM


def _infix(function: str, left: Expression, right: Expression) -> str:
    """All group to the left, but `^` to the right, and comparisons not at all."""
    level = INFIX[function]
    first = level + (function == "^" or level == COMPARISON)
    second = NEGATIVE if function == "^" else level + 1
    return f"{print_expression(left, first)} {function} {print_expression(right, second)}"


def _number(value: float) -> str:
    return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _call(e: Expression) -> str:
    match e:
        case Read(name=name):
            return name
        case Optimizer(name=name):
            return f"optimizer.{name}"
        case Own(topology=topology):
            return f"own({print_topology(topology)})"
        case Exchange():
            return _exchange(e)
        case Encode(value=value, codec=codec):
            return f"encode({print_expression(value)}, {codec.text})"
        case Decode(code=code):
            return f"decode({print_expression(code)})"
        case Reduce(function=function, argument=argument):
            return f"{function}({print_expression(argument)})"
        case Dither(argument=argument):
            return f"dither({print_expression(argument)})"
        case Transform(function=function, argument=argument, side=side):
            return f"{function}({print_expression(argument)}, {side})"
        case Chosen():
            return "chosen"
    raise AssertionError(f"no text for {e!r}")


def _exchange(e: Exchange) -> str:
    parts = [print_expression(e.value)]
    if e.topology is not None:
        parts.append(print_topology(e.topology))
    if e.rank:
        parts += [f"compress = lowrank({e.rank})", f"feedback = {e.feedback}"]
    elif e.codec is not None or e.kind not in NEIGHBOURLY:
        parts += [f"compress = {e.codec.text if e.codec else 'none'}", f"feedback = {e.feedback}"]
    if e.route:
        parts.append(f"route = {e.route}")
    return f"{e.kind}({', '.join(parts)})"


def print_topology(topology: Topology) -> str:
    """The edges of a file are counted, not listed."""
    if topology.name in OF_A_FILE:
        return f'{topology.name}("{len(topology.arguments)} {topology.name}")'
    inner = ", ".join(print_topology(a) if isinstance(a, Topology) else written(a) for a in topology.arguments)
    return f"{topology.name}({inner})" if inner else topology.name


def print_selector(selector: object) -> str:
    """A stored selector in the language's words."""
    match selector:
        case None:
            return "every parameter"
        case ("name", pattern):
            return f'"{pattern}"'
        case ("text", text):
            return str(text)
        case ("not", part):
            return f"not {print_selector(part)}"
        case (str(operator), left, right):
            return f"{print_selector(left)} {operator} {print_selector(right)}"
        case float(value) if value == int(value):
            return str(int(value))
    return str(selector)
