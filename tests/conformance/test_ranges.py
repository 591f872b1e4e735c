"""What several threads share: a run of a kernel over a range of elements does the blocks that begin there, no other."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import codecs_by_hand as codecs
import fragment_cases as fragments
import numpy as np
import pytest
from fragment_cases import modulo, per_tensor
from kernel_calls import END, WHOLE, Array, Part, Segment, call, expected, measured, real_of

from relaxc.build.kernels import build_kernels
from relaxc.emit.cpu import emit_kernels
from relaxc.emit.fragment import build_fragment
from relaxc.emit.fuse import build_kernel
from relaxc.program.ir import Codec
from relaxc.wire.routes import Kernel

KEEP = Kernel("keep", "none", tensor=True, averages=False, residual=True, owner=False)
COMBINE = Kernel("combine", "many", tensor=False, averages=True, residual=False, owner=True)
SPREAD = Kernel("spread", "one", tensor=False, averages=False, residual=False, owner=False, decodes=True)
LENGTHS = (1511, 0, 1, 512, 7, 0, 513, 1024, 0)
TOTAL = sum(LENGTHS)
CASES: list[tuple[Codec, Kernel, str]] = [
    (codecs.minmax(8), KEEP, "f32"), (codecs.minmax(8), COMBINE, "f32"), (codecs.minmax(3, 7), KEEP, "f64"),
    (codecs.minmax(5, 100), SPREAD, "f16"), (codecs.onebit(2048), KEEP, "bf16"), (codecs.topk(0.05, 512), KEEP, "f32"),
    (codecs.qsgd(4), KEEP, "f32"), (codecs.randomk(33), KEEP, "f32"), (modulo(5), KEEP, "f32"),
    (per_tensor(codecs.minmax(4)), KEEP, "f32"), (per_tensor(codecs.minmax(4)), SPREAD, "f32"),
]  # fmt: skip
NORMS = next(case for case in fragments.CASES if case.name == "norms")
RANGES = [(0, END), (0, 1), (1, 512), (511, 1512), (1024, 1025), (1511, 1512), (1512, 2600), (2543, END), (TOTAL, END)]


@pytest.fixture(scope="session")
def library() -> Any:
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    kernels = [build_kernel(f"range_{n}", codec, kernel, dtype) for n, (codec, kernel, dtype) in enumerate(CASES)]
    kernels.append(build_fragment("norms", NORMS.body, NORMS.fragment, "f32").kernel)
    return ctypes.CDLL(str(build_kernels(emit_kernels(kernels))))


def _segments(kernel: Kernel, dtype: str, codec: Codec) -> list[Segment]:
    rng, real = np.random.default_rng(1), real_of(dtype)
    inputs = {"none": 0, "one": 1, "many": 3}[kernel.inputs]
    out = []
    for number, n in enumerate(LENGTHS):
        bits = rng.standard_normal(n).astype({"f16": np.float16, "bf16": np.float32}.get(dtype, real))
        held = {"f16": lambda b: b.view(np.uint16), "bf16": lambda b: (b.view(np.uint32) >> 16).astype(np.uint16)}
        received = [rng.standard_normal(n).astype(real) for _ in range(inputs)]
        residual = rng.standard_normal(n).astype(real)
        tensor = held.get(dtype, np.asarray)(bits)
        out.append(Segment(tensor, residual, received, number * codec.layout.block, number))
    return out


def _blocks(codec: Codec, dtype: str) -> Iterator[tuple[int, int, int, int, int]]:
    """Segment, first element there and in the call, elements, bytes of each block."""
    before = 0
    for segment, n in enumerate(LENGTHS):
        block = codec.layout.block_of(n)
        for start in range(0, n, block):
            count = min(block, n - start)
            yield segment, start, before + start, count, codec.layout.block_bytes(count, real_of(dtype)().itemsize)
        before += n


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{c.text}-{k.name}-{d}" for c, k, d in CASES])
def test_a_run_does_the_blocks_that_begin_in_its_range(number: int, library: Any) -> None:
    codec, kernel, dtype = CASES[number]
    segments = _segments(kernel, dtype, codec)
    wanted = [expected(codec, kernel, dtype, s, 3) for s in segments]
    message = b"".join(w[0] for w in wanted)
    for begin, end in RANGES:
        found = measured(library[f"range_{number}"], codec, kernel, dtype, segments, 3, ranges=[(begin, end)])
        sent, tensors, residuals = bytearray(b"\xab" * len(message)), *([_copy(s, f) for s in segments] for f in HELD)
        at = 0
        for segment, start, place, count, size in _blocks(codec, dtype):
            if begin <= place < end:
                sent[at : at + size] = message[at : at + size]
                of = slice(start, start + count)
                tensors[segment][of], residuals[segment][of] = wanted[segment][1][of], wanted[segment][2][of]
            at += size
        assert found[0] == bytes(sent)
        assert all((a == b).all() for a, b in zip(found[1], tensors, strict=True))
        assert all((a == b).all() for a, b in zip(found[2], residuals, strict=True))


HELD = ("tensor", "residual")


def _copy(segment: Segment, name: str) -> Array:
    held: Array = getattr(segment, name)
    return held.copy()


@pytest.mark.parametrize("number", range(len(CASES)))
def test_all_blocks_at_once_are_what_parts_of_them_are(number: int, library: Any) -> None:
    codec, kernel, dtype = CASES[number]
    segments = _segments(kernel, dtype, codec)
    function = library[f"range_{number}"]
    whole = measured(function, codec, kernel, dtype, segments, 3, ranges=WHOLE)
    borders = [0, 5, 700, 701, 2100, 2543, 3000, END]
    parts = measured(function, codec, kernel, dtype, segments, 3, ranges=list(pairwise(borders)))
    assert whole[0] == parts[0]
    assert all((a == b).all() for k in (1, 2) for a, b in zip(whole[k], parts[k], strict=True))


@pytest.mark.parametrize(
    ("ranges", "written"),
    [([(0, 5)], (True, False)), ([(5, END)], (False, True)), ([(0, 5), (5, END)], (True, True)), (WHOLE, (True, True))],
)
def test_a_parameter_without_elements_is_done_behind_the_last_one(
    ranges: list[tuple[int, int]], written: tuple[bool, bool], library: Any
) -> None:
    cells = [[np.full(1, -1, np.float32) for _ in NORMS.body.states] for _ in (5, 0)]
    names = [o.name for o in build_fragment("norms", NORMS.body, NORMS.fragment, "f32").kernel.operands]
    parts = []
    for n, made in zip((5, 0), cells, strict=True):
        held = {s.name: cell for s, cell in zip(NORMS.body.states, made, strict=True)}
        parts.append(Part([held.get(name, np.ones(n, np.float32)) for name in names], n))
    call(library["norms"], parts, ranges=ranges)
    assert tuple(made[0][0] >= 0 for made in cells) == written  # the norms of no elements and of five
