"""What expressions of a body stand for in a use: the parameters put in."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxc.language import format, syntax
from relaxc.language.check import check
from relaxc.language.diagnostics import SpecError
from relaxc.language.parse import parse, parse_expression
from relaxc.language.reading import Reader
from relaxc.language.report import Report
from relaxc.language.source import Source
from relaxc.language.spec import Feedback, Use
from relaxc.topology.topology import Topology

TEXT = """
param width = 4bit
param graph = lazy(ring)
param share = 25%
codec own_codec(n = 2) { send v: uint(n) = x  receive = v }
algorithm a(p = geometric(4), q = 8, k = 3, c = own_codec(3), g = torus, f = worker, r = ring, keep = 1%, n = 100) {
  step
  every p {
    every q { after k { weight += keep + q } }
    phase first for n { grad = sum(grad, compress = c, feedback = f, route = r) }
    weight = mix(weight, g) * width * share
  }
}
relax with a
"""


@pytest.fixture(scope="module")
def use() -> Use:
    (made,) = check(parse(Source("t.relax", TEXT))).uses
    return made


def expression(text: str) -> syntax.Expression:
    return parse_expression(Source("body", text))


@pytest.mark.parametrize(
    ("written", "value"),
    [("3", 3), ("1%", 0.01), ("8bit", 8), ("2steps", 2), ("k", 3), ("q", 8), ("keep * 2", 0.02), ("share", 0.25),
     ("2 ^ k - q / 4", 6), ("width", 4), ("clamp(k, 0, 2)", 2), ("mod(-1, k)", 2), ("-n", -100)],
)  # fmt: skip
def test_numbers(use: Use, written: str, value: float) -> None:
    report = Report()
    assert Reader.of(use, report).number(expression(written)) == pytest.approx(value, rel=1e-15)
    assert report.errors == []


def test_names_that_are_numbers(use: Use) -> None:
    found = {
        name: Reader.of(use, Report()).named(name) for name in ("k", "q", "p", "keep", "share", "width", "c", "graph")
    }
    assert found == {"k": 3, "q": 8, "p": None, "keep": 0.01, "share": 0.25, "width": 4, "c": None, "graph": None}
    assert Reader.of(use, Report()).named("weight") is None


def test_codecs(use: Use) -> None:
    report = Report()
    written = ["c", "own_codec", "minmax(k)", "qsgd(2 * k)", "width"]
    assert [str(Reader.of(use, report).codec(expression(e))).partition(",")[0] for e in written] == [
        "own_codec(n = 3)", "own_codec(n = 2)", "minmax(bits = 3", "qsgd(bits = 6", "minmax(bits = 4",
    ]  # fmt: skip
    assert Reader.of(use, report).codec(expression("none")) is None
    assert report.errors == []


def test_topologies(use: Use) -> None:
    report = Report()
    assert Reader.of(use, report).topology(expression("g")) == Topology("torus")
    assert Reader.of(use, report).topology(expression("lazy(g)")) == Topology("lazy", (Topology("torus"),))
    assert Reader.of(use, report).topology(expression("graph")) == Topology("lazy", (Topology("ring"),))
    assert report.errors == []


def test_words_and_counts(use: Use) -> None:
    report = Report()
    assert Reader.of(use, report).feedback(expression("f")) is Feedback.WORKER
    assert Reader.of(use, report).feedback(expression("none")) is Feedback.NONE
    assert Reader.of(use, report).route(expression("r")) == "ring"
    assert Reader.of(use, report).delay(expression("k")) == 3
    assert Reader.of(use, report).delay(expression("k + 1")) == 4
    assert Reader.of(use, report).length(expression("n / 4")) == 25
    assert report.errors == []


@pytest.mark.parametrize(
    ("written", "how", "value"),
    [("p", "geometric", "4"), ("k", "number", "k"), ("2 * k", "number", "2 * k"), ("staggered(q)", "staggered", "q"),
     ("q", "number", "8"), ("where(t < 5, 1, k)", "number", "where(t < 5, 1, k)")],
)  # fmt: skip
def test_periods(use: Use, written: str, how: str, value: str) -> None:
    period = Reader.of(use, Report()).written_period(expression(written))
    assert period is not None and (period.how, format.expression(period.value)) == (how, value)


def test_what_is_none_of_these_is_reported(use: Use) -> None:
    report = Report()
    assert Reader.of(use, report).topology(expression("c")) is None
    assert Reader.of(use, report).delay(expression("p")) is None
    assert Reader.of(use, report).number(expression("g + 1")) is None
    assert [d.code for d in report.errors] == ["RX0212", "RX0203", "RX0105"]


# --- the file of edges


def with_edges(folder: Path, written: str) -> Use:
    (folder / "links.txt").write_text(written)
    spec = folder / "spec.relax"
    spec.write_text('relax weights { topology = edges("links.txt") }')
    (made,) = check(parse(Source.read(spec))).uses
    return made


def test_edges_are_read_beside_the_spec(tmp_path: Path) -> None:
    made = with_edges(tmp_path, "# links\n0 1 0.5\n\n1 2 0.25  # slow\n")
    assert made.arguments[0].value == Topology("edges", ((0, 1, 0.5), (1, 2, 0.25)))
    assert with_edges(tmp_path, "0 1\n1 2\n").arguments[0].value == Topology("edges", ((0, 1), (1, 2)))


@pytest.mark.parametrize("written", ["", "0\n", "0 0\n", "0 1 2 3\n", "0 x\n", "0 1 -1\n", "0 1\n1 0\n", "\0\xff"])
def test_wrong_edges_are_reported(tmp_path: Path, written: str) -> None:
    with pytest.raises(SpecError) as caught:
        with_edges(tmp_path, written)
    assert [d.code for d in caught.value.diagnostics] == ["RX0213"]
