"""Spec -> Program: each relaxation becomes the body that it stands for, its arguments folded in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from relaxc.language import syntax
from relaxc.language.diagnostics import Diagnostic, Label, SpecError
from relaxc.language.places import name_span
from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.language.spec import Spec, Use
from relaxc.program.automatic import resolved
from relaxc.program.ir import Body, Program, Selector, State
from relaxc.program.lower_expressions import Codecs, Expressions, Places
from relaxc.program.lower_statements import Statements
from relaxc.program.shapes import forms_of


def lower(spec: Spec) -> Program:
    """Raise SpecError with all that can't be lowered, in text order."""
    report = Report()
    program = lower_uses(spec.uses, report)
    report.finish()
    return program


def lower_uses(uses: Sequence[Use], report: Report) -> Program:
    """A body for each use; one with a mistake, which is in the report then, has holes and is good for nothing else."""
    places, codecs = Places(), Codecs(report)
    return Program(tuple(_body(use, places, codecs, report) for use in uses))


def _body(use: Use, places: Places, codecs: Codecs, report: Report) -> Body:
    use = resolved(use, codecs.lowered, report)
    expressions = Expressions(use, places, codecs, report)
    statements = Statements(expressions)
    states = tuple(_states(use, expressions))
    lowered = statements.body(use.definition.body)
    selector = None if use.selector is None else lower_selector(use.selector)
    return shaped(Body(selector, states, lowered, use.span, _title(use)))


def _title(use: Use) -> Span | None:
    own = use.definition.span.source is use.span.source
    return name_span(use.definition, "algorithm") if own else None


def _states(use: Use, expressions: Expressions) -> Iterator[State]:
    """States in text order, so that an initialiser sees those above it. Their shapes come later."""
    for statement in use.definition.body:
        if isinstance(statement, syntax.State):
            name = expressions.names.bind(statement.name)
            initial = expressions.initial(statement.value)
            yield State(name, initial, "tensor", expressions.place_of(statement))


def shaped(body: Body) -> Body:
    """`body` with the shapes of its states, which are the join of all that they are ever given."""
    forms = forms_of(body)
    states = tuple(replace(state, shape=str(forms[state.name].shape)) for state in body.states)
    return replace(body, states=states)


def lower_selector(e: syntax.Expression) -> Selector:
    """The plain-data form of a selector that check has accepted."""
    match e:
        case syntax.String(value=value):
            return ("name", value)
        case syntax.Unary(operator="not", operand=operand):
            return ("not", lower_selector(operand))
        case syntax.Binary(operator="and" | "or" as operator, left=left, right=right):
            return (operator, lower_selector(left), lower_selector(right))
        case syntax.Binary(operator=operator, left=left, right=right):
            return (operator, _side(left), _side(right))
    raise SpecError([Diagnostic("RX0220", "not a selector", (Label(e.span),))])


def _side(e: syntax.Expression) -> object:
    match e:
        case syntax.Number(value=value):
            return value
        case syntax.Unary(operator="-", operand=syntax.Number(value=value)):
            return -value
        case syntax.String(value=value):
            return ("text", value)
        case syntax.Name(name="name" | "ndim" | "numel" | "dtype" as field):
            return field
        case syntax.Name(name=name):
            return ("text", name)
    raise SpecError([Diagnostic("RX0220", "not a value of a selector", (Label(e.span),))])
