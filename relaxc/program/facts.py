"""What can be said of a program without running it: bytes, memory, staleness, agreement. Pure Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaxc.program.ir import After, Assign, Body, Carried, Let, Mean, Step
from relaxc.wire.routes import ROUTES

MILLION = 1_000_000
REAL_BYTES = 4


def exchanges(body: Body) -> Iterator[Mean | Carried]:
    for statement in body.statements:
        if isinstance(statement, (Let, Assign)) and isinstance(statement.value, (Mean, Carried)):
            yield statement.value


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
    owners."""
    if workers == 1:
        return 0
    whole = elements * REAL_BYTES if exchange.codec is None else exchange.codec.layout.bytes_of(elements, REAL_BYTES)
    return round(2 * (workers - 1) / workers * whole)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes per worker for `elements` f32 parameters: residuals, and results that have not landed yet."""

    residuals: int
    late: int


def memory_bytes(body: Body, workers: int, elements: int = MILLION) -> Memory:
    residuals = 0
    for exchange in exchanges(body):
        if exchange.codec is None:
            continue
        kernels = ROUTES[exchange.route].kernels(exchange.feedback)
        residuals += elements * REAL_BYTES * any(k.residual and not k.owner for k in kernels)
        residuals += elements * REAL_BYTES // workers * any(k.residual and k.owner for k in kernels)
    late = staleness(body)
    return Memory(residuals, elements * REAL_BYTES * (late + 1) if late else 0)


def roundings(exchange: Mean | Carried, workers: int) -> int:
    return 0 if exchange.codec is None else ROUTES[exchange.route].roundings(workers)


def story(exchange: Mean | Carried) -> tuple[str, ...]:
    """What is sent when and to whom, in sentences."""
    if exchange.codec is None:
        on_ring = " (the route is the backend's own choice)" if exchange.route == "ring" else ""
        return (f"each bucket is all-reduced as soon as backward has made its gradients{on_ring}",)
    code = exchange.codec.text
    when = "as soon as backward has made a bucket's gradients, each worker"
    if exchange.route == "ring":
        return (
            f"{when} encodes one chunk ({code}) and sends it to the next rank",
            "each rank on the way decodes it, adds its own chunk, encodes the sum again and sends it on",
            "the last one, the chunk's owner, divides by the number of workers and encodes the mean",
            "the encoded mean goes once round the ring; every worker decodes the same bytes",
        )
    return (
        f"{when} encodes it ({code}) and sends each owner the chunk that it owns",
        "each owner decodes and sums its chunk in rank order, divides, and encodes the mean again",
        "each owner sends the encoded mean to every worker; every worker decodes the same bytes",
    )
