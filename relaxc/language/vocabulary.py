"""The words that the language itself gives a meaning: nothing else may take them as its name."""

from __future__ import annotations

from relaxc.wire.routes import ROUTES

QUANTITIES = ("gradients", "weights", "updates", "momentum")
FIELDS = ("name", "ndim", "numel", "dtype")
"""What a selector tests."""
DTYPES = ("f16", "bf16", "f32", "f64")
ALL_ROUTES = (*ROUTES, "hierarchy")
TOPOLOGIES = (
    "ring", "chain", "star", "torus", "hypercube", "complete", "exponential", "one_peer_exponential", "shift_one",
    "random_pairs", "ready_pairs", "lazy", "shuffled", "hierarchy", "edges",
)  # fmt: skip
FEEDBACKS = ("auto", "none", "worker", "both")
ROUNDINGS = ("nearest", "stochastic")
SCOPE = ("weight", "grad", "lr", "t", "workers", "rank", "optimizer", "x")
FUNCTIONS = (
    "sqrt", "abs", "sign", "min", "max", "clamp", "exp", "log", "log2", "round", "floor", "mod", "wrap", "where",
    "norm", "dither", "mean", "sum", "mix", "push", "relay", "own", "encode", "decode", "delay", "geometric",
    "staggered", "async",
)  # fmt: skip
CODEC_WORDS = ("none", "auto")

BUILT_IN = frozenset(
    (*FIELDS, *DTYPES, *ALL_ROUTES, *TOPOLOGIES, *FEEDBACKS, *ROUNDINGS, *SCOPE, *FUNCTIONS, *CODEC_WORDS)
)  # fmt: skip
"""Quantities are not among them: they stand where no other name can. Nor are codecs: those are the library's."""
