"""The file of edges, and its mistakes, each with its line."""

from __future__ import annotations

import pytest

from relaxc.topology.edges import EdgesError, edges_of_text


def test_edges_with_comments_and_empty_lines():
    assert edges_of_text("# two links\n0 1\n\n  2\t1 # slow\r\n") == ((0, 1), (2, 1))


def test_edges_with_weights():
    assert edges_of_text("0 1 0.25\n1 2 1e-1") == ((0, 1, 0.25), (1, 2, 0.1))


def test_thirds_written_out_are_one():
    assert len(edges_of_text("0 1 0.3333333334\n0 2 0.3333333333\n0 3 0.3333333333")) == 3


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "no edge in this file; an edge is a line of two ranks, such as 0 1"),
        ("# nothing\n", 1, "no edge in this file; an edge is a line of two ranks, such as 0 1"),
        ("0 1\n2", 2, "an edge is two ranks and perhaps a weight, not 1 words"),
        ("0 1 0.5 7", 1, "an edge is two ranks and perhaps a weight, not 4 words"),
        ("0 1\n\n0 -2", 3, "a rank is a whole number from 0, not -2"),
        ("0 1.5", 1, "a rank is a whole number from 0, not 1.5"),
        ("0 99999999999999999999", 1, "a rank is a whole number from 0, not 99999999999999999999"),
        ("0 ²", 1, "a rank is a whole number from 0, not ²"),
        ("3 3", 1, "worker 3 is not its own neighbour; its own weight is what the others leave"),
        ("0 1 half", 1, "a weight is a number, not half"),
        ("0 1 0", 1, "a weight is above 0 and at most 1, not 0"),
        ("0 1 1.5", 1, "a weight is above 0 and at most 1, not 1.5"),
        ("0 1 nan", 1, "a weight is above 0 and at most 1, not nan"),
        ("0 1\n1 2\n2 0 0.3", 3, "this edge has a weight and that in line 1 has none"),
        ("0 1 0.3\n1 2", 2, "this edge has no weight and that in line 1 has one"),
        ("0 1\n# again\n1 0", 3, "the edge 1 0 is in line 1 already; an edge counts in both directions"),
        ("0 1 0.6\n2 1 0.5", 2, "the weights of worker 1 add up to 1.1 here, and 1 is all there is"),
    ],
)
def test_mistakes(text, line, message):
    with pytest.raises(EdgesError) as caught:
        edges_of_text(text)
    assert (caught.value.line, caught.value.message) == (line, message)
    assert str(caught.value) == f"line {line}: {message}"
