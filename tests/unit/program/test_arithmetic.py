"""Arithmetic of algorithms: what is the host's, what is rounded when, IEEE division, norms, finite-only states."""

from __future__ import annotations

import codecs_by_hand as codecs
import numpy as np
import pytest

from relaxc.program.arithmetic import Evaluator, host_number, is_number, settled
from relaxc.program.ir import Constant, Optimizer, Own, Read, Reduce
from relaxc.topology.topology import Topology

apply = codecs.apply
M = Read("m")


def value(e, real=np.float32, numbers=None, **tensors):
    return Evaluator(real, numbers or {}, {k: np.asarray(v, real) for k, v in tensors.items()}).value(e)


def test_the_largest_number_is_computed_in_f64_and_rounded_once():
    """(1 / 7 / 5) * m: in f32 step by step the quotient would be another."""
    e = apply("*", apply("/", apply("/", Read("a"), 7), 5), M)
    wanted = np.float32(1 / 7 / 5)
    assert wanted != np.float32(np.float32(np.float32(1) / np.float32(7)) / np.float32(5))
    assert value(e, numbers={"a": 1.0}, m=[1.0]) == wanted


def test_from_there_on_each_operation_rounds():
    """m * a / b is (m * a) / b, both in f32."""
    e = apply("/", apply("*", M, Read("a")), Read("b"))
    m, a, b = np.float32(1.1), np.float32(1 / 3), np.float32(0.7)
    assert value(e, numbers={"a": 1 / 3, "b": 0.7}, m=[m]) == np.float32(m * a) / b


def test_a_number_alone_is_a_float():
    e = apply("-", 1, apply("^", Read("b"), apply("+", Read("t"), 1)))
    assert is_number(e, {"b", "t"}) and not is_number(e, {"b"})
    assert value(e, numbers={"b": 0.9, "t": 2.0}) == host_number(e, {"b": 0.9, "t": 2.0}) == 1 - 0.9**3


def test_division_is_ieee():
    found = value(apply("/", M, Read("n")), m=[1, -1, 0], n=[0, 0, 0])
    assert found[:2].tolist() == [np.inf, -np.inf] and np.isnan(found[2])
    assert value(apply("/", 1, M), m=[-0.0])[0] == -np.inf


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_whole_powers_are_products(real):
    m = np.random.default_rng(0).standard_normal(100).astype(real)
    assert (value(apply("^", M, 3), real, m=m) == m * m * m).all()
    assert (value(apply("^", M, -2), real, m=m) == 1 / (m * m)).all()
    assert (value(apply("^", M, 0), real, m=m) == 1).all()


def test_other_powers_are_rounded_once():
    m = np.random.default_rng(0).random(100).astype(np.float32)
    assert (value(apply("^", M, 0.3), m=m) == (m.astype(np.float64) ** float(np.float32(0.3))).astype(np.float32)).all()


def test_a_norm_is_a_cell_in_the_order_of_sums():
    m = np.zeros(64, np.float32)
    m[0], m[1], m[32] = 2.0**12, 1, 1  # lane 0 has 2^24 + 1, which f32 has not
    found = value(Reduce("norm", M), m=m)
    assert found.shape == () and found == np.sqrt(np.float32(2.0**24 + 1))
    assert value(Reduce("norm", M), np.float64, m=[3.0, 4.0]) == 5
    assert value(Reduce("norm", M), m=[]) == 0


def test_cells_meet_tensors():
    found = value(apply("/", M, Reduce("norm", M)), np.float64, m=[3.0, 4.0])
    assert found.tolist() == [0.6, 0.8]


def test_comparisons_are_one_or_zero_and_choose():
    e = apply("where", apply("and", apply(">", M, 0), apply("not", apply("==", M, 2))), M, apply("neg", 1))
    assert value(e, m=[1, 2, -3]).tolist() == [1, -1, -1]
    assert value(apply("<", M, 0), m=[1, -1]).tolist() == [0, 1]


def test_settings_and_states_of_the_optimiser_have_names_of_their_own():
    e = apply("*", Optimizer("weight_decay", tensor=False), Optimizer("momentum_buffer", tensor=True))
    tensors = {"optimizer.momentum_buffer": np.array([2.0, 4.0])}
    assert Evaluator(np.float64, {"optimizer.weight_decay": 0.5}, tensors).value(e).tolist() == [1, 2]


def test_ones_own_weight_is_a_number():
    ring = Topology("ring")
    found = Evaluator(np.float64, {}, {"m": np.array([3.0])}, lambda t: {ring: 0.25}[t]).value(apply("*", Own(ring), M))
    assert found.tolist() == [0.75]
    with pytest.raises(ValueError, match="outside of any round"):
        Evaluator(np.float64, {}, {}).value(Own(ring))


def test_a_state_takes_only_what_is_finite():
    old = np.array([1, 2, 3], np.float32)
    assert settled(old, np.array([np.nan, 5, np.inf])).tolist() == [1, 5, 3]
    assert settled(old, np.nan).tolist() == [1, 2, 3]
    assert settled(old, 1e300).tolist() == [1, 2, 3]  # infinite in f32
    assert settled(old, 7.0).tolist() == [7, 7, 7] and settled(old, 7.0).dtype == np.float32


def test_a_constant_is_rounded_once():
    assert value(apply("+", Constant(0.1), M), m=[0.0])[0] == np.float32(0.1)
