"""What the grammar knows and this version can't do yet. Whoever builds one of them removes its line here."""

from __future__ import annotations

from relaxc.language.report import Report
from relaxc.language.source import Span

GRADIENTS = "this version relaxes gradients: `relax gradients { ... }`"
CODECS = "this version has 8bit, 4bit, 2bit, 1bit, minmax, absmax, onebit, fp16 and bf16"
ROUTES = "use all or ring"
EVERY = "leave it out; gradients are exchanged in every iteration"

UNBUILT = {
    "relax weights": ("relaxing weights", GRADIENTS),
    "relax updates": ("relaxing updates", GRADIENTS),
    "relax momentum": ("relaxing momentum", GRADIENTS),
    "relax with": ("running an algorithm", GRADIENTS),
    "algorithm": ("defining an algorithm", GRADIENTS),
    "codec": ("defining a codec", CODECS),
    "cluster": ("describing a cluster", "leave it out; nothing depends on it yet"),
    "codec topk": ("the codec topk", CODECS),
    "codec randomk": ("the codec randomk", CODECS),
    "codec lowrank": ("the codec lowrank", CODECS),
    "codec dct": ("the codec dct", CODECS),
    "codec modulo": ("the codec modulo", CODECS),
    "codec qsgd": ("the codec qsgd", CODECS),
    "codec natural": ("the codec natural", CODECS),
    "codec ternary": ("the codec ternary", CODECS),
    "codec auto": ("choosing a codec automatically", CODECS),
    "route hierarchy": ("the route hierarchy", ROUTES),
    "clause phase": ("a phase in a relaxation", EVERY),
    "delay async": ("an asynchronous delay", "write a number of iterations: delay = 1"),
}


def refuse(report: Report, what: str, span: Span) -> bool:
    """Whether `what` is not built yet; if so that is an error at `span`."""
    if what not in UNBUILT:
        return False
    name, help_ = UNBUILT[what]
    report.error("RX0190", f"{name} is not built yet", span, "in the language, but not in this version", help_)
    return True
