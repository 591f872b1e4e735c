"""What `check` makes of a file: names resolved, values evaluated, every default filled in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from relaxc.language import syntax
from relaxc.language.diagnostics import Diagnostic
from relaxc.language.source import Source, Span


class Feedback(StrEnum):
    """Which encoders keep what they lost and add it next time (SEMANTICS decision 18); `auto` is for the codec to say,
    which lowering asks."""

    AUTO = "auto"
    NONE = "none"
    WORKER = "worker"
    BOTH = "both"


Value = int | float | str
"""An argument's value; a string is a bare name such as `stochastic`."""


@dataclass(frozen=True, slots=True)
class CodecUse:
    """A codec with all its arguments, in the order of its parameters: minmax(8, block = 512, rounding = nearest)."""

    definition: syntax.Codec = field(repr=False)
    arguments: tuple[tuple[str, Value], ...]
    span: Span = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.definition.name

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k} = {v}' for k, v in self.arguments)})" if self.arguments else self.name


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One `relax gradients` statement. `codec` is None for an uncompressed mean on the backend's own route; `delay`
    counts iterations; `route` is one of wire/routes.ROUTES."""

    span: Span = field(compare=False, repr=False)
    selector: syntax.Expression | None
    codec: CodecUse | None
    feedback: Feedback
    delay: int
    route: str


@dataclass(frozen=True, slots=True)
class Spec:
    source: Source = field(compare=False, repr=False)
    params: tuple[tuple[str, Value], ...]
    relaxations: tuple[Relaxation, ...]
    warnings: tuple[Diagnostic, ...] = field(compare=False)
