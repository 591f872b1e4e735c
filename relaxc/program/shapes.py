"""Shapes: number < cell < tensor, and codes apart. What a name is ever given decides, wherever that stands in the text.

A number is on the host. A cell is a number that depends on a tensor of this parameter, by norm, or that was exchanged.
`late` tells of what is known no earlier than the optimiser's step: the learning rate and the optimiser's own settings
and states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from relaxc.language.vocabulary import READABLE
from relaxc.program.ir import (
    Apply,
    Assign,
    Body,
    Decode,
    Dither,
    Encode,
    Exchange,
    Expression,
    Let,
    Optimizer,
    Read,
    Reduce,
    flattened,
    within,
)  # fmt: skip


class Shape(IntEnum):
    NUMBER = 0
    CELL = 1
    TENSOR = 2
    CODE = 3

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Form:
    """A shape, and whether the value is known at the optimiser's step only."""

    shape: Shape
    late: bool = False

    def join(self, other: Form) -> Form:
        return Form(max(self.shape, other.shape), self.late or other.late)


NUMBER, CELL, TENSOR, CODE = (Form(shape) for shape in Shape)
LATE_NUMBER, LATE_TENSOR = Form(Shape.NUMBER, late=True), Form(Shape.TENSOR, late=True)

GIVEN = {name: {"weight": TENSOR, "grad": TENSOR, "lr": LATE_NUMBER}.get(name, NUMBER) for name in READABLE}
"""The forms of the names that the language itself gives."""

Forms = Mapping[str, Form]


def forms_of(body: Body) -> dict[str, Form]:
    """The form of every name of a body: the least fixed point of what is given to it."""
    found = dict(GIVEN)
    for state in body.states:
        found[state.name] = form_of(state.initial, found)
    given = [s for s in flattened(body.statements) if isinstance(s, Let | Assign)]
    readers: dict[str, list[Let | Assign]] = {}
    for statement in given:
        for part in within(statement.value):
            if isinstance(part, Read):
                readers.setdefault(part.name, []).append(statement)
    waiting = given[::-1]
    while waiting:
        statement = waiting.pop()
        form = _given(statement, found)
        if form != found.get(statement.name):
            found[statement.name] = form
            waiting += readers.get(statement.name, ())
    return found


def _given(statement: Let | Assign, found: Forms) -> Form:
    form = form_of(statement.value, found)
    if isinstance(statement, Let) or statement.name not in found:
        return form
    return found[statement.name].join(_tensor_of_a_code(form))


def form_of(e: Expression, names: Forms) -> Form:
    """The form of `e`; a name that is not known yet counts as a number, as the fixed point starts from below."""
    match e:
        case Read(name=name):
            return names.get(name, NUMBER)
        case Optimizer(tensor=tensor):
            return LATE_TENSOR if tensor else LATE_NUMBER
        case Apply(arguments=arguments):
            return _joined(arguments, names)
        case Reduce(argument=argument):
            return CELL.join(_tensor_free(form_of(argument, names)))
        case Dither(argument=argument):
            return form_of(argument, names)
        case Encode(value=value):
            return Form(Shape.CODE, form_of(value, names).late)
        case Decode(code=code):
            return Form(Shape.TENSOR, form_of(code, names).late)
        case Exchange(value=value):
            return CELL.join(_tensor_of_a_code(form_of(value, names)))
    return NUMBER


def _joined(arguments: tuple[Expression, ...], names: Forms) -> Form:
    joined = NUMBER
    for argument in arguments:
        joined = joined.join(_tensor_of_a_code(form_of(argument, names)))
    return joined


def _tensor_of_a_code(form: Form) -> Form:
    """What stands where a code can't is refused elsewhere; it must not spread."""
    return Form(min(form.shape, Shape.TENSOR), form.late)


def _tensor_free(form: Form) -> Form:
    return Form(Shape.NUMBER, form.late)
