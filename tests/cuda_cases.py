"""Kernels of every kind, by what they do: those of routes over the codecs, fragments, and all of specs/."""

from __future__ import annotations

import itertools
from functools import cache

import codecs_by_hand as codecs
from fragment_cases import CASES as FRAGMENTS
from fragment_cases import modulo, per_tensor

from relaxc import pipeline
from relaxc.emit.exchanges import Kernels, native_exchange
from relaxc.emit.fragment import build_fragment
from relaxc.emit.fuse import build_kernel
from relaxc.emit.kernel import DTYPES, BlockKernel
from relaxc.emit.programs import program_plan
from relaxc.language.source import Source
from relaxc.program.ir import Codec
from relaxc.resources import folder
from relaxc.wire.routes import Kernel, gather_kernels

ROUTES = [
    Kernel("contribute_kept", "none", tensor=True, averages=False, residual=True, owner=False),
    Kernel("combine_kept", "many", tensor=False, averages=True, residual=True, owner=True),
    Kernel("hop_kept", "one", tensor=True, averages=False, residual=True, owner=False),
    Kernel("spread", "one", tensor=False, averages=False, residual=False, owner=False, decodes=True),
    Kernel("contribute", "none", tensor=True, averages=False, residual=False, owner=False),
    Kernel("finish", "one", tensor=True, averages=True, residual=False, owner=True),
]
MIX, MEAN = (gather_kernels(kind, "none")[1] for kind in ("mix", "mean"))
BLOCKS = (1, 7, 96, 512, 4096)
PLAIN = [
    *(codecs.cast(kind) for kind in ("f32", "f16", "bf16", "real")),
    *itertools.starmap(codecs.minmax, zip(range(1, 9), (512, 1, 7, 96, 1000, 4096, 2048, 128), strict=True)),
    *itertools.starmap(codecs.absmax, zip(range(2, 9), (7, 512, 4096, 33, 512, 96, 512), strict=True)),
    *(codecs.minmax(8, block, True) for block in BLOCKS),
    codecs.onebit(7), codecs.onebit(2048), codecs.onebit(70000), codecs.qsgd(3), codecs.qsgd(6, 96), codecs.natural(),
    codecs.ternary(), codecs.signs(), codecs.everything(), codecs.everything(96), per_tensor(codecs.minmax(4)),
    per_tensor(codecs.everything()), modulo(3), codecs.modulo(8), codecs.randomk(100), codecs.randomk(7),
]  # fmt: skip
SELECTING = [
    codecs.topk(0.01), codecs.topk(0.3), codecs.topk(5), codecs.topk(3, 7), codecs.topk(0.02, 512), codecs.topk(2000, 64),
    codecs.dct(8, 4), codecs.dct(3, 0.5), codecs.dct(32, 20), codecs.dct(1, 1),
]  # fmt: skip
"""Never encoded again."""
GUARDED = [codecs.guarded(8, 0.001), codecs.guarded(4, 0.01, 37), per_tensor(codecs.guarded(5, 0.01))]


def by_routes() -> list[BlockKernel]:
    """Each codec with all routes' kernels between them, kernels and types rotating."""
    made = [
        (codec, ROUTES[(2 * number + turn * 5) % len(ROUTES)], DTYPES[(number + turn) % 4])
        for number, codec in enumerate(PLAIN)
        for turn in range(3)
    ]
    for number, codec in enumerate(SELECTING):
        made += [(codec, kernel, DTYPES[(number + k) % 4]) for k, kernel in enumerate((ROUTES[0], MEAN, MIX))]
    made += [(codecs.topk(0.05), ROUTES[0], "f64"), (codecs.dct(16, 9), ROUTES[0], "f64")]
    made += [(codec, ROUTES[4], DTYPES[n % 4]) for n, codec in enumerate(SELECTING)]  # with equals: nothing is added
    made += [(codec, MIX, DTYPES[n % 4]) for n, codec in enumerate(PLAIN[::4])]
    for number, codec in enumerate(GUARDED):
        kernels = gather_kernels("mix", "none", guarded=True)
        made += [(codec, kernel, ("f32", "f64")[number % 2]) for kernel in kernels]
    return [build_kernel(_symbol("route", n, codec, k.name, d), codec, k, d) for n, (codec, k, d) in enumerate(made)]


def _symbol(kind: str, number: int, codec: Codec | None, name: str, dtype: str) -> str:
    text = "".join(c if c.isalnum() else "_" for c in (codec.text if codec else ""))
    return f"{kind}_{number}_{name}_{text}_{dtype}"


def by_fragments() -> list[BlockKernel]:
    """Each in two types, rotating; all together in all."""
    made = []
    for number, case in enumerate(FRAGMENTS):
        for dtype in (DTYPES[number % 4], DTYPES[(number + 1 + number // 4) % 4]):
            symbol = _symbol("fragment", number, None, "".join(c if c.isalnum() else "_" for c in case.name), dtype)
            made.append(build_fragment(symbol, case.body, case.fragment, dtype).kernel)
    return list({kernel.symbol: kernel for kernel in made}.values())


@cache
def of_specs(dtypes: tuple[str, ...] = DTYPES) -> tuple[BlockKernel, ...]:
    """All kernels of specs/."""
    kernels = Kernels(dtypes)
    for path in sorted(folder("specs").glob("*.relax")):
        typed = pipeline.to_typed(pipeline.to_spec(Source(str(path), path.read_text()), {}))
        for body in pipeline.to_paths(typed.program).bodies:
            if body.gradient is not None:
                native_exchange(body.gradient.exchange, kernels)
            program_plan(body, kernels)
    return tuple(kernels.found.values())


def by_specs() -> list[BlockKernel]:
    """All of specs/ in f32, and some of them in the other types."""
    others = [k for k in of_specs() if k.dtype != "f32"]
    return [*(k for k in of_specs() if k.dtype == "f32"), *others[::6]]
