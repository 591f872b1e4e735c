"""A program in the language's own words, every default filled in. What is printed parses again."""

from __future__ import annotations

from relaxc.program.ir import (
    After,
    Apply,
    Assign,
    Body,
    Carried,
    Constant,
    Dither,
    Expression,
    Let,
    Mean,
    Program,
    Read,
    Reduce,
    Statement,
    Step,
)  # fmt: skip

INFIX = {"+": 5, "-": 5, "*": 6, "/": 6, "^": 8, "<": 4, "<=": 4, ">": 4, ">=": 4, "==": 4, "!=": 4, "and": 2, "or": 1}


def print_program(program: Program) -> str:
    return "\n".join(_algorithm(body, f"body{number}") for number, body in enumerate(program.bodies))


def _algorithm(body: Body, name: str) -> str:
    governs = f"# governs {print_selector(body.selector)}\n"
    return f"{governs}algorithm {name}() {{\n{_block(body.statements, 1)}}}\n"


def print_statements(body: Body) -> str:
    return _block(body.statements, 0)


def _block(statements: tuple[Statement, ...], depth: int) -> str:
    return "".join(f"{'  ' * depth}{_statement(s, depth)}\n" for s in statements)


def _statement(statement: Statement, depth: int) -> str:
    match statement:
        case Let(name=name, value=value):
            return f"let {name} = {print_expression(value)}"
        case Assign(name=name, value=value):
            return f"{name} = {print_expression(value)}"
        case Step():
            return "step"
        case After(delay=delay, body=body):
            return f"after {delay} {{\n{_block(body, depth + 1)}{'  ' * depth}}}"


def print_expression(e: Expression, outer: int = 0) -> str:
    match e:
        case Constant(value=value):
            return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
        case Read(name=name):
            return name
        case Mean() | Carried():
            codec = e.codec.text if e.codec else "none"
            return f"mean({print_expression(e.value)}, compress = {codec}, feedback = {e.feedback}, route = {e.route})"
        case Reduce(function=function, argument=argument):
            return f"{function}({print_expression(argument)})"
        case Dither(argument=argument):
            return f"dither({print_expression(argument)})"
        case Apply(function="neg", arguments=(operand,)):
            return f"-{print_expression(operand, 7)}"
        case Apply(function=function, arguments=(left, right)) if function in INFIX:
            level = INFIX[function]
            text = f"{print_expression(left, level)} {function} {print_expression(right, level + 1)}"
            return f"({text})" if level < outer else text
        case Apply(function=function, arguments=arguments):
            return f"{function}({', '.join(print_expression(a) for a in arguments)})"


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
