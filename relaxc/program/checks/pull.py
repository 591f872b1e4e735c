"""By which factor does what lands pull weights towards a mix of what they were at launch?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isclose

from relaxc.program.checks.judged import Judged
from relaxc.program.ir import After, Apply, Assign, Constant, Exchange, Expression, Let, Read, flattened

Shares = Mapping[str, float]
"""How often a value has `mixed`, the mix, `old`, weights at launch, `now`, weights at landing, and `one`."""


def factor_of_pull(judged: Judged, after: After) -> float | None:
    """The f of `weight += f * (mixed - old)`; None where the landing is something else or f is no constant."""
    moves = [s for s in flattened(after.body) if isinstance(s, Assign) and s.name == "weight"]
    if len(moves) != 1 or moves[0] not in after.body:
        return None
    inside = frozenset(s.name for s in flattened(after.body) if isinstance(s, Let))
    shares = _Reader(judged, inside).shares(moves[0].value, landed=True)
    if shares is None:
        return None
    factor = shares.get("mixed", 0.0)
    plain = isclose(shares.get("old", 0.0), -factor) and shares.get("now") == 1 and not shares.get("one", 0.0)
    return factor if plain and factor > 0 else None


@dataclass(frozen=True, slots=True)
class _Reader:
    """`inside` are the lets of the landing block; all others are of the launch."""

    judged: Judged
    inside: frozenset[str]

    def shares(self, e: Expression, landed: bool) -> Shares | None:
        """None where `e` is made of anything else."""
        match e:
            case Constant(value=value):
                return {"one": value}
            case Read(name="weight"):
                return {"now" if landed else "old": 1.0}
            case Read(name=name) if name in self.judged.lets:
                return self.shares(self.judged.lets[name].value, landed and name in self.inside)
            case Exchange(kind="mix" | "push", value=Read(name="weight")) if not landed:
                return {"mixed": 1.0}
            case Apply(function=function, arguments=arguments):
                parts = [self.shares(a, landed) for a in arguments]
                known = [part for part in parts if part is not None]
                return _applied(function, known) if len(known) == len(parts) else None
        return None


def _applied(function: str, parts: list[Shares]) -> Shares | None:
    match function, parts:
        case "neg", [a]:
            return _scaled(a, -1)
        case "+", [a, b]:
            return _sum(a, b)
        case "-", [a, b]:
            return _sum(a, _scaled(b, -1))
        case "*", [a, b] if _is_number(a):
            return _scaled(b, a.get("one", 0.0))
        case "*", [a, b] if _is_number(b):
            return _scaled(a, b.get("one", 0.0))
        case "/", [a, b] if _is_number(b) and b.get("one", 0.0):
            return _scaled(a, 1 / b["one"])
    return None


def _is_number(shares: Shares) -> bool:
    return set(shares) <= {"one"}


def _scaled(shares: Shares, by: float) -> Shares:
    return {name: by * share for name, share in shares.items()}


def _sum(a: Shares, b: Shares) -> Shares:
    return {name: a.get(name, 0.0) + b.get(name, 0.0) for name in {**a, **b}}
