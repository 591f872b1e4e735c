"""Which codec `compress = auto` stands for on which network."""

from __future__ import annotations

import pytest

from relaxc.choose import ALIKE, CODECS, Chosen, Situation, choose, is_open
from relaxc.language.diagnostics import SpecError
from relaxc.language.source import Source
from relaxc.schedule.network import Line, Network
from relaxc.schedule.profile import ParameterTimes, Profile

LAYERS = 12
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
    assert chosen(1e12, latency=1e-7).best.name == "none"
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
    assert not is_open(mixed.source)


def test_a_mix_is_chosen_for_by_its_whole_statement() -> None:
    found = chosen(1e8, "relax weights { compress = auto, topology = ring }")
    assert [each.name for each in found.candidates] == list(CODECS)
    assert found.best.name != "none"


def test_where_no_codec_makes_sense_the_spec_is_refused_as_with_any() -> None:
    with pytest.raises(SpecError):
        chosen(1e8, "relax gradients { compress = auto, nonsense = 1 }")


@pytest.mark.parametrize(
    ("text", "open_"),
    [("relax gradients { compress = auto }", True), ("relax gradients { feedback = auto }", False), ("relax {", False)],
)
def test_which_specs_leave_a_codec_open(text: str, open_: bool) -> None:
    assert is_open(Source("spec", text)) is open_
