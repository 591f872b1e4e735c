"""The kernel of a fragment. What compiled ones compute is in tests/conformance/test_fragments.py."""

from __future__ import annotations

import codecs_by_hand as codecs
import pytest
from codecs_by_hand import apply
from fragment_cases import CASES, G, W, body, modulo, transfer

from relaxc.emit.cpu import emit_kernels
from relaxc.emit.fragment import BLOCK, build_fragment
from relaxc.emit.numbers import literal, plain
from relaxc.program.ir import Constant, Let, Optimizer, Read, Reduce
from relaxc.program.paths import Fragment, Store
from relaxc.wire import numbers

NAMED = {case.name: case for case in CASES}


def fused(name: str, dtype: str = "f32"):
    case = NAMED[name]
    return build_fragment("k", case.body, case.fragment, dtype)


def ops(section) -> list[str]:
    return [v.op for v in section.values]


def test_the_text_of_an_update_that_is_one_kernel():
    """Adam's, with its bias correction: one number of the host's, and every load and store once."""
    text = """\
kernel k: between exchanges, bf16 in f32, inputs none
  operands m: real, grad: tensor, v: real, weight: tensor
 per block
  stage 0
    %0 = constant(0.9)
    %3 = constant(0.1)
    %9 = constant(0.999)
    %12 = constant(0.001)
    %19 = given(0)
    %22 = constant(1e-08)
    %1[i] = operand(0)  # m
    %2[i] = mul(%0, %1)
    %4[i] = operand(1)  # grad
    %5[i] = mul(%3, %4)
    %6[i] = add(%2, %5)
    %7[i] = finite(%6)
    %8[i] = where(%7, %6, %1)  # m_1
    %10[i] = operand(2)  # v
    %11[i] = mul(%9, %10)
    %13[i] = mul(%4, %4)
    %14[i] = mul(%12, %13)
    %15[i] = add(%11, %14)
    %16[i] = finite(%15)
    %17[i] = where(%16, %15, %10)  # v_1
    %18[i] = operand(3)  # weight
    %20[i] = mul(%19, %8)
    %21[i] = sqrt(%17)
    %23[i] = add(%21, %22)
    %24[i] = over(%20, %23)
    %25[i] = sub(%18, %24)
    operand 0[i] <- %8
    operand 2[i] <- %17
    operand 3[i] <- %25"""
    made = fused("adam", "bf16")
    assert str(made.kernel) == text
    assert made.numbers == (("/", "lr", ("-", 1.0, ("^", 0.9, ("+", "t", 1.0)))),)


def test_the_text_of_a_code_and_what_is_made_of_it_on_the_sending_side():
    text = """\
kernel k: before bf16, f32 in f32, inputs none
  operands weight: tensor, seen: real
 per block
  stage 0
    %0[i] = operand(0)  # weight
    %1[i] = operand(1)  # seen
    %2[i] = sub(%0, %1)
    %3[i] = narrow(0, %2)  # value
    %4[i] = add(%1, %3)
    %5[i] = finite(%4)
    %6[i] = where(%5, %4, %1)
    field 0[i] <- %2
    operand 1[i] <- %6"""
    stores = (Store("seen", apply("+", Read("seen"), Read("coded"))),)
    fragment = Fragment((), stores, sends=0, value=apply("-", W, Read("seen")))
    made = body(fragment, "seen", transfer=transfer("mix", codecs.cast("bf16"), coded=True))
    assert str(build_fragment("k", made, fragment, "f32").kernel) == text


def test_a_mix_weighs_its_inputs_and_a_mean_of_codes_divides_once():
    mix, mean = fused("choco receives onebit(512)").kernel, fused("mean of minmax(8, 512, False)").kernel
    assert mix.inputs == mean.inputs == "many"
    assert "weight" in ops(mix.gather) and "average" not in ops(mix.main)
    assert "weight" not in ops(mean.gather) and ops(mean.main).count("average") == 1


