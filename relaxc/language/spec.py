"""What `check` makes of a file: names resolved, values evaluated, every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from relaxc.language import syntax
from relaxc.language.diagnostics import Diagnostic
from relaxc.language.source import Source, Span
from relaxc.topology.topology import Topology


class Feedback(StrEnum):
    """Which encoders keep what they lost and add it next time; `auto` is for the codec to say,
    which lowering asks."""

    AUTO = "auto"
    NONE = "none"
    WORKER = "worker"
    BOTH = "both"


AUTO = "auto"
"""Of a number: for lowering to choose, by the codec."""

Value = int | float | str
"""An argument of a codec, or a param; a string is a bare name such as `stochastic`, or an expression's text."""


@dataclass(frozen=True, slots=True)
class CodecUse:
    """A codec of the file or of the library with all its arguments, in the order of its parameters:
    minmax(8, block = 512, rounding = nearest)."""

    definition: syntax.Codec = field(repr=False)
    arguments: tuple[tuple[str, Value], ...]
    span: Span = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.definition.name

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k} = {v}' for k, v in self.arguments)})" if self.arguments else self.name


@dataclass(frozen=True, slots=True)
class Period:
    """`every n` (how is number), `every geometric(n)` or `every staggered(n)`. `value` is the n: a constant where the
    period is an argument; where it is written in a body, it may name t, states and parameters of the algorithm."""

    how: str
    value: syntax.Expression
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Async:
    """The delay `async`, or with `most` not 0 `async(max = n)`: late by what it takes, n iterations at most."""

    most: int = 0

    def __str__(self) -> str:
        return f"async(max = {self.most})" if self.most else "async"


ArgumentValue = int | float | str | CodecUse | Topology | Feedback | Period | Async | None


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter's value in one use of an algorithm. `kind` says what the body needs it for, and what `value` is:
    number (int or float), codec (CodecUse, None for `none`), topology, feedback, route (auto, or one of
    wire/routes.ROUTES), period, delay (a number of iterations, or Async)."""

    name: str
    kind: str
    value: ArgumentValue
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Names:
    """What a body may name besides its parameters: params and codecs of the file in which it is written. A param is
    None where its definition has a mistake."""

    params: Mapping[str, syntax.Expression | None]
    codecs: Mapping[str, syntax.Codec]


@dataclass(frozen=True, slots=True)
class Use:
    """One relaxation: the algorithm `definition` with `arguments`, one for each parameter that its body names, in the
    order of the parameters; for the parameters of the model that `selector` matches and no earlier use does.

    `relax gradients { ... }` and its like are uses of the algorithms in specs/knobs/. `title` is the statement in
    canonical form on one line.
    """

    span: Span = field(compare=False, repr=False)
    selector: syntax.Expression | None
    definition: syntax.Algorithm
    arguments: tuple[Argument, ...]
    title: str
    names: Names = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Cluster:
    """`cluster { ... }`. Rates in bits per second, `inner` within a machine; `latency` in seconds. None where it is not
    said; the span is that of the word `cluster`."""

    bandwidth: float
    latency: float | None
    workers: int | None
    per_machine: int
    inner: float | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Spec:
    """`algorithms` and `codecs` are all that the file defines. So that later stages check what no statement runs,
    `unused` has a use with its defaults of each of these algorithms that is not in `uses` and needs no argument, and
    `codec_uses` one of each codec that needs none."""

    source: Source = field(compare=False, repr=False)
    params: tuple[tuple[str, Value], ...]
    uses: tuple[Use, ...]
    algorithms: tuple[syntax.Algorithm, ...]
    codecs: tuple[syntax.Codec, ...]
    unused: tuple[Use, ...]
    codec_uses: tuple[CodecUse, ...]
    warnings: tuple[Diagnostic, ...] = field(compare=False)
    cluster: Cluster | None = None
