"""The fused kernels on each side of an exchange of choco and one_bit_adam against the same arithmetic in eager torch.

One thread, f32, ratio of medians of interleaved rounds. Eager torch gets what favours it: signs stay bools and are not
packed, and every statement is written with the fewest operations.

    python -m benchmarks.fragments [--elements 25000000] [--rounds 9]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from bench import INPUTS, Bench, Job, interleaved

from relaxc import pipeline
from relaxc.emit.fragment import FusedFragment, build_fragment
from relaxc.language.source import Source
from relaxc.program.paths import Fragment, PathBody
from relaxc.resources import folder

ASKED = 4.0
BLOCK = 2048
"""Of 1bit."""


@dataclass(frozen=True)
class Side:
    """`eager` makes the job of the operands by name."""

    spec: str
    name: str
    chosen: Callable[[PathBody], Fragment]
    eager: Callable[[dict[str, torch.Tensor]], Job]


def rows_of(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1, BLOCK)


def signs(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The scales, the signs, and what a receiver makes of them."""
    rows = rows_of(value)
    scale = rows.abs().mean(1, keepdim=True)
    positive = rows >= 0
    return scale, positive, torch.where(positive, scale, -scale).view(-1)


def choco_sends(held: dict[str, torch.Tensor]) -> Job:
    weight, seen = held["weight"], held["seen"]

    def job() -> object:
        scale, positive, decoded = signs(weight - seen)
        seen.add_(decoded)
        return scale, positive

    return job


def choco_receives(held: dict[str, torch.Tensor]) -> Job:
    weight, seen, around = held["weight"], held["seen"], held["around"]
    codes = [signs(torch.randn_like(weight))[:2] for _ in range(INPUTS)]

    def job() -> object:
        for scale, positive in codes:
            rows_of(around).add_(torch.where(positive, scale, -scale), alpha=1 / INPUTS)
        weight.add_(around - seen, alpha=0.4)
        return weight

    return job


def adam_dense(held: dict[str, torch.Tensor]) -> Job:
    weight, grad, m, v = (held[name] for name in ("weight", "grad", "m", "v"))

    def job() -> object:
        v.copy_(0.999 * v + 0.001 * grad**2)
        m.copy_(0.9 * m + 0.1 * grad)
        weight.sub_(0.01 * m / (v.sqrt() + 1e-8))
        return weight

    return job


def adam_sends(held: dict[str, torch.Tensor]) -> Job:
    grad, m, residual = held["grad"], held["m"], held["residual"]

    def job() -> object:
        value = 0.9 * m + 0.1 * grad + residual
        scale, positive, decoded = signs(value)
        torch.sub(value, decoded, out=residual)
        return scale, positive

    return job


def adam_receives(held: dict[str, torch.Tensor]) -> Job:
    weight, m, v = (held[name] for name in ("weight", "m", "v"))
    scale, positive, _ = signs(torch.randn_like(weight))

    def job() -> object:
        rows_of(m).copy_(torch.where(positive, scale, -scale))
        weight.sub_(0.01 * m / (v.sqrt() + 1e-8))
        return weight

    return job


def sending(body: PathBody) -> Fragment:
    return next(f for f in body.fragments if f.sends is not None)


def receiving(body: PathBody) -> Fragment:
    return next(f for f in body.fragments if f.receives is not None)


def updating(body: PathBody) -> Fragment:
    return next(
        f for f in body.fragments if f.receives is None and any(s.target == "weight" for s in f.stores)
    )  # fmt: skip


SIDES = [
    Side("choco", "before the mix", sending, choco_sends),
    Side("choco", "after the mix", receiving, choco_receives),
    Side("one_bit_adam", "update while dense", updating, adam_dense),
    Side("one_bit_adam", "before the mean", sending, adam_sends),
    Side("one_bit_adam", "after the mean", receiving, adam_receives),
]


def body_of(spec: str) -> PathBody:
    path = folder("specs") / f"{spec}.relax"
    return pipeline.to_paths(pipeline.to_program(pipeline.to_spec(Source(str(path), path.read_text()), {}))).bodies[0]


def fused(side: Side, number: int) -> FusedFragment:
    body = body_of(side.spec)
    made = build_fragment(f"side_{number}", body, side.chosen(body), "f32")
    return replace(made, kernel=replace(made.kernel, symbol=f"side_{number}"))


@dataclass(frozen=True)
class Row:
    side: Side
    gigabytes_per_second: float
    """Of the operands, each counted once."""
    ratio: float

    @property
    def reached(self) -> bool:
        return self.ratio >= ASKED


def measure(elements: int, rounds: int) -> list[Row]:
    torch.set_num_threads(1)
    made = [fused(side, n) for n, side in enumerate(SIDES)]
    bench = Bench(elements // BLOCK * BLOCK, [f.kernel for f in made])
    return [_row(bench, side, f, rounds) for side, f in zip(SIDES, made, strict=True)]


def _row(bench: Bench, side: Side, made: FusedFragment, rounds: int) -> Row:
    names = [operand.name for operand in made.kernel.operands]
    held = {name: torch.rand(bench.elements) for name in {*names, "v", "m", "grad", "residual", "seen", "around"}}
    held["weight"] = torch.randn(bench.elements)
    message = torch.zeros(5 * bench.elements, dtype=torch.uint8)
    inputs = [message] * {"none": 0, "one": 1, "many": INPUTS}[made.kernel.inputs]
    output = message if side.chosen is sending else None
    ours = bench.job(made.kernel.symbol, [held[n] for n in names], inputs, output)
    theirs = side.eager({name: tensor.clone() for name, tensor in held.items()})
    fast, slow = interleaved([ours, theirs], rounds)
    typical = statistics.median(fast)
    return Row(side, 4e-9 * bench.elements * len(names) / typical, statistics.median(slow) / typical)


def table(rows: list[Row]) -> str:
    lines = [f"{'spec':16}{'kernel':22}{'GB/s':>7}{'x eager':>9}{'asked':>7}"]
    for r in rows:
        missed = "" if r.reached else "  missed"
        lines.append(f"{r.side.spec:16}{r.side.name:22}{r.gigabytes_per_second:7.2f}{r.ratio:9.1f}{ASKED:7.1f}{missed}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """0 where everything asked for was reached."""
    parser = argparse.ArgumentParser(description="fused kernels around exchanges against eager torch")
    parser.add_argument("--elements", type=int, default=25_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args(arguments)
    rows = measure(chosen.elements, chosen.rounds)
    print(table(rows))
    return 0 if all(row.reached for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