def test_an_owners_result_is_decoded_where_it_is_used():
    made = fused("momentum receives onebit(512)").kernel
    assert made.inputs == "one" and made.gather is None and "field" in ops(made.main)


def test_blocks():
    assert fused("adam").kernel.block == BLOCK
    assert fused("choco sends onebit(512)").kernel.block == 512
    assert fused("choco sends onebit(2048) per tensor").kernel.block is None
    assert fused("norms").kernel.block is None


def test_what_is_stored_is_rounded_where_it_is_read_again():
    counts = {d: ops(fused("rounded between", d).kernel.main).count("stored") for d in ("f32", "f64", "bf16", "f16")}
    assert counts == {"f32": 0, "f64": 0, "bf16": 1, "f16": 1}


def test_the_digest_is_of_what_a_kernel_does_and_not_of_names():
    def kernel(state: str, other: str = "grad"):
        fragment = Fragment((Let(f"{state}.1", apply("*", 2, Read(state))),), (Store(state, Read(f"{state}.1")),))
        return build_fragment("k", body(fragment, state), fragment, "f32").kernel

    assert kernel("a").digest == kernel("b").digest
    assert fused("adam", "f32").kernel.digest != fused("adam", "f64").kernel.digest
    assert len({fused(c.name).kernel.digest for c in CASES}) == len(CASES)


def test_names_that_are_no_c_are_no_matter():
    """A state may be called as something of C++ or of the template."""
    states = "double n first call total segment int32_t WHOLE"
    stores = tuple(Store(s, apply("+", Read(s), 1)) for s in states.split())
    fragment = Fragment((), stores)
    source = emit_kernels([build_fragment("k", body(fragment, states), fragment, "f32").kernel])
    assert "double_p0" in source and " n_p1" in source


def test_the_host_evaluates_the_largest_numbers_once():
    rate = apply("*", Read("lr"), apply("+", Read("rate.now"), 1))
    stores = (Store("grad", apply("*", rate, G)), Store("weight", apply("-", W, apply("*", rate, Read("shared")))))
    fragment = Fragment((Let("shared", apply("/", Optimizer("momentum", False), 2)),), stores)
    made = build_fragment("k", body(fragment), fragment, "f32")
    whole = ("*", "lr", ("+", "rate.now", 1.0))
    assert made.numbers == (whole, ("*", whole, ("/", "optimizer.momentum", 2.0)))
    assert ops(made.kernel.main).count("given") == 2


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan")])
def test_a_literal_survives_as_plain_data(value):
    number = plain(Constant(value))
    assert repr(literal(number)) == repr(value) == repr(numbers.evaluate(number, {}))
    assert literal(plain(Read("t"))) is None


def test_constants_are_folded_in_f64():
    assert plain(apply("/", 1, apply("-", 3, 3))) == ("/", 1.0, 0.0)
    assert plain(apply("/", 1, 3)) == 1 / 3


def test_what_can_not_be_one_kernel_is_refused():
    measured = Fragment((), (Store("weight", apply("*", W, Reduce("norm", G))),), sends=0, value=W)
    with pytest.raises(TypeError, match="measures a whole parameter"):
        build_fragment("k", body(measured, transfer=transfer("mix", codecs.minmax(8))), measured, "f32")
    unknown = Fragment((), (Store("weight", Read("arrived")),), receives=0)
    with pytest.raises(TypeError, match="is not told near what"):
        build_fragment("k", body(unknown, transfer=transfer("mix", modulo(8), coded=True)), unknown, "f32")
    nothing = Fragment((), (Store("weight", Read("coded")),))
    with pytest.raises(TypeError, match="sends nothing"):
        build_fragment("k", body(nothing), nothing, "f32")
    tensor = Fragment((), (Store("size", G),))
    with pytest.raises(TypeError, match="is one number"):
        build_fragment("k", body(tensor, cells="size"), tensor, "f32")
