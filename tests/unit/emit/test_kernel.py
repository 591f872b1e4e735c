from __future__ import annotations

import codecs_by_hand as codecs
import pytest
from codecs_by_hand import X, apply

from relaxc.emit.cpu_costs import scratch
from relaxc.emit.fuse import build_kernel
from relaxc.program.ir import Codec, CodecLet, Read, Reduce, Send
from relaxc.wire.layout import Field, Layout, WireType
from relaxc.wire.routes import ROUTES, Kernel

KERNELS = {k.name: k for route in ROUTES.values() for k in route.kernels("both")}
PLAIN = Kernel("plain", "none", tensor=True, averages=False, residual=False, owner=False)


def ops(section) -> list[str]:
    return [v.op for v in section.values]


def test_the_text_of_a_fused_encode():
    text = """\
kernel encode: minmax(8, 512, False), bf16 in f32, inputs none
  operands value: tensor, residual: real
 per block
  stage 0
    %9 = constant(255)
    %0[i] = operand(0)  # value
    %1[i] = operand(1)  # residual
    %2[i] = add(%0, %1)
  stage 1
    %3 = reduce_nan(%2)
    %4 = reduce_min(%2)
    %5 = guard(%3, %4)  # low
    %6 = reduce_max(%2)
    %7 = guard(%3, %6)
    %8 = sub(%7, %5)
    %10 = over(%8, %9)  # scale
    field 0 <- %5
    field 1 <- %10
    %11[i] = sub(%2, %5)
    %12[i] = divide(%11, %10)
    %13[i] = round(%12)
    %14[i] = level(2, %13)  # level
    %15[i] = mul(%14, %10)
    %16[i] = add(%5, %15)
    %17[i] = sub(%2, %16)
    %18[i] = finite(%17)
    %19[i] = where(%18, %17, %1)
    field 2[i] <- %14
    operand 1[i] <- %19"""
    assert str(build_kernel("encode", codecs.minmax(8), KERNELS["contribute"], "bf16")) == text


def test_inputs_of_all_workers_are_gathered_and_of_one_are_fused_in():
    combine = build_kernel("k", codecs.minmax(8), KERNELS["combine"], "f32")
    assert combine.gather is not None and ops(combine.gather).count("field") == 3
    assert "field" not in ops(combine.main)
    hop = build_kernel("k", codecs.minmax(8), KERNELS["hop"], "f32")
    assert hop.gather is None and ops(hop.main).count("field") == 3


def test_a_decoder_computes_only_what_it_needs():
    spread = build_kernel("k", codecs.onebit(), KERNELS["spread"], "f32")
    assert spread.main.stages == 1
    assert sorted(set(ops(spread.main))) == ["constant", "field", "mul", "sub"]


def test_arithmetic_is_f64_for_f64_tensors_alone():
    reals = {d: build_kernel("k", codecs.minmax(8), PLAIN, d).real for d in ("f32", "f16", "bf16", "f64")}
    assert reals == {"f32": "f32", "f16": "f32", "bf16": "f32", "f64": "f64"}


def test_what_is_sent_as_f32_is_narrowed_only_where_arithmetic_is_f64():
    assert "narrow" not in ops(build_kernel("k", codecs.minmax(8), PLAIN, "f32").main)
    assert ops(build_kernel("k", codecs.minmax(8), PLAIN, "f64").main).count("narrow") == 2


@pytest.mark.parametrize(("kernel", "kept"), [("contribute", 0), ("hop", 1), ("finish", 1), ("combine", 0)])
def test_a_load_and_two_operations_are_computed_again_and_more_is_put_into_scratch(kernel, kept):
    assert len(scratch(build_kernel("k", codecs.minmax(8), KERNELS[kernel], "f32").main)) == kept


def test_reductions_that_need_one_another_are_in_stages_of_their_own():
    main = build_kernel("k", codecs.everything(), PLAIN, "f32").main
    assert [v.stage for v in main.values if v.op == "reduce_sum"] == [1, 2]
    assert main.stages == 3


def test_the_residual_is_overwritten_after_its_last_load():
    """The field that the receiver ignores is there a stage later than what it uses."""
    layout = Layout(8, (Field("used", WireType("f16"), True), Field("unused", WireType("f32"), False)))
    steps = (
        Send(0, "used", X),
        CodecLet("top", Reduce("max", X)),
        Send(1, "unused", Reduce("sum", apply("-", X, Read("top")))),
    )
    main = build_kernel("k", Codec("odd", layout, steps, Read("used"), False), KERNELS["contribute"], "f32").main
    assert {s.target: s.stage for s in main.stores} == {"field": 2, "operand": 2}
    assert main.stages == 3


def test_equal_values_are_one_value():
    layout = Layout(8, (Field("a", WireType("f32"), True), Field("b", WireType("f32"), True)))
    twice = apply("*", apply("+", X, 1), apply("+", X, 1))
    main = build_kernel(
        "k", Codec("twice", layout, (Send(0, "a", twice), Send(1, "b", twice)), Read("a"), False), PLAIN, "f32"
    ).main
    assert ops(main) == ["operand", "constant", "add", "mul"]


def test_powers():
    def power(exponent: float) -> list[str]:
        layout = Layout(8, (Field("a", WireType("f32"), True),))
        codec = Codec("power", layout, (Send(0, "a", apply("^", X, exponent)),), Read("a"), False)
        return ops(build_kernel("k", codec, PLAIN, "f32").main)

    assert power(3).count("mul") == 2
    assert power(0) == ["constant"]
    assert power(-1) == ["operand", "constant", "divide"]
    assert "power" in power(0.5) and "power" in power(65)
