from __future__ import annotations

import codecs_by_hand as codecs
import pytest

from relaxc import resources
from relaxc.language import syntax
from relaxc.language.diagnostics import SpecError
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.language.spec import CodecUse
from relaxc.program.codec import fold, lower_codec
from relaxc.program.ir import Codec, Constant


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
    ("body", "message"),
    [
        ("send a: f32 = max(x) receive = x", "the receiver has no `x`"),
        ("let b = max(x) send a: f32 = b receive = a * b", "the receiver has no `b`"),
        ("send a: f32 = x receive = max(a)", "the receiver has no block to take max of"),
        ("send a: f32 = x receive = dither(a)", "the receiver has no random bits"),
        ("send a: f32 = x", "codec c has no `receive`"),
        ("receive = 1", "codec c sends nothing"),
        ("per block(0) send a: f32 = x receive = a", "a block of 0 elements"),
        ("per block(1.5) send a: f32 = x receive = a", "a block of 1.5 elements"),
        ("send a: uint(9) = x receive = a", "uint of 9 bits"),
        ("send a: f8 = x receive = a", "no wire type f8"),
        ("send a: f32 = y receive = a", "no name y in this codec"),
    ],
)
def test_what_cannot_be_compiled_is_said(body, message):
    with pytest.raises(SpecError) as error:
        lowered(f"codec c() {{ {body} }}")
    assert [d.message for d in error.value.diagnostics] == [message]


def test_a_let_of_fields_is_the_receivers_too():
    codec = lowered("codec c() { send a: f32 = x let twice = 2 * a receive = twice }")
    assert len(codec.steps) == 2


@pytest.mark.parametrize(
    ("function", "arguments", "value"),
    [
        ("/", (1, 0), 0.0),
        ("^", (0, -1), 0.0),
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
