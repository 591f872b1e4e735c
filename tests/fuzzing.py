"""Texts that are nearly specs: made by the grammar with sense in some of it, and real ones with something changed.

`survives` says what must hold for any of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random

from relaxc import pipeline
from relaxc.language import library
from relaxc.language.diagnostics import SpecError
from relaxc.language.format import format
from relaxc.language.functions import FUNCTIONS, Where
from relaxc.language.parse import parse
from relaxc.language.render import render_json, render_text
from relaxc.language.source import Source
from relaxc.language.vocabulary import FEEDBACKS, QUANTITIES, TOPOLOGIES

PIECES = [
    "relax", "gradients", "{", "}", "(", ")", "=", ",", "for", '"', "#", "\n", "\0", "\ufffd", "\ufeff", "8bit", "1e999",
    "^", "-", "not", "param", "codec", "algorithm", "every", "\u202e", "9" * 400, "1/0", "0.5.5", "optimizer.x", "*", "é",
    "\r", "none", "ndim <", "\r\n", "\t", "state", "let", "step", "after", "phase", "send", "receive", "near", "guard", "per", "weight",
    "weights", "with choco", "mix(", "push(", "relay(", "mean(", "delay(", ", ring)", "async", "geometric(", "1e308 *", "0", ".5", 'edges("/")',
]  # fmt: skip


def survives(text: str) -> bool:
    """Whether `text` is a spec. What it must not be is anything but a spec or one with diagnostics, that can be shown.

    Raises whatever the compiler raises else.
    """
    try:
        file = parse(Source("fuzz.relax", text))
    except SpecError as error:
        _show(error)
        return False
    assert parse(Source("", format(file))) == file
    try:
        pipeline.to_paths(pipeline.to_program(pipeline.to_spec(Source("fuzz.relax", text), {})))
    except SpecError as error:
        _show(error)
        return False
    return True


def _show(error: SpecError) -> None:
    assert error.diagnostics
    json.loads(render_json(error.diagnostics))
    shown = render_text(error.diagnostics)
    assert "\x1b" not in shown and "\0" not in shown


# --- real texts with something changed


def library_texts() -> list[str]:
    """All specs of the library, the algorithms behind the knobs with a use of each, and all codecs."""
    specs = [file.source.text for name in library.specs() if (file := library.spec(name)) is not None]
    forms = [library.knobs(name).source.text + f"relax with {name}" for name in ("weights", "updates", "momentum")]
    codecs = [
        c.span.source.text + f"relax gradients {{ compress = {c.name} }}"
        for c in map(library.codec, library.codecs())
        if c
    ]
    return [*specs, *forms, *codecs]


def mutated(text: str, draw: Random) -> str:
    for _ in range(draw.randint(1, 4)):
        text = draw.choice(CHANGES)(text, draw)
    return text


def _replaced(text: str, draw: Random) -> str:
    at = draw.randrange(len(text) + 1)
    return text[:at] + draw.choice(["", *PIECES]) + text[at + draw.choice([0, 0, 1, 5]) :]


def _swapped(text: str, draw: Random) -> str:
    words = text.split(" ")
    a, b = draw.randrange(len(words)), draw.randrange(len(words))
    words[a], words[b] = words[b], words[a]
    return " ".join(words)


def _doubled(text: str, draw: Random) -> str:
    a, b = sorted((draw.randrange(len(text) + 1), draw.randrange(len(text) + 1)))
    return text[:b] + text[a : min(b, a + 400)] + text[b:]


def _renamed(text: str, draw: Random) -> str:
    words = [word for word in text.replace("(", " ").replace(",", " ").split() if word.isidentifier()]
    if not words:
        return text
    return text.replace(draw.choice(words), draw.choice([*words, *PIECES]), draw.choice([1, -1]))


CHANGES: Sequence[Callable[[str, Random], str]] = (_replaced, _replaced, _swapped, _doubled, _renamed)


# --- texts made by the grammar

VALUES = (
    "weight",
    "grad",
    "lr",
    "t",
    "workers",
    "rank",
    "optimizer.weight_decay",
    "0",
    "1",
    "2",
    "0.5",
    "1e-8",
    "50%",
    "8bit",
)
CODECS = (
    "8bit",
    "4bit",
    "1bit",
    "none",
    "bf16",
    "minmax(3)",
    "qsgd(4)",
    "onebit(64)",
    "modulo(8, unit = 0.01)",
    "modulo(8, unit = auto)",
    "mine",
    "2bit",
)
OPERATORS = ("+", "-", "*", "/", "^", "<", "<=", "==", "!=", "and", "or")
ALGORITHM_FUNCTIONS = [name for name, f in FUNCTIONS.items() if Where.ALGORITHM in f.takes]
CODEC_FUNCTIONS = [name for name, f in FUNCTIONS.items() if Where.CODEC in f.takes]


class Writer:
    """Writes specs. `names` are those that an expression may use, so that many make sense."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.names: list[str] = []

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def spec(self) -> str:
        items = [self.algorithm() if self.chance(0.8) else self.codec() for _ in range(self.draw.randint(1, 2))]
        return "\n".join([self.param(), *items, *(self.relax() for _ in range(self.draw.randint(1, 3)))]) + "\n"

    def param(self) -> str:
        return f"param p = {self.draw.choice([*CODECS, *TOPOLOGIES, *VALUES])}" if self.chance(0.3) else ""

    def relax(self) -> str:
        selector = self.draw.choice(["", "", ' for "a.*"', " for ndim < 2", " for not numel >= 10 or dtype == f32"])
        if self.chance(0.5):
            return f"relax with a{selector}" + self.clauses(("b", "c", "g", "k"))
        known = ("compress", "feedback", "delay", "route", "topology", "every", "gamma", "rate", "warmup")
        return f"relax {self.draw.choice(QUANTITIES)}{selector}" + self.clauses(known)

    def clauses(self, known: Sequence[str]) -> str:
        keys = [key for key in known if self.chance(0.25)]
        return f" {{ {', '.join(f'{key} = {self.value()}' for key in keys)} }}" if keys else ""

    def value(self) -> str:
        return self.draw.choice(
            [*CODECS, *TOPOLOGIES, *FEEDBACKS, "1", "4", "0.5", "geometric(4)", "lazy(ring)", "p", "2 ^ 3"]
        )

    def algorithm(self) -> str:
        self.names = ["b", "s"]
        parameters = (
            f"b = {self.draw.choice(VALUES)}, c = {self.draw.choice(CODECS)}, g = ring, k = {self.draw.randint(0, 3)}"
        )
        return f"algorithm a({parameters}) {{ state s = {self.draw.choice(['0', 'weight', '1'])} {self.block(3)} step {self.block(3)} }}"

    def block(self, depth: int) -> str:
        before = len(self.names)
        text = " ".join(self.statement(depth) for _ in range(self.draw.randint(0, 3)))
        del self.names[before:]
        return text

    def statement(self, depth: int) -> str:
        if depth and self.chance(0.4):
            header = self.draw.choice(["every 3", f"every {self.expression(1)}", "every staggered(4)", "after k", "after 0",
                                       "phase one for 5", "phase two", "after 2", "every geometric(b)"])  # fmt: skip
            return f"{header} {{ {self.block(depth - 1)} }}"
        if self.chance(0.4):
            name = f"l{len(self.names)}"
            text = f"let {name} = {self.expression(3)}"
            self.names.append(name)
            return text
        target = self.draw.choice(["weight", "weight", "grad", "s", "s", *self.names])
        return f"{target} {self.draw.choice(['=', '+=', '-=', '*=', '/='])} {self.expression(3)}"

    def expression(self, depth: int) -> str:
        if not depth or self.chance(0.3):
            return self.draw.choice([*VALUES, *self.names, *self.names])
        if self.chance(0.4):
            left, right = self.expression(depth - 1), self.expression(depth - 1)
            return f"({left} {self.draw.choice(OPERATORS)} {right})"
        return self.call(depth)

    def call(self, depth: int) -> str:
        value = self.expression(depth - 1)
        special = {
            "mix": f"mix({value}, {self.draw.choice(['g', 'ring', 'random_pairs', 'shuffled(chain)'])})",
            "own": "own(g)",
            "encode": f"encode({value}, {self.draw.choice(['c', *CODECS])})",
            "delay": f"delay({value}, k)",
            "mean": f"mean({value}, compress = {self.draw.choice(['c', *CODECS])}, feedback = {self.draw.choice(FEEDBACKS)})",
        }  # fmt: skip
        name = self.draw.choice([*ALGORITHM_FUNCTIONS, *special])
        if name in special:
            return special[name]
        least, _ = FUNCTIONS[name].takes[Where.ALGORITHM]
        return f"{name}({', '.join([value, *(self.expression(depth - 1) for _ in range(least - 1))])})"

    def codec(self) -> str:
        self.names = ["x", "n"]
        per = self.draw.choice(["per block(n)", "per block(64)", "per tensor", "per chunk", ""])
        body = [per, *(self.codec_statement() for _ in range(self.draw.randint(0, 4)))]
        near = self.draw.choice(["", "", " near y"])
        self.names += ["y"] if near else []
        return f"codec mine(n = {self.draw.randint(1, 9)}) {{ {' '.join(body)} receive{near} = {self.codec_expression(2)} }}"

    def codec_statement(self) -> str:
        name, value = f"f{len(self.names)}", self.codec_expression(2)
        self.names.append(name)
        wire = self.draw.choice(["f32", "f16", "uint(n)", "int(4)", "uint(1)", "real", "bf16"])
        return f"send {name}: {wire} = {value}" if self.chance(0.6) else f"let {name} = {value}"

    def codec_expression(self, depth: int) -> str:
        if not depth or self.chance(0.3):
            return self.draw.choice(["0", "1", "2", "0.5", *self.names, *self.names])
        if self.chance(0.5):
            left, right = self.codec_expression(depth - 1), self.codec_expression(depth - 1)
            return f"({left} {self.draw.choice(OPERATORS)} {right})"
        name = self.draw.choice(CODEC_FUNCTIONS)
        least, most = FUNCTIONS[name].takes[Where.CODEC]
        return f"{name}({', '.join(self.codec_expression(depth - 1) for _ in range(self.draw.randint(least, most)))})"


def written(draw: Random) -> str:
    """A spec by the grammar."""
    return Writer(draw).spec()
