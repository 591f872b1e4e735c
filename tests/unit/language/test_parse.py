"""Text to tree: what each construct becomes, and that bad text is only ever a diagnostic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relaxc import keep, resources
from relaxc.language import parse as module
from relaxc.language import syntax
from relaxc.language.diagnostics import SpecError
from relaxc.language.parse import parse, parse_expression
from relaxc.language.source import Source, decode


def tree(text: str) -> syntax.File:
    return parse(Source("t.relax", text))


def codes(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        tree(text)
    return [d.code for d in caught.value.diagnostics]


def expression(text: str) -> syntax.Expression:
    return parse_expression(Source("t.relax", text))


def test_a_statement_and_its_places() -> None:
    (item,) = tree('relax gradients for "a.*" { compress = 8bit, delay = 2 }').items
    assert isinstance(item, syntax.Relax)
    assert (item.quantity, item.algorithm, item.target_span.text) == ("gradients", None, "gradients")
    assert item.selector is not None and item.selector.span.text == '"a.*"'
    assert item.clauses is not None
    assert [(c.key, c.span.text) for c in item.clauses] == [("compress", "compress = 8bit"), ("delay", "delay = 2")]


def test_no_braces_and_empty_braces_differ() -> None:
    without, empty = tree("relax gradients relax gradients { }").items
    assert isinstance(without, syntax.Relax) and without.clauses is None
    assert isinstance(empty, syntax.Relax) and empty.clauses == ()


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("1 + 2 * 3", "1 + (2 * 3)"),
        ("1 - 2 - 3", "(1 - 2) - 3"),
        ("2 ^ 3 ^ 4", "2 ^ (3 ^ 4)"),
        ("-2 ^ 2", "-(2 ^ 2)"),
        ("2 ^ -1 * 3", "(2 ^ (-1)) * 3"),
        ("not a == b and c or d", "((not (a == b)) and c) or d"),
        ("a or b and c", "a or (b and c)"),
        ("-a * b", "(-a) * b"),
    ],
)
def test_precedence(text: str, grouped: str) -> None:
    assert expression(text) == expression(grouped)


def test_quantities() -> None:
    parsed = [expression(text) for text in ("8bit", "2steps", "1step", "0.1%", "10Gbps", "25MB", "1e-3s")]
    assert [(q.value, q.unit) for q in parsed if isinstance(q, syntax.Quantity)] == [
        (8, "bit"), (2, "step"), (1, "step"), (0.1, "%"), (10, "Gbps"), (25, "MB"), (0.001, "s"),
    ]  # fmt: skip


def test_a_codec() -> None:
    (codec,) = tree("codec c(n = 2) { per block(n) send f: uint(8) = min(x) receive near y = y + f }").items
    assert isinstance(codec, syntax.Codec)
    per, send, receive = codec.body
    assert isinstance(per, syntax.Per) and per.unit == "block"
    assert isinstance(send, syntax.Send) and send.wire.name == "uint" and send.wire.width is not None
    assert isinstance(receive, syntax.Receive) and receive.near == "y"


def test_an_algorithm() -> None:
    (algorithm,) = tree(
        "algorithm a(k = 1) { state s step every k { after 2 { s -= 1 } } phase p for 3 { } phase q { } }"
    ).items
    assert isinstance(algorithm, syntax.Algorithm)
    state, step, every, first, second = algorithm.body
    assert isinstance(state, syntax.State) and state.value is None
    assert isinstance(step, syntax.Step)
    assert isinstance(every, syntax.Every) and isinstance(every.body[0], syntax.After)
    assert isinstance(first, syntax.Phase) and isinstance(first.length, syntax.Number) and first.body == ()
    assert isinstance(second, syntax.Phase) and second.length is None


def test_comments_know_whether_they_stand_alone() -> None:
    comments = tree("# one\nrelax gradients # two\n  # three").comments
    assert [(c.text, c.own_line) for c in comments] == [("# one", True), ("# two", False), ("# three", True)]


def test_mark_line_ends_and_tabs_mean_nothing() -> None:
    plain = tree("relax gradients { delay = 1 }\nrelax weights")
    assert tree(decode(b"\xef\xbb\xbfrelax gradients\t{ delay = 1 }\r\nrelax weights\r\n")) == plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("relax", ["RX0002"]),
        ("relax gradients {", ["RX0004"]),
        ("relax gradients { compress = minmax(8 }", ["RX0002"]),
        ("relax gradients {\nrelax gradients { delay 1 }", ["RX0004", "RX0002"]),
        ("relax gradients }", ["RX0004"]),
        ('param a = "x', ["RX0006"]),
        ("param let = 1", ["RX0003"]),
        ("param a = 1.2.3", ["RX0005"]),
        ("param a = 7bits", ["RX0005"]),
        ("\0", ["RX0001"]),
        ("# \ufffd\nrelax gradients", ["RX0001"]),
        ("param a = \u201cx\u201d", ["RX0001"]),
        ("param a = " + "(" * 500 + "1" + ")" * 500, ["RX0007"]),
        ("param a = " + "-" * 5000 + "1", ["RX0007"]),
        ("param a = " + "1 + " * 5000 + "1", ["RX0007"]),
        ("algorithm a { " + "every 2 { " * 5000, ["RX0007"]),
    ],
)
def test_bad_text(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_an_error_at_the_end_has_its_place() -> None:
    with pytest.raises(SpecError) as caught:
        tree("relax gradients\nparam a =")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message == "found the end of the text, expected a value"
    assert diagnostic.labels[0].span.source.position(diagnostic.labels[0].span.start) == (2, 10)


def test_errors_are_limited_and_say_so() -> None:
    with pytest.raises(SpecError) as caught:
        tree("relax 1\n" * 500)
    assert len(caught.value.diagnostics) == 100
    assert caught.value.diagnostics[-1].notes == ("there are more errors after this one",)


# --- the tables in the cache


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache; what is in it after a parse."""
    monkeypatch.setenv("RELAXC_CACHE", str(tmp_path / "cache"))
    module._parser.cache_clear()
    yield tmp_path / "cache" / "grammar"
    module._parser.cache_clear()


def reparsed() -> bool:
    module._parser.cache_clear()
    return tree("relax gradients").items != ()


def test_tables_are_kept_and_used(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reparsed()
    (kept,) = fresh.iterdir()
    monkeypatch.setattr(keep, "remember", lambda *_: pytest.fail("made again"))
    assert reparsed() and kept.exists()


@pytest.mark.parametrize("damage", [b"", b"x" * 100, None])
def test_damaged_tables_are_made_again(fresh: Path, damage: bytes | None) -> None:
    assert reparsed()
    (kept,) = fresh.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert reparsed()
    assert keep.recall(kept) is not None


def test_foreign_tables_are_made_again(fresh: Path) -> None:
    assert reparsed()
    (kept,) = fresh.iterdir()
    keep.remember(kept, b"of another lark")
    assert reparsed()
    assert keep.recall(kept) != b"of another lark"


def test_without_a_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fresh: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RELAXC_CACHE", str(tmp_path / "file" / "below"))
    assert reparsed()


def test_an_absent_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resources, "PACKAGE", tmp_path / "relaxc")
    with pytest.raises(resources.MissingResource, match="'grammar'"):
        resources.folder("grammar")
    (tmp_path / "relaxc" / "_share" / "grammar").mkdir(parents=True)
    assert resources.folder("grammar") == tmp_path / "relaxc" / "_share" / "grammar"
