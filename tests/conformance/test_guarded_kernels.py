"""The kernels of a codec with a guard against the oracle: what is sent, what trips, and what is made of several messages,
each near something else."""

from __future__ import annotations

import ctypes
import shutil
from typing import Any

import codecs_by_hand as codecs
import numpy as np
import pytest
from kernel_calls import KEY, Part, call, real_of, unaligned

from relaxc.build.kernels import build_kernels
from relaxc.emit.cpu import emit_kernels
from relaxc.emit.fuse import build_kernel
from relaxc.program.evaluate import decode, encode, nearest, trusted
from relaxc.program.ir import Codec
from relaxc.wire.dither import parameter_keys
from relaxc.wire.layout import Layout
from relaxc.wire.routes import gather_kernels

LENGTHS = (1, 7, 511, 512, 513, 1511)
MODULO = codecs.guarded(8, 0.001)
WHOLE = Codec(
    "whole", Layout(0, MODULO.layout.fields, "tensor"), MODULO.steps, MODULO.receive, True, MODULO.near, MODULO.guard
)
CODECS = {"modulo": MODULO, "4 bits in short blocks": codecs.guarded(4, 0.01, 37), "per tensor": WHOLE}
CASES = [(name, dtype) for name in CODECS for dtype in ("f32", "f64")]


@pytest.fixture(scope="module")
def library() -> Any:
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    kernels = [
        build_kernel(f"{kernel.name}_{n}", CODECS[name], kernel, dtype)
        for n, (name, dtype) in enumerate(CASES)
        for kernel in gather_kernels("mix", "none", guarded=True)
    ]
    return ctypes.CDLL(str(build_kernels(emit_kernels(kernels))))


def drawn(seed: int, real: Any) -> list[list[Any]]:
    """By segment and worker: three who are near each other in some blocks, and in some not."""
    draw = np.random.default_rng(seed)
    segments = []
    for length in LENGTHS:
        x = draw.standard_normal(length)
        apart = np.where(np.arange(length) // 37 % 3 == 0, draw.choice([0.01, 3.0]), 0.002)
        segments.append([(x + apart * draw.standard_normal(length)).astype(real) for _ in range(3)])
    return segments


@pytest.mark.parametrize(("number", "name", "dtype"), [(n, *case) for n, case in enumerate(CASES)])
def test_kernels_of_a_guard_are_what_the_oracle_says(library: Any, number: int, name: str, dtype: str) -> None:
    codec, real, tripped = CODECS[name], real_of(dtype), 0
    for seed in range(8):
        segments = drawn(seed, real)
        codes = [[encode(codec, v, parameter_keys(KEY, 0)) for v in values] for values in segments]
        messages = [b"".join(of[worker] for of in codes) for worker in range(3)]
        parts = [[Part([unaligned(v[w])], v[w].size) for v in segments] for w in range(3)]
        for worker in range(3):
            assert call(library[f"contribute_{number}"], parts[worker], None, len(messages[worker])) == messages[worker]
        held = [[trusted(codec, c, v[0]) for c in of] for of, v in zip(codes, segments, strict=True)]
        for worker in range(3):
            told = (~np.concatenate([of[worker] for of in held])).astype(np.uint8)
            tripped += int(told.sum())
            assert call(library[f"check_{number}"], parts[0], [messages[worker]], told.size) == told.tobytes()
        near = [
            [nearest(codec, c, v[0], put) for c, put in zip(of, v, strict=True)]
            for of, v in zip(codes, segments, strict=True)
        ]
        given = [None, *(unaligned(np.concatenate([of[w] for of in near])) for w in (1, 2))]
        weights = [0.5, 0.2, 0.3]
        call(library[f"gather_{number}"], parts[0], messages, None, weights=weights, near=given)
        for part, of, keys in zip(parts[0], codes, near, strict=True):
            terms = [decode(codec, c, k.size, real, k) * real(w) for c, k, w in zip(of, keys, weights, strict=True)]
            assert part.operands[0].tobytes() == (terms[0] + terms[1] + terms[2]).tobytes()
    assert tripped
