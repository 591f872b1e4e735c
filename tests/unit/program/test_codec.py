from __future__ import annotations

import codecs_by_hand as codecs
import pytest

from relaxc import resources
from relaxc.language import syntax
from relaxc.language.diagnostics import SpecError
from relaxc.language.parse import parse
from relaxc.language.source import Source, Span
from relaxc.language.spec import CodecUse
from relaxc.program.codec import EXACT, lower_codec
from relaxc.program.codec_expressions import fold
from relaxc.program.ir import Codec, Constant, Read, Send
from relaxc.wire.layout import Field, Layout, WireType


def lowered(text: str, **arguments) -> Codec:
    definition = next(i for i in parse(Source("codec.relax", text)).items if isinstance(i, syntax.Codec))
    return lower_codec(CodecUse(definition, tuple(arguments.items()), definition.span))


def library(name: str, **arguments) -> Codec:
    return lowered((resources.folder("specs") / "codecs" / f"{name}.relax").read_text(), **arguments)


def without_text(codec: Codec) -> tuple[object, ...]:
    return codec.layout, codec.steps, codec.receive, codec.dithers


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize(("bits", "block"), [(8, 512), (4, 7)])
def test_the_librarys_codecs_are_those_written_by_hand(rounding, bits, block):
    arguments = {"bits": bits, "block": block, "rounding": rounding}
    for name, by_hand in (("minmax", codecs.minmax), ("absmax", codecs.absmax)):
        assert without_text(library(name, **arguments)) == without_text(by_hand(bits, block, rounding == "stochastic"))


@pytest.mark.parametrize(("name", "kind"), [("fp16", "f16"), ("bf16", "bf16"), ("exact", "real")])
def test_casts(name, kind):
    codec = library(name)
    assert without_text(codec) == without_text(codecs.cast(kind))
    assert codec.cast


def test_onebit():
    codec = library("onebit", block=64)
    assert codec.layout == codecs.onebit(64).layout
    assert not codec.cast


@pytest.mark.parametrize(
    ("name", "arguments", "by_hand"),
    [
        ("qsgd", {"bits": 4, "block": 100}, codecs.qsgd(4, 100)),
        ("natural", {}, codecs.natural()),
        ("ternary", {"clip": 2.5}, codecs.ternary()),
        ("modulo", {"bits": 6, "unit": 0.01, "block": 512}, codecs.guarded(6, 0.01)),
        ("signs", {}, codecs.signs()),
        ("topk", {"part": 0.02}, codecs.topk(0.02)),
        ("randomk", {"part": 0.1}, codecs.randomk(10)),
        ("dct", {"side": 4, "keep": 3}, codecs.dct(4, 3)),
    ],
)
def test_the_programs_of_the_library(name, arguments, by_hand):
    assert without_text(library(name, **arguments)) == without_text(by_hand)
    assert (library(name, **arguments).near, library(name, **arguments).guard) == (by_hand.near, by_hand.guard)


def test_what_carries_a_mix_without_a_codec_is_in_the_library():
    assert library("exact") == EXACT


