"""Lanes as data: what is busy, cut, drawn as one, read back, and made out of a profiler's ranges."""

from __future__ import annotations

import pytest

from relaxc.errors import BuildError
from relaxc.schedule.timeline import Span, Timeline, bound_of, busy, cut, merged
from relaxc.schedule.timeline_file import TimelineFile, read_timeline, write_timeline
from relaxc.schedule.timeline_ranges import MARK, Range, timeline_of

LOOP, QUEUE = 1, 2


def link(start: float, end: float, bucket: int = 0) -> Span:
    return Span("link", start, end, "", bucket)


def test_what_overlaps_is_busy_once() -> None:
    assert busy([link(0, 2), link(1, 3), link(5, 6), Span("encode", 0, 9, "")], "link") == 4


def test_the_bound_is_the_lane_that_is_busy_longest() -> None:
    spans = [link(0, 3), Span("compute", 0, 2, ""), Span("encode", 0, 1, ""), Span("encode", 3, 4, "")]
    assert bound_of(spans) == "link"


def test_a_span_is_cut_where_an_iteration_ends() -> None:
    found = cut([link(0.5, 2.5), link(2.6, 2.7)], [(0, 1), (1, 2), (2, 3)])
    assert [[(s.start, s.end) for s in one] for one in found] == [[(0.5, 1)], [(1, 2)], [(2, 2.5), (2.6, 2.7)]]


def test_what_lies_before_all_windows_is_left_out() -> None:
    assert cut([link(0, 0.5)], [(1, 2)]) == [[]]


def test_neighbours_of_a_bucket_are_drawn_as_one() -> None:
    assert merged([link(0, 1), link(1.05, 2), link(1, 2, 1), link(3, 4)], 0.1) == [
        link(0, 2), link(1, 2, 1), link(3, 4),
    ]  # fmt: skip


FILE = TimelineFile(Timeline((link(0, 1),), 2.0, 1.5, "link"), "measured", "x", "h", 2, 0, 5)


def test_a_timeline_is_read_as_it_was_written(tmp_path) -> None:
    write_timeline(tmp_path / "t.json", FILE)
    assert read_timeline(tmp_path / "t.json") == FILE


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"kind": 3}',
     '{"timeline":{"spans":[],"iteration":1,"alone":1,"bound":"link"},"kind":"measured","spec":"","hash":"","workers":1,"rank":0,"iterations":1,"format":99}',
     '{"timeline":{"spans":[{"lane":"road","start":0,"end":1,"label":"","bucket":0}],"iteration":1,"alone":1,"bound":"link"},"kind":"measured","spec":"","hash":"","workers":1,"rank":0,"iterations":1}'],
)  # fmt: skip
def test_what_is_no_timeline_is_refused(tmp_path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(BuildError, match="RX0521"):
        read_timeline(tmp_path / "t.json")


def test_a_file_that_is_not_there_is_refused(tmp_path) -> None:
    with pytest.raises(BuildError, match="RX0521"):
        read_timeline(tmp_path / "none.json")
    with pytest.raises(BuildError, match="RX0520"):
        write_timeline(tmp_path / "no" / "folder.json", FILE)


def iteration(at: float) -> list[Range]:
    """Forward for 1 s, backward for 2 with an exchange of bucket 0 in it, for which the loop waits until 4, step."""
    marks = [("begin", 0), ("backward", 1), ("step", 4), ("between", 4.5)]
    queue = [("encode/bucket0", 2, 2.5), ("send/bucket0", 2.5, 2.5), ("receive/bucket0", 2.6, 3.5),
             ("decode/bucket0", 3.5, 4)]  # fmt: skip
    return [
        *(Range(MARK + name, at + when, at + when, LOOP) for name, when in marks),
        *(Range("relaxc::" + name, at + start, at + end, QUEUE) for name, start, end in queue),
        Range("relaxc::wait", at + 3, at + 4, LOOP),
    ]


def test_ranges_become_lanes() -> None:
    ranges = [*iteration(0), *iteration(5), Range(MARK + "begin", 10, 10, LOOP)]
    found, count = timeline_of(ranges, 0, varies=False)
    assert count == 2
    assert (found.iteration, found.exposed, found.bound) == (5, 1, "compute")
    by_lane = {lane: [(s.start, s.end, s.label) for s in found.spans if s.lane == lane] for lane in ("compute", "link")}
    assert by_lane["compute"] == [(0, 1, "forward"), (1, 3, "backward"), (4, 4.5, "step"), (4.5, 5, "between")]
    assert by_lane["link"] == [(2.5, 3.5, "")]
    assert [(s.lane, s.start, s.end, s.bucket) for s in found.spans if s.label in ("encode", "decode")] == [
        ("encode", 2, 2.5, 0), ("decode", 3.5, 4, 0),
    ]  # fmt: skip


def test_the_middle_iteration_is_shown() -> None:
    ranges = [*iteration(0), *iteration(5), *iteration(17), Range(MARK + "begin", 23, 23, LOOP)]
    found, _ = timeline_of(ranges, 0, varies=False)  # 5, 12 and 6 s
    assert found.iteration == 6
    assert max(s.end for s in found.spans) == 6


def test_an_exchange_whose_end_was_not_seen_is_under_way_to_the_end() -> None:
    unseen = [r for r in iteration(0) if not r.name.startswith(("relaxc::receive", "relaxc::decode"))]
    found, _ = timeline_of([*unseen, Range(MARK + "begin", 5, 5, LOOP)], 0, varies=False)
    assert [(s.start, s.end) for s in found.spans if s.lane == "link"] == [(2.5, 5)]


def test_an_iteration_whose_queue_was_held_up_is_not_the_one_that_is_shown() -> None:
    held_up = [r for r in iteration(5) if r.thread == LOOP]
    ranges = [*iteration(0), *held_up, *iteration(10.1), Range(MARK + "begin", 15.3, 15.3, LOOP)]  # 5, 5.1 and 5.2 s
    found, _ = timeline_of(ranges, 0, varies=False)
    assert {s.lane for s in found.spans} == {"compute", "encode", "link", "decode"}


def test_where_iterations_differ_times_are_means_and_the_one_that_sends_is_shown() -> None:
    quiet = [r for r in iteration(5) if r.thread == LOOP and not r.name.endswith("wait")]
    ranges = [*iteration(0), *quiet, Range(MARK + "begin", 11, 11, LOOP)]
    found, _ = timeline_of(ranges, 0, varies=True)
    assert found.iteration == 5.5
    assert busy(found.spans, "link") == 1


def test_buckets_of_programs_have_numbers_behind_those_of_gradients() -> None:
    programs = [Range("relaxc::encode/bucket1", 1.2, 1.4, LOOP), Range("relaxc::send/site1", 1.4, 1.4, 3),
                Range("relaxc::receive/site1", 1.5, 1.9, 3), Range("relaxc::decode/bucket1", 1.9, 1.95, 3)]  # fmt: skip
    found, _ = timeline_of([*iteration(0), *programs, Range(MARK + "begin", 5, 5, LOOP)], 10, varies=False)
    assert {(s.lane, s.bucket) for s in found.spans if s.bucket > 0} == {("encode", 11), ("link", 11), ("decode", 11)}
    backward = [(s.start, s.end) for s in found.spans if s.label == "backward"]
    assert backward == [(1, 1.2), (1.4, 3)]


def test_less_than_an_iteration_is_none() -> None:
    with pytest.raises(ValueError, match="whole iteration"):
        timeline_of(iteration(0), 0, varies=False)
