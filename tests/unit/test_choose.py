"""Which codec `compress = auto` stands for on which network, and which route where none is written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from relaxc.choices import Situation
from relaxc.choose import ALIKE, Candidate, Chosen, choose, cores_of, is_open, resolved, story
from relaxc.language.automatic import CODECS
from relaxc.language.diagnostics import SpecError
from relaxc.language.source import Source
from relaxc.schedule.network import Coding, Line, Network
from relaxc.schedule.profile import ParameterTimes, Profile

LAYERS = 12
ONLY = Candidate("as it stands", Source("spec", ""), 1.0)
DONE = Chosen(ONLY, (ONLY,))
SIDE = 512


def profile(layers: int = LAYERS) -> Profile:
    """Layers of a megabyte, a hundredth of a second each way."""
    names = [(f"layer.{n}.weight", (SIDE, SIDE)) for n in range(layers)]
    times = [
        ParameterTimes(name, shape, "f32", (layers - n) * 0.01, n * 0.01, f"layer.{n}")
        for n, (name, shape) in enumerate(names)
    ]
    return Profile(layers * 0.01, layers * 0.01, 0.001, tuple(times), "torch.fx")


def chosen(
    bits: float, text: str = "relax gradients { compress = auto, feedback = none }", latency: float = 1e-4
) -> Chosen:
    return choose(Source("spec", text), {}, "spec", Situation(profile(), Network(Line(latency, 8 / bits)), 4))


@pytest.mark.parametrize("bits", [1e8, 1e9, 3e9, 1e10, 1e11])
def test_it_is_about_as_fast_as_the_best_codec_and_no_slower_than_none(bits: float) -> None:
    found = chosen(bits)
    fixed = {each.name: each.seconds for each in found.candidates if each.name in CODECS}
    assert set(fixed) == set(CODECS)
    assert found.best.seconds <= (1 + ALIKE) * min(fixed.values())
    assert found.best.seconds <= (1 + ALIKE) * fixed["none"]


def test_a_fast_network_takes_none_and_a_slow_one_the_smallest() -> None:
    codecs = ["bf16", *(f"minmax(bits = {bits}, block = 512, rounding = nearest)" for bits in (8, 4))]
    slow = dict.fromkeys(codecs, Coding(Line(0.0, 1e-8), Line(0.0, 1e-8)))
    fast = Network(Line(1e-7, 8e-12), codings=slow)
    text = Source("spec", "relax gradients { compress = auto }")
    assert choose(text, {}, "spec", Situation(profile(), fast, 4)).best.name == "none"
    assert "4bit" in chosen(1e8).best.source.text


def test_statements_with_a_codec_of_their_own_keep_it() -> None:
    text = 'relax gradients for "layer.0.*" { compress = 8bit }\nrelax gradients { compress = auto }\n'
    assert chosen(1e8, text).best.source.text.startswith('relax gradients for "layer.0.*" { compress = 8bit }\n')


def test_where_the_last_gradients_are_waited_for_and_the_first_are_not_codecs_differ() -> None:
    """What is sent while backward runs may as well be exact; what comes last is not hidden by anything."""
    slow = Network(Line(1e-5, 8 / 4e9))
    found = choose(
        Source("spec", "relax gradients { compress = auto, feedback = none }"), {}, "spec",
        Situation(profile(), slow, 4),
    )  # fmt: skip
    assert "mixed" in [each.name for each in found.candidates]
    mixed = next(each for each in found.candidates if each.name == "mixed")
    lines = mixed.source.text.split("\n")
    assert [line for line in lines if "4bit" in line] == [
        'relax gradients for "layer.0.*" { compress = 4bit, feedback = none }'
    ]
    names = [each.name for each in found.candidates]
    assert names.index("mixed") < names.index("4bit")  # it loses less
    assert "auto" not in mixed.source.text


def test_a_mix_is_chosen_for_by_its_whole_statement() -> None:
    found = chosen(1e8, "relax weights { compress = auto, topology = ring }")
    assert [each.name for each in found.candidates] == list(CODECS)
    assert found.best.name != "none"


def test_where_no_codec_makes_sense_the_spec_is_refused_as_with_any() -> None:
    with pytest.raises(SpecError):
        chosen(1e8, "relax gradients { compress = auto, nonsense = 1 }")


@pytest.mark.parametrize(
    ("text", "open_"),
    [
        ("relax gradients { compress = auto, route = all }", True),
        ("relax gradients", True),
        ("relax gradients { route = auto }", True),
        ("relax updates { every = 4 }", True),
        ("relax gradients { feedback = auto, route = all }", False),
        ("relax gradients { topology = ring }", False),
        ("relax weights { topology = ring }", False),
        ("relax {", False),
    ],
)
def test_which_specs_leave_something_open(text: str, open_: bool) -> None:
    assert is_open(Source("spec", text)) is open_


# --- routes

SMALL = [(f"layer.{n}.weight", (32, 32)) for n in range(4)]


def small_profile(sizes: Sequence[tuple[str, tuple[int, ...]]] = SMALL) -> Profile:
    """Layers that take no time."""
    times = [
        ParameterTimes(name, shape, "f32", 1e-6 * (len(sizes) - n), 0.0, name) for n, (name, shape) in enumerate(sizes)
    ]
    return Profile(1e-6, 1e-6, 0.0, tuple(times), "torch.fx")


def routed(
    text: str, network: Network, workers: int = 4, sizes: Sequence[tuple[str, tuple[int, ...]]] = SMALL
) -> Chosen:
    return choose(Source("spec", text), {}, "spec", Situation(small_profile(sizes), network, workers))


FAR = Network(Line(5e-3, 8 / 1e9))
"""Messages take long and hold much."""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("relax gradients", "relax gradients { route = gather }"),
        ("relax gradients { compress = 4bit }", "relax gradients { compress = 4bit, route = gather }"),
        ("relax gradients { route = auto }", "relax gradients { route = gather }"),
        ("relax updates { every = 2 }", "relax updates { every = 2, route = gather }"),
    ],
)
def test_few_bytes_over_slow_messages_go_to_everyone_at_once(text: str, wanted: str) -> None:
    """One message's time in place of two, or of a ring's."""
    found = routed(text, FAR).best
    assert found.source.text == wanted
    assert found.routes == (("gather", len(SMALL)),)
    assert found.seconds < found.plain * 0.97


@pytest.mark.parametrize(
    "text", ["relax gradients { route = all, compress = 4bit }", "relax gradients { route = ring }"]
)
def test_a_route_that_is_written_stays(text: str) -> None:
    found = routed(text, FAR).best
    assert (found.source.text, found.routes) == (text, ())


def test_many_bytes_keep_the_codecs_own_route() -> None:
    for text in ("relax gradients", "relax gradients { compress = 8bit }"):
        found = routed(text, Network(Line(1e-5, 8 / 1e8)), sizes=[("layer.weight", (1000, 1000))]).best
        assert (found.source.text, found.routes) == (text, ())


def test_workers_of_a_machine_add_up_what_they_have_before_it_leaves() -> None:
    """Of two machines of four: what leaves is what one worker has, not what four have."""
    machines = Network(Line(1e-4, 8 / 1e9), per_machine=4, inner=Line(1e-5, 8 / 1e11))
    for text in ("relax gradients { compress = 4bit }", "relax gradients"):
        found = routed(text, machines, 8, [("layer.weight", (1000, 1000))]).best
        assert "route = hierarchy" in found.source.text
        assert found.seconds < found.plain * 0.8
    assert routed("relax gradients", Network(Line(1e-4, 8 / 1e9)), 8).best.routes != (("hierarchy", len(SMALL)),)


def test_no_route_is_taken_that_rounds_more_often() -> None:
    """Between some pairs messages are slow; a ring goes round them. But each hop would encode again."""
    pairs = {(a, b): Line(1e-4, 8 / 1e7) for a in range(4) for b in range(4) if (b - a) % 4 not in (0, 1)}
    slow = Network(Line(1e-4, 8 / 1e9), pairs=pairs)
    sizes = [("layer.weight", (1000, 1000))]
    coded = routed("relax gradients { compress = 4bit, feedback = none }", slow, sizes=sizes).best
    assert "ring" not in coded.source.text
    by_ring = routed("relax gradients { compress = 4bit, feedback = none, route = ring }", slow, sizes=sizes).best
    assert by_ring.seconds < coded.seconds * 0.5
    assert routed("relax gradients { compress = 4bit, route = all }", slow, sizes=sizes).best.seconds >= coded.seconds


def test_routes_differ_between_buckets() -> None:
    """The large layer is sent while the small ones, which come last, are computed: each of those takes the way that is
    over first."""
    sizes = {"last.0": (8, 8), "last.1": (8, 8), "early": (400, 400)}
    times = [ParameterTimes(n, shape, "f32", 0.05 if n == "early" else 0.3, 0.0, n) for n, shape in sizes.items()]
    of, network = Profile(0.0, 0.3, 0.0, tuple(times), "torch.fx"), Network(Line(0.005, 8 / 67e6))
    found = choose(Source("spec", "relax gradients"), {}, "spec", Situation(of, network, 8)).best
    assert found.routes == (("gather", len(sizes) - 1),)
    assert found.source.text == ('relax gradients for "early"\nrelax gradients { route = gather }')


def test_what_was_chosen_is_told() -> None:
    (line,) = story(routed("relax gradients { compress = 4bit }", FAR))
    assert line.startswith("route = auto: gather for 4 parameters; predicted iteration: ")
    assert line.endswith(" by the codec's own")
    assert story(routed("relax gradients { route = all }", FAR)) == []
    codec, route = story(routed("relax gradients { compress = auto }", FAR))
    assert codec.startswith("compress = auto: ") and route.startswith("route = auto: gather")


def two_slow(first: int, second: int) -> Network:
    """Four workers, of which two hear from each other through a link a hundred times slower."""
    slow = Line(2e-2, 8e-7)
    return Network(Line(2e-4, 8e-9), pairs={(first, second): slow, (second, first): slow}, workers=4)


def test_the_slowest_worker_counts_whatever_it_is_called() -> None:
    text, times = Source("spec", "relax gradients"), profile(3)
    found = [choose(text, {}, "spec", Situation(times, two_slow(*pair), 4)).best for pair in ((0, 1), (2, 3))]
    assert found[0].routes == found[1].routes
    assert found[0].seconds == pytest.approx(found[1].seconds, rel=0.05)


def test_a_better_route_of_two_statements_at_once_is_found() -> None:
    """Chosen again, the text that was chosen stays as it is."""
    text = Source("spec", 'relax updates for "layer.0.*" { every = 1 }\nrelax gradients')
    situation = Situation(profile(2), Network(Line(2e-2, 8e-12)), 4)
    found = choose(text, {}, "spec", situation).best
    assert found.source.text.count("route = gather") == 2
    again = choose(found.source, {}, "spec", situation).best
    assert again.source == found.source and again.seconds == found.seconds


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("relax gradients { compress = auto, gamma = 3 }", "gamma"),
        ("relax gradients { compress = auto, delay = async }", "auto"),
        ("relax weights { compress = auto, topology = hypercube }", "hypercube"),
        ('relax weights for "layer.0.*" { topology = hypercube }\nrelax gradients { compress = auto }', "hypercube"),
        ("relax gradients { compress = auto, route = hierarchy(inner = 4) }", "auto"),
    ],
)
def test_what_is_wrong_is_shown_in_the_text_that_was_written(text: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        choose(Source("spec", text), {}, "spec", Situation(profile(2), Network(Line(1e-4, 8e-9)), 6))
    span = caught.value.diagnostics[0].labels[0].span
    assert span.source.text == text and span.text == place


def test_cores_are_those_that_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they are by default: those of a machine like this one, shared by its workers."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    assert [cores_of(Network(Line(1e-4, 8e-9), per_machine=n)) for n in (1, 4, 16)] == [8, 2, 1]
    seen: list[int] = []
    monkeypatch.setattr("relaxc.choose.choose", lambda source, settings, name, of: seen.append(of.cores) or DONE)
    for cores in (None, 3):
        resolved(Source("spec", "relax gradients"), {}, "spec", profile(2), lambda _: (Network(Line(1e-4, 8e-9)), 4),
                 lambda line: None, cores)  # fmt: skip
    assert seen == [8, 3]
