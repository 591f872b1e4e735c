"""What a statement stands for, in the language's own words; what is printed parses again."""

from __future__ import annotations

import pytest

from relaxc import pipeline
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.program.facts import memory_bytes, replicas_agree, roundings, sent_bytes, staleness
from relaxc.program.ir import Program
from relaxc.program.lower import lower
from relaxc.program.printer import print_program


def program(text: str) -> Program:
    return pipeline.to_program(pipeline.to_spec(Source("spec", text), {}))


EXPANSIONS = {
    "relax gradients": "grad = mean(grad, compress = none, feedback = none, route = all)\n  step",
    "relax gradients { compress = 8bit }": "grad = mean(grad, compress = minmax(bits = 8, block = 512, rounding = nearest)"
    ", feedback = both, route = all)\n  step",
    "relax gradients { compress = bf16, topology = ring }": "grad = mean(grad, compress = bf16, feedback = none, "
    "route = ring)\n  step",
    "relax gradients { delay = 2 }": "let fresh = mean(grad, compress = none, feedback = none, route = all)\n"
    "  after 2 {\n    grad = fresh\n  }\n  step",
}


@pytest.mark.parametrize("spec", EXPANSIONS)
def test_the_printed_expansion(spec: str) -> None:
    printed = print_program(program(spec))
    assert EXPANSIONS[spec] in printed
    parse(Source("printed", printed))


def test_selectors_become_plain_data() -> None:
    bodies = program('param few = 3\nrelax gradients for "a.*" and not ndim < few\nrelax gradients').bodies
    assert bodies[0].selector == ("and", ("name", "a.*"), ("not", ("<", "ndim", 3)))
    assert bodies[1].selector is None


def test_places_do_not_overlap() -> None:
    places = [
        body.statements[0].value.place for body in program("relax gradients for ndim < 2\nrelax gradients").bodies
    ]  # type: ignore[union-attr]
    assert places == [0, 2]


def test_facts_by_hand() -> None:
    (body,) = program("relax gradients { compress = 8bit, delay = 1 }").bodies
    exchange = body.statements[0].value  # type: ignore[union-attr]
    code = 1_000_000 + 8 * -(-1_000_000 // 512)  # a byte an element, 8 for each block
    assert sent_bytes(exchange, 4) == round(1.5 * code)  # type: ignore[arg-type]
    assert sent_bytes(exchange, 1) == 0  # type: ignore[arg-type]
    assert roundings(exchange, 4) == 2  # type: ignore[arg-type]
    assert memory_bytes(body, 4).messages == round(
        (3 * 4 - 1) / 4 * code
    )  # 4 made, 3 arrived, 1 result made, 3 arrived
    assert memory_bytes(body, 4).residuals == 4_000_000 + 1_000_000
    assert memory_bytes(body, 4).late == 8_000_000
    assert staleness(body) == 1
    assert replicas_agree(body)


def test_lowering_is_deterministic() -> None:
    spec = pipeline.to_spec(Source("spec", "relax gradients { compress = 1bit }"), {})
    assert lower(spec) == lower(spec)
