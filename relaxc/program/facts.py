"""What can be said of a program without running it: bytes, memory, staleness, agreement. Pure Python."""

from __future__ import annotations

from dataclasses import dataclass

from relaxc.program.ir import After, Assign, Body, Carried, Codec, Let, Mean, Step, exchanges
from relaxc.wire.routes import ROUTES

MILLION = 1_000_000
REAL_BYTES = 4


def staleness(body: Body) -> int:
    """Iterations between the gradient and its use."""
    return max((s.delay for s in body.statements if isinstance(s, After)), default=0)


def replicas_agree(body: Body) -> bool:
    """By the typing rules of agreement: the weight stays replicated where the gradient that `step` uses is a mean."""
    replicated = {"grad": False}

    def visit(statements: tuple[object, ...]) -> bool:
        for statement in statements:
            match statement:
                case Let(name=name, value=value) | Assign(name=name, value=value):
                    reads = getattr(value, "name", None)
                    replicated[name] = isinstance(value, (Mean, Carried)) or replicated.get(str(reads), False)
                case After(body=inner):
                    visit(inner)
                case Step():
                    return replicated["grad"]
        return True

    return visit(body.statements)


def sent_bytes(exchange: Mean | Carried, workers: int, elements: int = MILLION) -> int:
    """Payload that a worker sends per iteration for f32 parameters of `elements` in all, spread evenly over the
    owners. An all-reduce sends 2 (n - 1) / n of its buffer (ring)."""
    if exchange.codec is None:
        return round(2 * (workers - 1) / workers * elements * REAL_BYTES)
    return round(ROUTES[exchange.route].sends(workers) * _chunk_bytes(exchange.codec, workers, elements))


def _chunk_bytes(codec: Codec, workers: int, elements: int) -> float:
    return codec.layout.bytes_of(elements, REAL_BYTES) / workers


@dataclass(frozen=True, slots=True)
class MemoryBytes:
    """Per worker, for `elements` f32 parameters: residuals, messages, and results that have not landed yet (an
    uncompressed bucket's flat buffer is where `.grad` lives, so it counts only with a delay)."""

    residuals: int
    messages: int
    late: int

    @property
    def total(self) -> int:
        return self.residuals + self.messages + self.late


def memory_bytes(body: Body, workers: int, elements: int = MILLION) -> MemoryBytes:
    residuals = messages = 0
    for exchange in exchanges(body.statements):
        if exchange.codec is None:
            continue
        route = ROUTES[exchange.route]
        kernels = route.kernels(exchange.feedback)
        messages += round(route.buffers(workers) * _chunk_bytes(exchange.codec, workers, elements))
        residuals += elements * REAL_BYTES * any(k.residual and not k.owner for k in kernels)
        residuals += elements * REAL_BYTES // workers * any(k.residual and k.owner for k in kernels)
    late = staleness(body)
    return MemoryBytes(residuals, messages, elements * REAL_BYTES * (late + 1) if late else 0)


def roundings(exchange: Mean | Carried, workers: int) -> int:
    return 0 if exchange.codec is None else ROUTES[exchange.route].roundings(workers)


def story(exchange: Mean | Carried) -> tuple[str, ...]:
    """What is sent when and to whom, in sentences."""
    if exchange.codec is None:
        return ("each bucket is all-reduced as soon as backward has made its gradients",)
    return tuple(line.format(code=exchange.codec.text) for line in ROUTES[exchange.route].story)
