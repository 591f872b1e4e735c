"""The dynamic programme against exhaustive search, closed forms, and its own bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxc.schedule.partition import Cut, Job, Option, partition, unbeaten_options

FREE = (0.0, 0.0, 0.0)


def compositions(count: int) -> Iterator[list[tuple[int, int]]]:
    for borders in product((False, True), repeat=count - 1):
        ends = [n + 1 for n, border in enumerate(borders) if border] + [count]
        yield list(zip([0, *ends], ends, strict=False))


def finish(ready: Sequence[float], options: Sequence[Option], cuts: Sequence[Cut], beside: Sequence[Job]) -> float:
    """Straight from the definition."""
    jobs = [(job.ready, 0, 0, job.cost) for job in beside]
    for cut in cuts:
        option = options[cut.option]
        cost = tuple(
            option.fixed[engine] + sum(option.added[p][engine] for p in range(cut.first, cut.end))
            for engine in range(3)
        )
        jobs.append((ready[cut.end - 1], 1, cut.end, cost))
    encoder = link = decoder = float("-inf")
    for at, _, _, (encode, send, decode) in sorted(jobs, key=lambda job: job[:3]):
        encoder = max(encoder, at) + encode
        link = max(link, encoder) + send
        decoder = max(decoder, link) + decode
    return decoder


def exhaustive(
    ready: Sequence[float],
    options: Sequence[Option],
    beside: Sequence[Job] = (),
    sizes: Sequence[int] = (),
    limit: int = 0,
) -> float:
    return min(
        finish(ready, options, [Cut(a, b, o) for (a, b), o in zip(borders, chosen, strict=True)], beside)
        for borders in compositions(len(ready))
        if not limit or all(sum(sizes[a:b]) <= limit or b - a == 1 for a, b in borders)
        for chosen in product(range(len(options)), repeat=len(borders))
    )


costs = st.tuples(*[st.integers(0, 9).map(float)] * 3)


@st.composite
def problems(draw: st.DrawFn, most: int, codecs: int) -> tuple[list[float], list[Option]]:
    count = draw(st.integers(1, most))
    ready = sorted(draw(st.lists(st.integers(0, 30).map(float), min_size=count, max_size=count)))
    options = [
        Option(draw(costs), draw(st.lists(costs, min_size=count, max_size=count)))
        for _ in range(draw(st.integers(1, codecs)))
    ]
    return ready, options


@settings(max_examples=150, deadline=None)
@given(problems(7, 2))
def test_it_is_as_good_as_exhaustive_search(problem: tuple[list[float], list[Option]]) -> None:
    found = partition(*problem)
    assert found.finish == finish(*problem, found.cuts, ()) == exhaustive(*problem)
    assert found.bound == found.finish


@settings(max_examples=50, deadline=None)
@given(problems(5, 4))
def test_with_four_codecs(problem: tuple[list[float], list[Option]]) -> None:
    assert partition(*problem).finish == exhaustive(*problem)


@settings(max_examples=150, deadline=None)
@given(problems(5, 2), st.lists(st.builds(Job, st.integers(0, 35).map(float), costs), max_size=3))
def test_beside_other_jobs(problem: tuple[list[float], list[Option]], beside: list[Job]) -> None:
    found = partition(*problem, beside=beside)
    assert found.finish == finish(*problem, found.cuts, beside) == exhaustive(*problem, beside)


@settings(max_examples=50, deadline=None)
@given(problems(6, 2), st.lists(st.integers(1, 9), min_size=6, max_size=6), st.integers(1, 20))
def test_with_a_bound_on_bytes(problem: tuple[list[float], list[Option]], sizes: list[int], limit: int) -> None:
    sizes = sizes[: len(problem[0])]
    found = partition(*problem, sizes=sizes, limit=limit)
    assert found.finish == exhaustive(*problem, sizes=sizes, limit=limit)
    assert all(sum(sizes[c.first : c.end]) <= limit or c.end - c.first == 1 for c in found.cuts)


@settings(max_examples=50, deadline=None)
@given(problems(7, 3))
def test_a_search_that_gives_up_choices_says_what_it_may_have_missed(
    problem: tuple[list[float], list[Option]],
) -> None:
    narrow, best = partition(*problem, width=1), exhaustive(*problem)
    assert narrow.bound <= best <= narrow.finish


@settings(max_examples=50, deadline=None)
@given(problems(5, 3), st.lists(st.tuples(st.integers(0, 2), costs), max_size=3))
def test_options_that_are_beaten_are_not_needed(
    problem: tuple[list[float], list[Option]], worse: list[tuple[int, tuple[float, float, float]]]
) -> None:
    """With them the best is as good, and is found."""
    ready, options = problem
    beaten = []
    for number, more in worse:
        like = options[number % len(options)]
        fixed = tuple(a + b for a, b in zip(like.fixed, more, strict=True))
        beaten.append(Option(fixed, like.added))
    both = [*options, *beaten]
    assert set(unbeaten_options(both)) <= set(range(len(options)))
    assert partition(ready, both).finish == partition(ready, options).finish == exhaustive(ready, both)


def test_one_that_is_beaten_is_taken_where_it_ends_no_later() -> None:
    """It comes first: it loses less, say."""
    slow, quick = Option((1, 1, 1), [(2, 2, 2)] * 3), Option((1, 1, 1), [(1, 1, 1)] * 3)
    found = partition([0.0, 100.0, 200.0], [slow, quick])
    assert unbeaten_options([slow, quick]) == [1]
    assert [found.cuts[0].option, found.cuts[-1].option] == [0, 1]


def test_cuts_cover_all_in_order() -> None:
    ready = [float(n) for n in range(40)]
    cuts = partition(ready, [Option((0.1, 2, 0.1), [(0.2, 0.7, 0.1)] * 40)]).cuts
    assert cuts[0].first == 0
    assert cuts[-1].end == 40
    assert all(a.end == b.first for a, b in pairwise(cuts))


def test_nothing_is_split_where_that_gains_nothing() -> None:
    """All is ready at once, so a second bucket only costs."""
    assert partition([1.0] * 5, [Option((0, 1, 0), [(0, 1, 0)] * 5)]).cuts == (Cut(0, 5, 0),)
    free = partition([0.0, 100.0], [Option(FREE, [(0, 1, 0)] * 2)])
    assert len(free.cuts) == 2  # the first would wait for the second
    assert free.finish == 101


def test_an_early_bucket_is_by_the_codec_that_costs_least_and_a_late_one_by_the_smallest() -> None:
    """What comes first has time; what comes last is waited for."""
    wide, narrow = Option((0, 0, 0), [(0, 50, 0)] * 2), Option((0, 0, 0), [(60, 1, 1)] * 2)
    found = partition([0.0, 100.0], [wide, narrow])
    assert [c.option for c in found.cuts] == [0, 0]
    slow = partition([0.0, 100.0], [Option(FREE, [(0, 50, 0), (0, 80, 0)]), Option(FREE, [(150, 1, 1), (60, 1, 1)])])
    assert [c.option for c in slow.cuts] == [0, 1]


def test_of_options_that_end_alike_the_first_is_taken() -> None:
    same = Option(FREE, [(0, 1, 0)] * 4)
    assert {cut.option for cut in partition([0.0, 10.0, 20.0, 30.0], [same, same, same]).cuts} == {0}
    late = Option(FREE, [(0, 9, 0)] * 4)
    assert [cut.option for cut in partition([0.0, 10.0, 20.0, 30.0], [late, same]).cuts][-1] == 1


def test_a_thousand_parameters_keep_few_choices() -> None:
    """So a search is about linear in their number, and exact."""
    count = 1000
    ready = [n * 1e-4 for n in range(count)]
    sizes = [(n * 7919 % 1000 + 1) * 50 for n in range(count)]
    for pace in (1e-9, 1e-8, 1e-7):
        found = partition(ready, [Option((1e-5, 2e-4, 1e-5), [(s * 1e-9, s * pace, s * 1e-9) for s in sizes])])
        assert found.widest < 200
        assert found.bound == found.finish


def test_with_codecs_to_choose_it_is_no_later_than_with_the_best_alone() -> None:
    """And with so many parameters that neighbours are put together, by no more than a run's work."""
    count = 300
    ready = [n * 1e-3 for n in range(count)]
    sizes = [(n * 7919 % 100 + 1) * 500 for n in range(count)]
    wide = Option((0, 2e-4, 0), [(0, s * 3e-8, 0) for s in sizes])
    narrow = Option((1e-5, 2e-4, 1e-5), [(s * 8e-9, s * 8e-9, s * 8e-9) for s in sizes])
    found = partition(ready, [wide, narrow])
    alone = min(partition(ready, [option]).finish for option in (wide, narrow))
    assert found.bound <= found.finish <= alone + sum(sizes) * 3e-8 / 128
    assert found.finish == pytest.approx(finish(ready, [wide, narrow], found.cuts, ()))


@pytest.mark.parametrize("count", [0, 1])
def test_the_smallest(count: int) -> None:
    found = partition([5.0] * count, [Option((1, 1, 1), [(1, 2, 3)] * count)])
    assert found.finish == (14.0 if count else 0.0)
    assert len(found.cuts) == count
