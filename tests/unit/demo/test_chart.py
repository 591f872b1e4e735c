"""The chart, against drawings made by hand."""

import pytest

from relaxc.demo.chart import Series, axes, cells, draw, interpolate


def drawn(series: list[Series], width: int, height: int) -> list[str]:
    grid = cells(series, axes(series, width, height))
    return ["".join("." if cell is None else str(cell) for cell in line) for line in grid]


def test_a_falling_line() -> None:
    """Its rows are 0, 0.5, 1, 1.5 and 2: a half goes to the even row."""
    assert drawn([Series("a", [(0, 2), (4, 0)])], width=5, height=3) == ["00...", "..0..", "...00"]


def test_a_later_series_is_on_top_and_ends_where_its_points_end() -> None:
    two = [Series("a", [(0, 1), (4, 1)]), Series("b", [(0, 1), (2, 1)]), Series("c", [(0, 0), (4, 0)])]
    assert drawn(two, width=5, height=2) == ["11100", "22222"]


@pytest.mark.parametrize(("x", "y"), [(0, 4.0), (1, 3.0), (2, 2.0), (3, 2.0), (4, 2.0), (5, None), (-1, None)])
def test_interpolation(x: float, y: float | None) -> None:
    assert interpolate([(0, 4), (2, 2), (4, 2)], x) == y


def test_one_point_and_a_flat_line_do_not_divide_by_zero() -> None:
    assert drawn([Series("a", [(0, 3)])], width=3, height=2)[1] == "0.."
    assert drawn([Series("a", [(0, 3), (1, 3)])], width=3, height=2)[1] == "000"


def test_it_says_what_the_axes_are_and_which_mark_is_which() -> None:
    lines = draw(
        [Series("first", [(0, 2), (40, 0)]), Series("second", [(0, 2), (20, 0)])], x="seconds", y="loss", width=41
    )
    assert lines[0] == "loss"
    assert lines[-1].split() == ["o", "first", "+", "second"]
    assert lines[-2].strip() == "seconds"
    assert lines[-3].split() == ["0", "10", "20", "30", "40"]
    assert lines[-3].index("40") == 9 + 40  # under the last column
    assert lines[1].startswith("  2.000 │+") and lines[-5].startswith("  0.000 │")
