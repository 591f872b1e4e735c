"""Whose line an exception is blamed on."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch

from relaxc.users_code import NAMED, described, found, located


def raised(function) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whichever it is
        function()
    return caught.value


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line)


def multiply() -> None:
    torch.nn.Linear(2, 3)(torch.zeros(5))  # blamed


def parse() -> None:
    json.loads("{")  # of the library


def chained() -> None:
    try:
        multiply()
    except RuntimeError as error:
        raise found("json:none") from error


def compiled() -> None:
    exec(compile("1 / 0", "<made>", "exec"))


def test_the_innermost_line_of_the_users_own() -> None:
    assert located(raised(multiply)) == f" ({__file__}:{line_of('# ' + 'blamed')})"
    assert located(raised(parse)) == f" ({__file__}:{line_of('# ' + 'of the library')})"
    assert located(raised(compiled)) == f" ({__file__}:{line_of('exec(' + 'compile')})"


def test_packages_of_the_user_count() -> None:
    """hypothesis stands in for one: it is installed, and is neither torch nor relaxc."""
    import hypothesis.strategies as st

    where = located(raised(lambda: st.integers("x").validate()))
    assert "hypothesis" in where and where.endswith(")")


def test_an_error_without_a_line_has_none() -> None:
    assert located(ValueError("never raised")) == ""
    assert located(SyntaxError("no", ("model.py", 7, 1, "x"))) == " (model.py:7)"


def test_what_led_to_it_counts() -> None:
    inner = raised(multiply)
    outer = RuntimeError("somewhere in torch")
    outer.__cause__ = inner
    assert located(outer) == located(inner)
    outer.__cause__, inner.__context__ = inner, outer  # a circle ends
    assert located(outer) == located(inner)


def test_one_sentence() -> None:
    assert described(ValueError("first. second\nthird")) == "ValueError: first"
    assert described(KeyError()) == "KeyError"
    long = described(ValueError(" ".join(itertools.repeat("word", 100))))
    assert len(long) < 220 and long.endswith(" ...")


def test_names() -> None:
    assert found("itertools:chain.from_iterable") == itertools.chain.from_iterable
    assert NAMED.fullmatch("a.b_1:c.d") and not any(map(NAMED.fullmatch, ("a", "a:", ":b", "a:b()", "1:b", "a:b:c")))
    assert isinstance(raised(lambda: found("itertools:nothing")), AttributeError)