PER = "per block(8) "


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (PER + "send a: f32 = max(x) receive = x", "RX0234", "the receiver has no `x`"),
        (PER + "let b = max(x) send a: f32 = b receive = a * b", "RX0234", "the receiver has no `b`"),
        ("send a: f32 = x receive = max(a)", "RX0234", "the receiver has no block to take max of"),
        ("send a: f32 = x receive = dither(a)", "RX0234", "the receiver has no random bits"),
        ("send a: f32 = x", "RX0230", "codec c has no `receive`"),
        ("receive = 1", "RX0230", "codec c sends nothing"),
        ("send a: f32 = x receive = a receive = a", "RX0230", "a second `receive`"),
        ("per tensor per block(8) send a: f32 = x receive = a", "RX0230", "a second `per`"),
        ("per row send a: f32 = x receive = a", "RX0230", "no unit `row`"),
        ("per tensor(8) send a: f32 = x receive = a", "RX0230", "`per tensor` has no size"),
        ("per block send a: f32 = x receive = a", "RX0230", "a block without a size"),
        ("send a: f32 = x per block(8) receive = a", "RX0230", "`per` behind other statements"),
        ("send a: f32 = max(x) receive = a", "RX0230", "nothing says what max reaches over"),
        ("per block(0) send a: f32 = x receive = a", "RX0232", "a block of 0 elements"),
        ("per block(1.5) send a: f32 = x receive = a", "RX0232", "a block of 1.5 elements"),
        ("send a: uint(9) = x receive = a", "RX0232", "uint of 9 bits"),
        ("send a: int(0) = x receive = a", "RX0232", "int of 0 bits"),
        ("send a: uint(2.5) = x receive = a", "RX0232", "uint of 2.5 bits"),
        ("send a: uint = x receive = a", "RX0232", "uint without a width"),
        ("send a: f32(4) = x receive = a", "RX0232", "f32 has a width of its own"),
        ("send a: uint(x) = x receive = a", "RX0232", "not a constant"),
        ("send a: f8 = x receive = a", "RX0232", "no wire type f8"),
        ("send a: f32 = round(x, up) receive = a", "RX0232", "not a rounding"),
        ("send a: f32 = x / 0 receive = a", "RX0232", "division by zero"),
        ("let n = 2 - 2 send a: f32 = mod(x, n) receive = a", "RX0232", "division by zero"),
        ("send a: f32 = y receive = a", "RX0231", "no name y in this codec"),
        ("send a: f32 = width receive = a", "RX0231", "`width` is the word wide, not a number"),
        ("let b = x let b = 1 send a: f32 = b receive = a", "RX0231", "`b` is a let already"),
        ("send a: f32 = x send a: f32 = x receive = a", "RX0231", "`a` is a field already"),
        ("send a: f32 = x let a = 1 receive = a", "RX0231", "`a` is a field already"),
        ("let bits = 4 send a: f32 = x receive = a", "RX0231", "`bits` is a parameter already"),
        ("let x = 4 send a: f32 = x receive = a", "RX0231", "`x` is a word of the language"),
        ("send a: f32 = x receive near a = a", "RX0231", "`a` is a field already"),
        ("send a: f32 = relu(x) receive = a", "RX0233", "no function relu in a codec"),
        ("send a: f32 = sqrt(x, 2) receive = a", "RX0233", "2 arguments for sqrt"),
        ("send a: f32 = dither() receive = a", "RX0233", "0 arguments for dither"),
        ("send a: f32 = clamp(x, 1) receive = a", "RX0233", "2 arguments for clamp"),
        ("send a: f32 = min(x, 1, 2) receive = a", "RX0233", "3 arguments for min"),
        ("send a: f32 = min(x, to = 2) receive = a", "RX0233", "functions take no named arguments"),
    ],
)
def test_what_cannot_be_compiled_is_said(body, code, message):
    with pytest.raises(SpecError) as error:
        lowered(f"codec c(bits = 8, width = wide) {{ {body} }}", bits=8, width="wide")
    assert [(d.code, d.message) for d in error.value.diagnostics] == [(code, message)]
    assert all(d.labels for d in error.value.diagnostics)


def test_all_mistakes_are_said_at_once_and_once_each():
    text = "codec c() { let a = y let b = max(a) send c: uint(9) = b send d: f32 = min(b) receive = x }"
    with pytest.raises(SpecError) as error:
        lowered(text)
    assert [d.message for d in error.value.diagnostics] == [
        "no name y in this codec",
        "nothing says what max reaches over",
        "uint of 9 bits",
        "the receiver has no `x`",
    ]


def test_a_division_by_zero_says_with_which_arguments():
    with pytest.raises(SpecError) as error:
        library("qsgd", bits=1, block=64)
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.help == "it is so with bits = 1, block = 64"


