"""The words that the language itself gives a meaning: nothing else may take them as its name."""

from __future__ import annotations

from relaxc.language.functions import FUNCTIONS, PERIODS
from relaxc.topology import kinds
from relaxc.wire.routes import ROUTES

QUANTITIES = ("gradients", "weights", "updates", "momentum")
FIELDS = ("name", "ndim", "numel", "dtype")
"""What a selector tests."""
DTYPES = ("f16", "bf16", "f32", "f64")
TOPOLOGIES = (*kinds.TOPOLOGIES, "ready_pairs")
WRAPPERS = (*(name for name, kind in kinds.TOPOLOGIES.items() if kind.wraps), "ready_pairs")
"""Topologies made of another."""
FEEDBACKS = ("auto", "none", "worker", "both")
ROUNDINGS = ("nearest", "stochastic")
READABLE = ("weight", "grad", "lr", "t", "workers", "rank")
"""What every expression of an algorithm may name."""
TOP = "top"
"""The type of a field that holds the largest elements of a block."""
CHOSEN = "chosen"
"""In a codec: 1 at one element of each block, that all workers draw alike."""
SCOPE = (*READABLE, "optimizer", "x", "index")
BLOCK_UNITS = ("block", "tensor", "chunk")
"""What a codec can be `per`."""
AUTO = "auto"
ROUTE_NAMES = (AUTO, *ROUTES)
CODEC_WORDS = ("none", "auto")
BUILT_IN_CODECS = ("lowrank",)
"""Codecs that no block program can express; a file may not define one of that name."""

NOT_RESERVED = {"own"}
"""`own` is only ever called, and what is one's own is worth that name."""

BUILT_IN = frozenset(
    {*FIELDS, *DTYPES, *ROUTES, *TOPOLOGIES, *FEEDBACKS, *ROUNDINGS, *SCOPE, CHOSEN, *FUNCTIONS, *PERIODS, "async",
     *CODEC_WORDS, *BUILT_IN_CODECS} - NOT_RESERVED
)  # fmt: skip
"""Quantities are not among them: they stand where no other name can. Nor are codecs: those are the library's."""
