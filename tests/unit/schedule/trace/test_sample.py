"""Samples as text, and what counts as one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from relaxc.errors import ModelError
from relaxc.schedule.trace import as_sample, parse_sample

MODULE = """
import torch
pair = (torch.zeros(2, 3), 7)
named = {"x": torch.zeros(2)}
def batch():
    return torch.zeros(4)
def broken():
    raise ValueError("no data today. Try tomorrow")
class Data:
    sample = [torch.zeros(1)]
"""


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "users_batches.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "users_batches", raising=False)
    return tmp_path / "users_batches.py"


def refused(text: str) -> ModelError:
    with pytest.raises(ModelError) as caught:
        parse_sample(text)
    return caught.value


def test_shapes() -> None:
    sample = parse_sample("f32[8,3,32,32]")
    assert [(x.shape, x.dtype) for x in sample.args] == [((8, 3, 32, 32), torch.float32)] and not sample.kwargs
    several = parse_sample(" bf16[2, 3], i64[8,128]<1000 ,f64[],bool[5], u8[0]")
    assert [(tuple(x.shape), x.dtype) for x in several.args] == [
        ((2, 3), torch.bfloat16), ((8, 128), torch.int64), ((), torch.float64), ((5,), torch.bool), ((0,), torch.uint8),
    ]  # fmt: skip


def test_integers_lie_below_the_bound() -> None:
    ids, flags, one = parse_sample("i64[1000]<7, i32[1000], i64[9]<1").args
    assert set(ids.tolist()) == set(range(7)) and set(flags.tolist()) == {0, 1} and set(one.tolist()) == {0}


def test_the_same_text_gives_the_same_numbers_and_draws_none_of_the_users() -> None:
    before = torch.get_rng_state()
    first, again = (parse_sample("f32[9], i64[9]<99").args for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert torch.equal(torch.get_rng_state(), before) and first[0].std() > 0.1


@pytest.mark.parametrize(
    ("text", "message", "help"),
    [
        ("", "'' is no sample", "give shapes"),
        ("f32", "'f32' is no sample", "package.module:batch"),
        ("f32[2", "'f32[2' is no sample", "give shapes"),
        ("f32[2] i64[3]", "'f32[2] i64[3]' is no sample", "give shapes"),
        ("f32[2],", "'f32[2],' is no sample", "give shapes"),
        ("f32[2,,3]", "[2,,3] is no shape", "give shapes"),
        ("f32[-1]", "'f32[-1]' is no sample", "give shapes"),
        ("__import__('os').getcwd()", "\"__import__('os').getcwd()\" is no sample", "give shapes"),
        ("float[2]", "no dtype float in a sample", "use f32, f16"),
        ("f32[2]<9", "<9 bounds no f32", "only integers"),
        ("i64[2]<0", "<0 bounds no i64", "from 1 up"),
        ("u8[2]<300", "<300 is beyond what u8 holds", "i64"),
        ("f32[99999999999]", "[99999999999] is too large", "one batch"),
    ],
)
def test_what_is_no_sample(text: str, message: str, help: str) -> None:
    error = refused(text)
    assert (error.code, error.message) == ("RX0423", message) and help in (error.help or "")


def test_named_ones(users: Path) -> None:
    assert [tuple(x.shape) for x in parse_sample("users_batches:batch").args] == [(4,)]
    pair = parse_sample(" users_batches:pair ").args
    assert pair[0].shape == (2, 3) and pair[1] == 7
    assert parse_sample("users_batches:named").kwargs["x"].shape == (2,)
    assert len(parse_sample("users_batches:Data.sample").args) == 1


def test_a_named_one_that_fails_says_the_users_line(users: Path) -> None:
    error = refused("users_batches:broken")
    line = MODULE.splitlines().index('    raise ValueError("no data today. Try tomorrow")') + 1
    assert error.code == "RX0421"
    assert error.message == f"the sample users_batches:broken failed: ValueError: no data today ({users}:{line})"
    assert refused("users_batches:absent").code == "RX0421"
    assert refused("no_such_module_here:batch").message.endswith("No module named 'no_such_module_here'")


def test_a_module_that_does_not_parse_says_where(users: Path) -> None:
    users.write_text("x = 1\ndef f(:\n")
    assert refused("users_batches:f").message.endswith(f"({users}:2)")


def test_what_counts_as_arguments() -> None:
    x = torch.zeros(1)
    assert as_sample(x).args == (x,) and as_sample([x, 1]).args == (x, 1) and as_sample({"a": 1}).kwargs == {"a": 1}
    sample = as_sample((x,))
    assert as_sample(sample) is sample
    moved = as_sample(({"deep": [x]}, "text")).on(torch.device("meta"))
    assert moved.args[0]["deep"][0].is_meta and moved.args[1] == "text"
