"""What specs mean: every default filled in. Mistakes are in tests/diagnostics/."""

from __future__ import annotations

import pytest

from relaxc.language import library, syntax
from relaxc.language.check import check
from relaxc.language.diagnostics import SpecError
from relaxc.language.format import expression
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.language.spec import CodecUse, Feedback, Spec, Use


def spec(text: str, **settings: str) -> Spec:
    return check(parse(Source("t.relax", text)), settings)


def only(clauses: str) -> dict[str, object]:
    """The arguments of `relax gradients` with these clauses."""
    (use,) = spec(f"relax gradients {{ {clauses} }}").uses
    return values(use)


def values(use: Use) -> dict[str, object]:
    return {argument.name: argument.value for argument in use.arguments}


def test_defaults() -> None:
    (use,) = spec("relax gradients").uses
    assert (use.selector, use.title, use.definition.name) == (None, "relax gradients", "gradients")
    assert values(use) == {"compress": None, "feedback": Feedback.AUTO, "late": 0, "route": "auto"}


@pytest.mark.parametrize(
    ("written", "full"),
    [
        ("8bit", "minmax(bits = 8, block = 512, rounding = nearest)"),
        ("4bit", "minmax(bits = 4, block = 512, rounding = nearest)"),
        ("2bit", "minmax(bits = 2, block = 512, rounding = nearest)"),
        ("1bit", "onebit(block = 2048)"),
        ("fp16", "fp16"),
        ("bf16", "bf16"),
        ("exact", "exact"),
        ("minmax", "minmax(bits = 8, block = 512, rounding = nearest)"),
        ("minmax(4bit)", "minmax(bits = 4, block = 512, rounding = nearest)"),
        ("minmax(3)", "minmax(bits = 3, block = 512, rounding = nearest)"),
        ("minmax(2, 7, stochastic)", "minmax(bits = 2, block = 7, rounding = stochastic)"),
        ("absmax(rounding = stochastic, bits = 2)", "absmax(bits = 2, block = 512, rounding = stochastic)"),
        ("absmax(block = 2 ^ 20)", "absmax(bits = 8, block = 1048576, rounding = nearest)"),
        ("onebit(1)", "onebit(block = 1)"),
    ],
)
def test_codecs(written: str, full: str) -> None:
    assert str(only(f"compress = {written}")["compress"]) == full


def test_full_precision() -> None:
    assert only("compress = none")["compress"] is None


@pytest.mark.parametrize("word", list(Feedback))
def test_feedback(word: Feedback) -> None:
    """What `auto` means is for the codec to say, which lowering asks."""
    assert only(f"compress = 8bit, feedback = {word}")["feedback"] is word


def test_delay_and_route() -> None:
    written = ("0", "2", "2steps", "1step", "2 ^ 3", "100")
    assert [only(f"delay = {d}")["late"] for d in written] == [0, 2, 2, 1, 8, 100]
    assert only("route = ring")["route"] == "ring"
    assert only("topology = ring")["route"] == "ring"
    assert only("compress = none, route = all")["route"] == "all"


def test_params_reach_every_place() -> None:
    text = """
        param width = 4bit
        param size = 2 ^ 8
        param norms = "*.norm.*"
        param way = ring
        param late = size / 128
        relax gradients for norms or numel < size * 4
        relax gradients { compress = minmax(width, block = size), delay = late, route = way }
    """
    made = spec(text)
    first, second = made.uses
    assert first.selector is not None and expression(first.selector) == '"*.norm.*" or numel < 1024'
    given = values(second)
    assert str(given["compress"]) == "minmax(bits = 4, block = 256, rounding = nearest)"
    assert (given["late"], given["route"]) == (2, "ring")
    assert made.params == (("width", "4bit"), ("size", 256), ("norms", '"*.norm.*"'), ("way", "ring"), ("late", 2))
    assert made.warnings == ()


def test_settings_replace_params_and_what_is_made_of_them() -> None:
    text = "param size = 64 param twice = size * 2 relax gradients { compress = onebit(twice) }"
    assert str(values(spec(text, size="2 ^ 5").uses[0])["compress"]) == "onebit(block = 64)"


@pytest.mark.parametrize(
    ("settings", "code", "place"),
    [
        ({"wdth": "4bit"}, "RX0109", "wdth"),
        ({"width": "3bit"}, "RX0201", "width"),
        ({"width": "("}, "RX0004", "("),
        ({"width": ""}, "RX0002", ""),
        ({"width": "4bit 4bit"}, "RX0002", "4bit"),
        ({"width": "1 / 0"}, "RX0208", "1 / 0"),
    ],
)
def test_bad_settings(settings: dict[str, str], code: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec("param width = 4bit relax gradients { compress = width }", **settings)
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.labels[0].span.text) == (code, place)


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ('"a.*"', '"a.*"'),
        ('name == "a"', '"a"'),
        ('"a" != name', 'not "a"'),
        ("2 > ndim", "ndim < 2"),
        ("1024 <= numel and not ndim == 1", "numel >= 1024 and not ndim == 1"),
        ("bf16 == dtype", "dtype == bf16"),
    ],
)
def test_selectors_have_one_form(written: str, normal: str) -> None:
    selector = spec(f"relax gradients for {written} relax gradients").uses[0].selector
    assert selector is not None and expression(selector) == normal


@pytest.mark.parametrize("name", library.specs())
def test_the_library_is_right(name: str) -> None:
    file = library.spec(name)
    assert file is not None
    assert check(file).warnings == ()


@pytest.mark.parametrize("name", library.codecs())
def test_codecs_of_the_library_are_named_after_their_files(name: str) -> None:
    codec = library.codec(name)
    assert isinstance(codec, syntax.Codec) and codec.name == name
    use = values(spec(f"relax gradients {{ compress = {name} }}").uses[0])["compress"]
    assert isinstance(use, CodecUse) and use.definition is codec


def test_what_the_library_does_not_have() -> None:
    assert library.spec("nowhere") is None and library.codec("../minmax") is None
    assert {"minmax", "absmax", "onebit", "fp16", "bf16", "exact"} <= set(library.codecs())


def test_the_quickstart_has_five_lines_at_most() -> None:
    file = library.spec("quickstart")
    assert file is not None and len(file.source.text.splitlines()) <= 5


def test_many_statements_are_quick() -> None:
    text = "".join(f'relax gradients for "layer{i}.*" {{ delay = 1 }}\n' for i in range(2000))
    assert len(spec(text + "relax gradients").uses) == 2001


def test_a_cluster() -> None:
    full = "cluster { workers = 2 * n, per_machine = n, bandwidth = 10Gbps; latency = 50us, inner = 100Gbps }"
    found = spec(f"param n = 4 {full} relax gradients").cluster
    assert found is not None and found.span.text == "cluster"
    assert (found.workers, found.per_machine, found.bandwidth, found.inner) == (8, 4, 1e10, 1e11)
    assert found.latency == pytest.approx(50e-6)
    assert spec("relax gradients").cluster is None
    assert not spec(f"param n = 4 {full} relax gradients").warnings


def test_a_cluster_of_which_little_is_said() -> None:
    found = spec("relax gradients cluster { bandwidth = 25Mbps }").cluster
    assert found is not None
    assert (found.workers, found.per_machine, found.bandwidth, found.latency) == (None, 1, 2.5e7, None)
