"""Expressions in the language's own words: what is printed is read back as what it was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxc import pipeline
from relaxc.language.functions import ELEMENTWISE
from relaxc.language.source import Source
from relaxc.program.ir import Apply, Assign, Constant, Expression, Program, Read
from relaxc.program.printer import INFIX, print_expression, print_program, print_selector, print_topology
from relaxc.topology.topology import Topology

WRITTEN = [
    "weight - (grad - lr)", "weight - grad - lr", "(weight - grad) * lr", "weight / (grad / lr)", "-weight ^ 2",
    "(-weight) ^ 2", "weight ^ -lr", "weight ^ grad ^ lr", "(weight ^ grad) ^ lr", "weight * -grad", "-(weight + grad)",
    "-(-weight)", "not weight < grad", "not weight < grad and grad < lr", "(weight or grad) and lr",
    "weight == (grad == lr)", "where(weight >= 0, 1, -1)", "1e-08 * weight", "0.1 + weight", "2.5e+20 * weight",
    "(weight < grad) + 1", "norm(grad) * clamp(weight, -1, 1)", "optimizer.eps * weight", "own(lazy(ring)) * weight",
]  # fmt: skip


def lowered(expressions: Sequence[str]) -> list[Expression]:
    """What they are, in the body of an algorithm."""
    body = " ".join(f"weight = {e}" for e in expressions)
    text = f"algorithm a() {{ step {body} }}\nrelax with a"
    (made,) = pipeline.to_program(pipeline.to_spec(Source("spec", text), {})).bodies
    return [s.value for s in made.statements if isinstance(s, Assign)]


@pytest.mark.parametrize("written", WRITTEN)
def test_only_the_brackets_that_are_needed(written: str) -> None:
    (e,) = lowered([written])
    assert print_expression(e) == written


NAMES = st.sampled_from(["weight", "grad", "lr"]).map(Read)
LEAVES = NAMES | st.floats(0, 1e6).map(lambda v: Constant(float(v)))
UNARY = ["neg", "not", "sqrt", "abs", "floor"]


def grown(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """No application of constants alone: those are folded."""
    two = st.tuples(st.sampled_from(sorted(INFIX)), NAMES, parts, st.booleans()).map(
        lambda made: Apply(made[0], (made[1], made[2]) if made[3] else (made[2], made[1]))
    )
    one = st.tuples(st.sampled_from(UNARY), parts.filter(lambda e: not isinstance(e, Constant))).map(
        lambda made: Apply(made[0], (made[1],))
    )
    three = st.tuples(NAMES, parts, parts).map(lambda made: Apply("where", made))
    return two | one | three


def no_zero_divisor(e: Expression) -> bool:
    if not isinstance(e, Apply):
        return True
    divides = e.function == "/" and e.arguments[1] == Constant(0.0)
    return not divides and all(map(no_zero_divisor, e.arguments))


@given(st.lists(st.recursive(LEAVES, grown, max_leaves=12).filter(no_zero_divisor), min_size=1, max_size=5))
def test_what_is_printed_is_read_back(expressions: list[Expression]) -> None:
    assert lowered([print_expression(e) for e in expressions]) == expressions


def test_every_function_has_a_text() -> None:
    for function, count in ELEMENTWISE.items():
        (e,) = lowered([f"{function}({', '.join(['weight'] * count)})"])
        assert print_expression(e) == f"{function}({', '.join(['weight'] * count)})"


def test_updates_are_short_where_that_is_the_same() -> None:
    text = "algorithm a() { step weight = weight - lr weight = lr - weight weight = weight ^ 2 weight = weight * lr + grad }"
    (body,) = pipeline.to_program(pipeline.to_spec(Source("spec", f"{text}\nrelax with a"), {})).bodies
    printed = print_program(Program((body,)))
    assert [line.strip() for line in printed.splitlines() if "weight" in line] == [
        "weight -= lr", "weight = lr - weight", "weight = weight ^ 2", "weight = weight * lr + grad",
    ]  # fmt: skip


def test_topologies_and_selectors() -> None:
    assert print_topology(Topology("lazy", (Topology("shuffled", (Topology("ring"),)),))) == "lazy(shuffled(ring))"
    assert print_topology(Topology("edges", ((0, 1), (1, 2)))) == 'edges("2 edges")'
    assert print_selector(("and", ("name", "a.*"), ("not", ("<", "ndim", 2.0)))) == '"a.*" and not ndim < 2'
