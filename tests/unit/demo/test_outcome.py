"""Seconds to a loss, by hand."""

import pytest

from relaxc.demo.events import Began, Ended, Evaluated, Preparing, Stepped, from_line, to_line
from relaxc.demo.outcome import Outcome, record, seconds_to, shares


@pytest.mark.parametrize(
    ("loss", "seconds"),
    [(5.0, 0.0), (4.0, 0.0), (3.5, 1.0), (3.0, 2.0), (2.5, 6.5), (2.0, 8.0), (1.9, None)],
)
def test_the_first_crossing_on_straight_lines(loss: float, seconds: float | None) -> None:
    curve = [(0.0, 4.0), (2.0, 3.0), (5.0, 3.5), (6.5, 2.5), (8.0, 2.0), (9.0, 2.6)]
    assert seconds_to(curve, loss) == seconds


def test_shares_of_the_first_runs_seconds() -> None:
    slow = Outcome("ddp", curve=[(0.0, 4.0), (10.0, 2.0)])
    fast = Outcome("quickstart", curve=[(0.0, 4.0), (2.0, 3.0), (4.0, 1.0)])
    never = Outcome("fp16", curve=[(0.0, 4.0), (2.0, 3.0)])
    assert shares({"ddp": slow, "fp16": never, "quickstart": fast}) == {"ddp": 1.0, "fp16": None, "quickstart": 0.3}


def test_events_survive_the_line_between_processes() -> None:
    sent = [
        Preparing("x"),
        Began("a", 3),
        Stepped("a", 1, 0.5, 2.0),
        Evaluated("a", 1, 0.5, 2.5),
        Ended("a", 0.5, 9.0, 8.0),
    ]
    outcomes: dict[str, Outcome] = {}
    for event in sent:
        received = from_line(to_line(event))
        assert received == event
        record(outcomes, received)
    assert outcomes["a"] == Outcome("a", 3, 1, 0.5, 2.0, [(0.5, 2.5)], sent[-1])


@pytest.mark.parametrize("line", ["", "a warning", "[1]", "{}", '{"event": "Nonsense"}', '{"event": "Began"}', "3"])
def test_what_is_no_event_is_passed_over(line: str) -> None:
    assert from_line(line) is None
