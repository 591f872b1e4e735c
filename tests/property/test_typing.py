"""Drawn algorithms: they are refused with a diagnostic, or they are well formed, are printed as what they are, and keep
what their types promise when they run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxc import pipeline
from relaxc.language.diagnostics import SpecError
from relaxc.language.source import Source
from relaxc.program.functions import Array
from relaxc.program.interpret import Interpreter
from relaxc.program.printer import print_program
from relaxc.program.types import Typed
from relaxc.program.verify import verify
from relaxc.wire.parameters import Parameter

TOPOLOGIES = ("ring", "random_pairs", "lazy(ring)", "one_peer_exponential", "complete")
CODECS = ("8bit", "1bit", "bf16", "qsgd(4)", "topk(10%)", "randomk(30%)", "none")
PERIODS = ("2", "3", "geometric(3)", "staggered(4)", "min(t + 1, 5)")


@dataclass
class Author:
    """Writes one algorithm. Most make sense; names and nesting are always right, since those are check's to refuse."""

    dice: random.Random
    count: int = 0
    tensors: list[str] = field(default_factory=lambda: ["weight", "weight", "grad"])
    codes: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)

    def pick(self, options: Sequence[str]) -> str:
        return options[self.dice.randrange(len(options))]

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def algorithm(self) -> str:
        self.states = [self.fresh("s") for _ in range(self.dice.randrange(3))]
        states = [f"state {name} = {self.pick(['0', 'weight'])}" for name in self.states]
        self.tensors += self.states
        first = self.pick(["grad = mean(grad)", "grad = delay(mean(grad, compress = 8bit), 2)", ""])
        parts = [*states, first, *self.block(1, 0), self.pick(["step", "step", ""]), *self.block(4, 0)]
        return f"algorithm a() {{ {' '.join(parts)} }}\nrelax with a\n"

    def block(self, size: int, depth: int) -> Iterator[str]:
        tensors, codes = list(self.tensors), list(self.codes)
        for _ in range(self.dice.randrange(size + 1)):
            yield from self.statement(depth)
        self.tensors, self.codes = tensors, codes

    def statement(self, depth: int) -> Iterator[str]:
        match self.dice.randrange(8 if depth < 2 else 5):
            case 0:
                value, name = self.expression(), self.fresh("l")
                self.tensors.append(name)
                yield f"let {name} = {value}"
            case 1:
                code, target = self.fresh("q"), self.pick(["weight", *self.states])
                yield f"let {code} = encode({self.expression()}, {self.pick(CODECS)})"
                self.codes.append(code)
                yield f"{target} += {self.pick([f'mix({code}, ring)', f'mean({code})'])} - decode({code})"
            case 2 | 3:
                yield f"{self.target()} {self.expression()}"
            case 4:
                yield f"{self.target()} delay({self.expression()}, {self.dice.randrange(3)})"
            case 5:
                yield f"every {self.pick(PERIODS)} {{ {' '.join(self.block(2, depth + 1))} }}"
            case 6:
                yield f"after {1 + self.dice.randrange(2)} {{ {' '.join(self.block(2, 2))} }}"
            case 7 if depth == 0:
                name = self.fresh("p")
                yield f"phase {name} for 2 {{ {' '.join(self.block(2, 1))} }}"

    def target(self) -> str:
        return f"{self.pick(['weight', 'weight', *self.states])} {self.pick(['=', '+=', '-=', '*='])}"

    def expression(self, depth: int = 0) -> str:
        kind = self.dice.randrange(12) if depth < 3 else 0
        inner = [self.expression(depth + 1) for _ in range(2)] if kind > 3 else []
        match kind:
            case 4 | 5 | 6:
                return f"({inner[0]} {self.pick('+-*')} {inner[1]})"
            case 7:
                return f"mean({inner[0]}, compress = {self.pick(CODECS)}, route = {self.pick(['all', 'ring'])})"
            case 8:
                return f"mix({inner[0]}, {self.pick(TOPOLOGIES)})"
            case 9:
                return f"where({inner[0]} < {inner[1]}, {inner[1]}, 0.5)"
            case 10:
                return f"min(1, norm({inner[0]}))"
            case 11:
                return self.pick(
                    [f"sum({inner[0]})", f"(rank + {inner[0]})", f"(lr * {inner[0]})", f"({inner[0]} - t)"]
                )
        return self.pick([*self.tensors, "0.5"])


def written(seed: int) -> str:
    return Author(random.Random(seed)).algorithm()


def typed(text: str) -> Typed | None:
    try:
        return pipeline.to_typed(pipeline.to_spec(Source("spec", text), {}))
    except SpecError:
        return None


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**31))
def test_what_types_is_well_formed_and_printed_as_what_it_is(seed: int) -> None:
    found = typed(written(seed))
    if found is None:
        return
    verify(found.program)
    printed = print_program(found.program)
    again = typed(f"{printed}\nrelax with body0\n")
    assert again is not None and print_program(again.program) == printed
    assert again.facts == found.facts


class Descent:
    """A plain step with the same settings everywhere."""

    def step(self, worker: int, parameter: Parameter, weight: Array, grad: Array) -> Array:
        return weight - weight.dtype.type(0.1) * grad

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        return 0.1

    def state(self, worker: int, parameter: Parameter, name: str) -> Array:
        return np.ones(parameter.elements, np.float32)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**31))
def test_what_is_called_replicated_has_the_same_bits_on_all_workers(seed: int) -> None:
    found = typed(written(seed))
    if found is None or found.facts[0].agreement != "replicated":
        return
    interpreter = Interpreter(found.program, [Parameter(0, "p", (7,), "f32")], 3, optimizer=Descent())
    draw = np.random.default_rng(seed)
    for _ in range(7):
        interpreter.iterate([[draw.standard_normal(7).astype(np.float32)] for _ in range(3)])
        assert len({worker[0].tobytes() for worker in interpreter.weights}) == 1
