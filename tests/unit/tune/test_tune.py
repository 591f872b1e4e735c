"""Variants of a spec, their ranking, and which pays on which network."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from plans_of import free_network, profile_of

from relaxc import pipeline
from relaxc.emit.plan import emit
from relaxc.language.source import Source
from relaxc.manifest import Manifest
from relaxc.schedule.network import Coding, Line, Network
from relaxc.tune.drawing import crossovers, letters, shown_bits, svg_map, text_map
from relaxc.tune.grid import Variant, parsed_grid, variants
from relaxc.tune.ranking import Candidate, Map, best, candidates, mapped, ranked, stretches
from relaxc.usage import UsageError


def texts(spec: str, **given: tuple[str, ...]) -> list[str]:
    return [v.source.text for v in variants(Source("x", spec), {}, given)]


def test_knobs_are_replaced_where_they_are_and_added_where_they_are_not() -> None:
    found = texts(
        "relax gradients for ndim < 2 { compress = bf16 }\nrelax gradients { compress = 1bit, feedback = worker } # end\n",
        compress=("4bit", "none"), route=("all", "ring"), delay=("0", "2"),
    )  # fmt: skip
    head = "relax gradients for ndim < 2 { compress = bf16 }\nrelax gradients"
    assert found == [
        f"{head} {{ feedback = worker, compress = 4bit }} # end\n",
        f"{head} {{ feedback = worker, compress = 4bit, delay = 2 }} # end\n",
        f"{head} {{ feedback = worker, compress = 4bit, route = ring }} # end\n",
        f"{head} {{ feedback = worker, compress = 4bit, route = ring, delay = 2 }} # end\n",
        f"{head} # end\n",
        f"{head} {{ delay = 2 }} # end\n",
        f"{head} {{ route = ring }} # end\n",
        f"{head} {{ route = ring, delay = 2 }} # end\n",
    ]


def test_what_the_spec_says_is_among_the_variants() -> None:
    found = variants(Source("x", "relax gradients { compress = topk(1%), feedback = worker }"), {}, {})
    assert ("compress", "topk(1%)") in {pair for v in found for pair in v.chosen}


def test_a_param_that_a_knob_names_is_left_to_the_grid() -> None:
    spec = "param width = 4bit\nrelax gradients { compress = width }"
    found = variants(Source("x", spec), {"other": "1"}, {"width": ("2bit", "8bit"), "route": ("all",), "delay": ("0",)})
    assert [v.settings for v in found] == [{"other": "1", "width": "2bit"}, {"other": "1", "width": "8bit"}]
    assert {v.source.text for v in found} == {spec.replace("{ compress = width }", "{ compress = width }")}


def test_an_algorithm_has_the_params_that_are_given() -> None:
    spec = "param period = 8\nalgorithm a() { step every period { weight = mean(weight) } }\nrelax with a"
    found = variants(Source("x", spec), {}, {"period": ("2", "4")})
    assert [v.name for v in found] == ["period = 2", "period = 4"]
    assert [v.name for v in variants(Source("x", spec), {}, {})] == ["as it stands"]


def test_a_grid_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="--grid width: no param"):
        variants(Source("x", "algorithm a() { step }\nrelax with a"), {}, {"width": ("4bit",)})
    with pytest.raises(UsageError, match="variants; give shorter lists"):
        variants(Source("x", "relax gradients"), {}, {"delay": tuple(map(str, range(200)))})


def test_a_grid_of_what_a_statement_has_not_says_what_it_has() -> None:
    with pytest.raises(UsageError, match=r"--grid momentum: .*\(compress, delay, route, width\)"):
        variants(Source("s", "param width = 4\nrelax gradients"), {}, {"momentum": ("0.5",)})


def test_what_lands_when_it_has_arrived_has_no_bound() -> None:
    def staleness(text: str) -> str:
        source = Source("s", text)
        return Candidate(Variant((), source, {}), pipeline.manifest_of(source, {}, "s"), 0).staleness

    late = "relax gradients for ndim < 2 { delay = 2 }\n"
    assert [staleness(late + last) for last in ("relax gradients", "relax weights { delay = async }")] == ["2", "any"]


def test_a_grid_is_read_with_its_parentheses() -> None:
    assert parsed_grid(["width=4bit, 8bit", "c=topk(1%, x),none"]) == {
        "width": ("4bit", "8bit"), "c": ("topk(1%, x)", "none"),
    }  # fmt: skip
    for wrong in ("width", "=4bit", "width=", "width=,"):
        with pytest.raises(UsageError, match="--grid takes"):
            parsed_grid([wrong])


def made(variant: Variant) -> Manifest:
    judged = pipeline.to_typed(pipeline.to_spec(variant.source, variant.settings))
    return emit(judged.program, pipeline.to_paths(judged.program), judged.facts, "x", None).manifest


def found_for(spec: str, **given: tuple[str, ...]):
    return candidates(variants(Source("x", spec), {}, given), made)


def test_what_the_language_refuses_is_told_and_what_is_the_same_is_left_out() -> None:
    found = found_for("relax gradients", compress=("none", "8bit", "7bit"), route=("all",), delay=("0", "00"))
    assert [c.variant.name for c in found.found] == [
        "compress = none, route = all, delay = 0", "compress = 8bit, route = all, delay = 0",
    ]  # fmt: skip
    assert [v.name for v, _ in found.refused] == [
        "compress = 7bit, route = all, delay = 0", "compress = 7bit, route = all, delay = 00",
    ]  # fmt: skip


def test_the_fastest_is_first() -> None:
    found = found_for("relax gradients", compress=("none", "bf16", "8bit", "4bit"), route=("all",), delay=("0",))
    slow = ranked(found.found, profile_of([100_000]), free_network(1e-5), 4, 2)
    assert [r.candidate.variant.chosen[0][1] for r in slow] == ["4bit", "8bit", "bf16", "none"]


def test_of_those_about_as_fast_the_one_that_relaxes_least_is_the_answer() -> None:
    assert best({0: 1.019, 1: 1.0, 2: 1.5}) == 0
    assert best({0: 1.03, 1: 1.0, 2: 1.0}) == 1


COSTLY = Network(Line(0.0, 0.0), codings={
    "minmax(bits = 8, block = 512, rounding = nearest)": Coding(Line(0.0, 1e-8), Line(0.0, 0.0)),
})  # fmt: skip


def test_a_codec_pays_below_the_bandwidth_where_it_costs_what_it_saves() -> None:
    """Among two workers, 1 M elements are encoded 1.5 times at 10 ns: 15 ms. It saves 3/4 of 4 MB: 3 MB, which a link
    of 200 MB/s = 1.6 Gbit/s carries in 15 ms; overlap of the pieces moves that a little up. The backward takes no
    time, so that nothing hides."""
    found = found_for("relax gradients", compress=("none", "8bit"), route=("all",), delay=("0",))
    profile = profile_of([1_000_000], forward=1e-3, backward=0.0, ready=[0.0])
    made_map = mapped(found.found, profile, COSTLY, 2, 2, bandwidths=[1e8, 1e9, 1e10], latencies=[0.0])
    assert made_map.answers == ((1, 1, 0),)
    assert made_map.gains[0][0] > made_map.gains[0][1] > made_map.gains[0][2] == 1
    (below, above) = stretches(made_map, 0)
    assert (below.low, below.order, above.high, above.order) == (1e8, 1, 1e10, 0)
    assert below.high == above.low == pytest.approx(10**9.5)


MAP = Map((1e7, 1e8, 1e9), (1e-5, 1e-3), ((1, 1, 0), (1, 1, 1)), ((3.0, 2.0, 1.0), (3.0, 2.0, 1.5)))


def two():
    return found_for("relax gradients", compress=("none", "8bit"), route=("all",), delay=("0",)).found


def test_crossovers_are_sentences() -> None:
    assert list(crossovers(MAP, two(), 0)) == [
        "below 316 Mbit/s: compress = 8bit, route = all, delay = 0",
        "above 316 Mbit/s: no compression (compress = none, route = all, delay = 0)",
    ]
    assert list(crossovers(MAP, two(), 1)) == ["everywhere: compress = 8bit, route = all, delay = 0"]


def test_a_map_as_text_has_a_letter_for_each_network() -> None:
    assert letters(MAP) == {0: "A", 1: "B"}
    lines = text_map(MAP, two()).splitlines()
    assert lines[0] == "  latency, and bandwidths from 10 Mbit/s to 1 Gbit/s"
    assert lines[1].split() == ["10", "us", "B", "B", "A"]
    assert lines[2].split() == ["1", "ms", "B", "B", "B"]
    assert lines[-2:] == [
        "  A  no compression (compress = none, route = all, delay = 0)", "  B  compress = 8bit, route = all, delay = 0",
    ]  # fmt: skip


def test_a_map_as_a_drawing_is_whole() -> None:
    drawn = ET.fromstring(svg_map(MAP, two(), "a < b"))
    inside = [e.text for e in drawn.iter() if e.text]
    assert inside.count("B 3x") == 2 and "a < b" in inside
    colours = {e.get("fill") for e in drawn.iter() if e.tag.endswith("rect")}
    assert len(colours) == 3, "two answers and the ground"


@pytest.mark.parametrize(
    ("bits", "text"), [(1e7, "10 Mbit/s"), (1e9, "1 Gbit/s"), (999_999_999.0, "1 Gbit/s"), (5e4, "50 kbit/s")]
)
def test_bandwidths_have_units(bits: float, text: str) -> None:
    assert shown_bits(bits) == text


def test_codecs_and_links_within_a_machine_stay_as_they_were() -> None:
    """Workers of one machine: the link between machines makes no difference."""
    found = two()
    network = replace(COSTLY, per_machine=2, inner=Line(0.0, 1e-9), reduce=None)
    profile = profile_of([100_000], ready=[2.0])
    made_map = mapped(found[1:], profile, network, 2, 2, bandwidths=[1e7, 1e10], latencies=[1e-6])
    assert made_map.gains == ((1.0, 1.0),)