def test_in_a_codec_of_another_file_the_place_is_its_use():
    definition = parse(Source("qsgd.relax", (resources.folder("specs") / "codecs" / "qsgd.relax").read_text())).items[0]
    here = Span(Source("mine.relax", "relax gradients { compress = qsgd(1) }"), 29, 36)
    with pytest.raises(SpecError) as error:
        lower_codec(CodecUse(definition, (("bits", 1), ("block", 64)), here))
    assert [[label.span.source.name for label in d.labels] for d in error.value.diagnostics] == [
        ["mine.relax", "qsgd.relax"]
    ]


def test_constants_go_through_lets():
    codec = lowered(
        "codec c(bits = 3) { let top = 2 ^ bits - 1 send a: uint(top - 4) = x / top receive = a * top }", bits=3
    )
    assert codec.layout.fields[0].wire == WireType("uint", 3)
    assert codec.steps == (Send(0, "a", codecs.apply("/", Read("x"), 7)),)
    assert codec.receive == codecs.apply("*", Read("a"), 7)


@pytest.mark.parametrize("unit", ["tensor", "chunk"])
def test_units(unit):
    codec = lowered(f"codec c() {{ per {unit} send a: f32 = max(x) receive = a }}")
    assert codec.layout == Layout(0, (Field("a", WireType("f32"), False),), unit)


def test_near_is_the_receivers_value():
    codec = lowered(
        "codec c() { send a: uint(4) = mod(x, 16) receive near own_value = own_value + wrap(a - own_value, 16) }"
    )
    assert codec.near == "own_value"


def test_places_are_kept():
    text = "codec c() { per block(4) send a: f32 = max(x) - min(x) receive = a }"
    value = lowered(text).steps[0].value
    reduce = value.arguments[0]
    assert text[value.span.start : value.span.end] == "max(x) - min(x)"
    assert text[reduce.span.start : reduce.span.end] == "max(x)"


def test_a_let_of_fields_is_the_receivers_too():
    codec = lowered("codec c() { send a: f32 = x let twice = 2 * a receive = twice }")
    assert len(codec.steps) == 2


@pytest.mark.parametrize(
    ("function", "arguments", "value"),
    [
        ("/", (1, 0), float("inf")),
        ("^", (0, -1), float("inf")),
        ("mod", (-1, 4), 3.0),
        ("wrap", (7, 4), -1.0),
        ("where", (0, 1, 2), 2.0),
        ("log2", (8,), 3.0),
        ("logb", (-9,), 3.0),
        ("<=", (2, 2), 1.0),
        ("^", (2, 2000), float("inf")),
        ("floor", (2.5,), 2.0),
        ("round", (2.5,), 2.0),
        ("round", (float("inf"),), float("inf")),
    ],
)
def test_constants_fold_as_ieee_does(function, arguments, value):
    assert fold(function, tuple(Constant(float(a)) for a in arguments)) == Constant(value)


@pytest.mark.parametrize(("function", "arguments"), [("sqrt", (-1,)), ("^", (-8, 1 / 3))])
def test_what_has_no_real_value_folds_to_nan(function, arguments):
    folded = fold(function, tuple(Constant(float(a)) for a in arguments))
    assert isinstance(folded, Constant) and folded.value != folded.value


def test_bias_is_of_what_is_sent_of_each_element() -> None:
    """A draw that nothing is made of leaves the levels as they are rounded."""
    head = "codec c() { per block(64)  send top: f32 = max(abs(x))  "
    nearest, tail = "send level: int(4) = round(7 * x / top)", "  receive = level * top / 7 }"
    drawn = lowered(head + "send level: int(4) = round(7 * x / top, stochastic)" + tail)
    through = lowered(head + "let y = dither(7 * x / top)  send level: int(4) = y" + tail)
    unused = lowered(head + "let y = dither(x)  " + nearest + tail)
    assert [c.biased for c in (drawn, through, unused)] == [False, False, True]
