"""Generated kernels against the oracle: the same bytes on the wire, the same bits in residuals and tensors."""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import codecs_by_hand as codecs
import numpy as np
import pytest
from cuda_driven import of_cpus
from fragment_cases import WEIGHTS, modulo, per_tensor
from kernel_calls import Array, Part, Segment, call, expected, measured, real_of, to_bits

from relaxc import pipeline, resources
from relaxc.build.kernels import build_kernels
from relaxc.emit.cpu import emit_kernels
from relaxc.emit.fuse import build_kernel
from relaxc.language import library
from relaxc.language.source import Source
from relaxc.program import evaluate
from relaxc.program.ir import Codec, exchanges
from relaxc.wire.routes import Kernel, gather_kernels

WORKERS = 3
LENGTHS = (0, 1, 7, 511, 512, 513, 1511)
DTYPES = ("f32", "f16", "bf16", "f64")
KERNELS = [
    Kernel("contribute", "none", tensor=True, averages=False, residual=False, owner=False),
    Kernel("contribute_kept", "none", tensor=True, averages=False, residual=True, owner=False),
    Kernel("combine", "many", tensor=False, averages=True, residual=False, owner=True),
    Kernel("combine_kept", "many", tensor=False, averages=True, residual=True, owner=True),
    Kernel("hop_kept", "one", tensor=True, averages=False, residual=True, owner=False),
    Kernel("finish_kept", "one", tensor=True, averages=True, residual=True, owner=True),
    Kernel("finish", "one", tensor=True, averages=True, residual=False, owner=True),
    Kernel("spread", "one", tensor=False, averages=False, residual=False, owner=False, decodes=True),
]
MIX, MEAN_OF_CODES = (gather_kernels(kind, "none")[1] for kind in ("mix", "mean"))
FULL = [
    codecs.cast("f16"), codecs.cast("bf16"), codecs.cast("real"), codecs.minmax(8), codecs.absmax(4), codecs.onebit(512),
]  # fmt: skip
"""With every kernel, and every type twice; the others with a rotating choice of both, so that compiling stays short."""
MORE = [
    *itertools.starmap(codecs.minmax, itertools.product((2, 4, 8), (1, 7, 32, 512, 1000), (False, True))),
    *itertools.starmap(codecs.absmax, itertools.product((2, 4, 8), (1, 7, 32, 512, 1000), (False, True))),
    codecs.onebit(7), codecs.onebit(2048), codecs.onebit(70000), codecs.qsgd(3), codecs.qsgd(6, 100), codecs.cast("f32"),
    codecs.minmax(1), codecs.minmax(3), codecs.minmax(5, 64), codecs.minmax(6), codecs.minmax(7), codecs.absmax(7, 33),
]  # fmt: skip
Case = tuple[Codec, Kernel, str]
CASES: list[Case] = [
    *((codec, kernel, DTYPES[(n + k) % 4]) for n, codec in enumerate(FULL) for k, kernel in enumerate(KERNELS)),
    *((codec, KERNELS[(n * 3 + n // 8) % 8], DTYPES[n // 2 % 4]) for n, codec in enumerate(MORE)),
    *((codecs.everything(), KERNELS[k], dtype) for k, dtype in ((1, "f32"), (3, "f16"), (4, "f64"), (7, "bf16"))),
    *((codecs.cast(kind), KERNELS[0], "f64") for kind in ("f16", "bf16", "f32")),
    *((codec, KERNELS[1], "f32") for codec in (codecs.minmax(8), codecs.absmax(8))),
    *((codec, MIX, DTYPES[n]) for n, codec in enumerate((codecs.cast("real"), codecs.onebit(7), modulo(5)))),
    *((codec, MEAN_OF_CODES, DTYPES[n]) for n, codec in enumerate((modulo(8), codecs.qsgd(4), codecs.minmax(8)))),
    *((modulo(4), KERNELS[k], dtype) for k, dtype in ((0, "f64"), (1, "f32"), (1, "f64"))),
    *((per_tensor(codecs.minmax(4)), KERNELS[k], dtype) for k, dtype in ((1, "f32"), (3, "f16"), (7, "bf16"))),
]


def of_the_library(name: str) -> Codec:
    """As it is written there, with what its parameters are unless one says otherwise."""
    program = pipeline.to_program(pipeline.to_spec(Source("spec", f"relax gradients {{ compress = {name} }}"), {}))
    return next(e.codec for e in exchanges(program.bodies[0].statements) if e.codec is not None)


LIBRARY = [of_the_library(name) for name in library.codecs() if name not in ("exact", "modulo")]
"""Also one that no other test knows of."""
SELECTING = [
    codecs.topk(0.01), codecs.topk(0.3), codecs.topk(5), codecs.topk(3, 7), codecs.topk(0.02, 512), codecs.topk(2000, 64),
    codecs.dct(8, 4), codecs.dct(3, 0.5), codecs.dct(32, 20), codecs.dct(1, 1), codecs.randomk(100), codecs.randomk(7),
    codecs.randomk(1),
]  # fmt: skip
"""Never encoded again, but for randomk."""
GATHER, KEPT = MEAN_OF_CODES, KERNELS[1]
CASES += [
    *(
        (codec, kernel, DTYPES[(n + k) % 4])
        for n, codec in enumerate(SELECTING)
        for k, kernel in enumerate((KEPT, GATHER))
    ),
    *((codec, KEPT, "f64") for codec in (codecs.topk(0.05), codecs.dct(16, 9))),
    *((codec, KERNELS[0], "f32") for codec in (codecs.topk(0.05), codecs.dct(16, 9), codecs.randomk(33))),
    *((codec, MIX, "f32") for codec in (codecs.topk(0.05), codecs.randomk(33))),
    *(
        (codecs.randomk(9), kernel, dtype)
        for kernel, dtype in zip(KERNELS[3:], ("f32", "f16", "f64", "bf16"), strict=False)
    ),
    *((codec, KEPT, DTYPES[n % 4]) for n, codec in enumerate(LIBRARY)),
    *((codec, GATHER if codec.selects else KERNELS[2], DTYPES[(n + 1) % 4]) for n, codec in enumerate(LIBRARY)),
]


def _chunks(count: int) -> Iterator[list[tuple[str, Case]]]:
    named = [(f"kernel_{n}", case) for n, case in enumerate(CASES)]
    yield from (named[k::count] for k in range(count))


@pytest.fixture(scope="session")
def functions() -> dict[str, Any]:
    """All kernels, compiled by two compilers at once, or found in the cache."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    chunks = list(_chunks(2))
    sources = [emit_kernels([build_kernel(symbol, *case) for symbol, case in chunk]) for chunk in chunks]
    with ThreadPoolExecutor(2) as compilers:
        libraries = [ctypes.CDLL(str(path)) for path in compilers.map(build_kernels, sources)]
    return {symbol: lib[symbol] for lib, chunk in zip(libraries, chunks, strict=True) for symbol, _ in chunk}


KINDS = (
    "normal",
    "nan",
    "inf",
    "both infs",
    "denormal",
    "1e20",
    "1e-12",
    "outlier",
    "zeros",
    "constant",
    "huge",
    "near ties",
    "few values",
)


def data(kind: str, n: int, real: Any, rng: np.random.Generator) -> Array:
    x = rng.standard_normal(n).astype(real)
    tie = np.array([s + 2.0**-b + 2.0**-40 for s in (1, 2, -1) for b in (8, 9, 11, 12)])
    whole = {
        "denormal": x * real(1e-41 if real is np.float32 else 1e-310),
        "1e20": x * real(1e20),
        "1e-12": x * real(1e-12),
        "zeros": np.copysign(real(0), x),
        "constant": np.full(n, 0.1, real),
        "huge": np.sign(x) * np.finfo(real).max,
        "near ties": np.resize(tie, n).astype(real),
        "few values": np.round(x).astype(real),
    }.get(kind, x)
    for place, value in SINGLE.get(kind, ()):
        whole[place(n)] = value
    return whole


SINGLE: dict[str, list[tuple[Callable[[int], slice], float]]] = {
    "normal": [(lambda n: slice(0, n, 5), -0.0)],  # in the residual too, so that some sums are -0
    "nan": [(lambda n: slice(n // 2, n // 2 + 1), np.nan)],
    "inf": [(lambda n: slice(n // 3, n // 3 + 1), np.inf)],
    "both infs": [(lambda n: slice(n // 2, n // 2 + 1), np.inf), (lambda n: slice(1), -np.inf)],
    "outlier": [(lambda n: slice(n - 1, n), 1e6)],
}


def _segments(codec: Codec, kernel: Kernel, dtype: str, seed: int) -> list[Segment]:
    """Every length and every kind of data once or more, paired differently for each case."""
    rng, real = np.random.default_rng(seed), real_of(dtype)
    inputs = {"none": 0, "one": 1, "many": WORKERS}[kernel.inputs]
    block = codec.layout.block or 2**20
    out = []
    for k, kind in enumerate(KINDS):
        n = LENGTHS[(seed + k) % len(LENGTHS)]
        first = (k % 3) * block + (2**32 // block * block if k % 4 == 1 else 0)
        with np.errstate(all="ignore"):
            tensor = to_bits(data(kind, n, real, rng), dtype)
            residual = data("normal", n, real, rng) * real(1e-2)
            received = [data(kind if w == 1 else "normal", n, real, rng) for w in range(inputs)]
        out.append(Segment(tensor, residual, received, first, parameter=k))
    return out


def _same(a: Array, b: Array) -> bool:
    """Bit for bit, any NaN being any other."""
    unsigned = np.dtype(f"u{a.itemsize}")
    return bool(((a.view(unsigned) == b.view(unsigned)) | (np.isnan(a) & np.isnan(b))).all())


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{c.text}-{k.name}-{d}" for c, k, d in CASES])
def test_kernel_equals_oracle(number: int, functions: dict[str, Any]) -> None:
    codec, kernel, dtype = CASES[number]
    segments = _segments(codec, kernel, dtype, seed=number)
    weights = list(WEIGHTS) if kernel.weighted else None
    wanted = [expected(codec, kernel, dtype, s, WORKERS, weights) for s in segments]
    function = functions[f"kernel_{number}"]
    message, tensors, residuals = measured(function, codec, kernel, dtype, segments, WORKERS, weights)
    assert message == b"".join(w[0] for w in wanted)
    assert all(_same(t, w[1]) for t, w in zip(tensors, wanted, strict=True))
    assert all(_same(r, w[2]) for r, w in zip(residuals, wanted, strict=True))


def test_generated_code_includes_relaxrt_only() -> None:
    source = emit_kernels([build_kernel("k", codecs.everything(), kernel, "f16") for kernel in KERNELS[:1]])
    headers = "".join(path.read_text() for path in Path(resources.folder("runtime"), "relaxrt").glob("*.h"))
    assert re.findall(r"#include (.*)", source) == ['"relaxrt/kernel.h"']
    assert {i for i in re.findall(r"#include (.*)", headers) if not re.fullmatch(r'"\w+\.h"', i)} == {"<cstdint>"}


def test_no_kernel_makes_a_residual_non_finite(functions: dict[str, Any]) -> None:
    for number, (codec, kernel, dtype) in enumerate(CASES):
        if kernel.residual:
            segments = _segments(codec, kernel, dtype, seed=number)
            _, _, residuals = measured(functions[f"kernel_{number}"], codec, kernel, dtype, segments, WORKERS)
            assert all(np.isfinite(r).all() for r in residuals)


def test_a_non_finite_block_decodes_non_finite() -> None:
    for codec in (codecs.minmax(8, 32), codecs.absmax(4, 32), codecs.onebit(32), codecs.cast("f16")):
        for bad in (np.nan, np.inf, -np.inf):
            x = np.ones(32, np.float32)
            x[5] = bad
            decoded = evaluate.decode(codec, evaluate.encode(codec, x), 32, np.float32)
            assert not np.isfinite(decoded[5])


def test_a_sum_of_no_message_is_the_empty_one(tmp_path: Path) -> None:
    """Of whole blocks and of a short one: -0, which changes nothing that it is added to."""
    kernel = build_kernel("nobody", codecs.minmax(8), gather_kernels("mix", "none")[1], "f32")
    part = Part([np.full(700, 7, np.float32)], 700, 0, 0)
    call(of_cpus([kernel], tmp_path)["nobody"], [part], [], None, 1, [], [], None)
    assert (part.operands[0] == 0).all() and np.signbit(part.operands[0]).all()
