"""`relaxc explain`: a program's facts as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxc.program import facts
from relaxc.program.ir import Body, Program, exchanges
from relaxc.program.printer import print_program, print_selector

KEPT = {
    "none": "nothing of what codes lose is kept",
    "worker": "each worker adds what its own codes lost next time",
    "both": "each encoder, owners included, adds what its codes lost next time",
}


def explain(program: Program, workers: Sequence[int]) -> str:
    """The program with every default filled in, then what each statement means for these numbers of workers."""
    parts = [print_program(program).rstrip()]
    parts += ["\n".join(_body(body, number, workers)) for number, body in enumerate(program.bodies)]
    return "\n\n".join(parts) + "\n"


def _body(body: Body, number: int, workers: Sequence[int]) -> Iterator[str]:
    yield f"body{number}: {print_selector(body.selector)}"
    for exchange in exchanges(body.statements):
        for line in facts.story(exchange):
            yield f"  - {line}"
        if exchange.codec is not None:
            yield f"  - {KEPT[exchange.feedback]}"
    late = facts.staleness(body)
    yield f"  staleness: {_staleness(late)}"
    agree = facts.replicas_agree(body)
    yield f"  replicas: {'identical on all workers' if agree else 'differ between workers'}"
    yield from _table(body, workers)


def _staleness(late: int) -> str:
    if late == 0:
        return "0, each gradient is applied in its own iteration"
    each = "iteration" if late == 1 else "iterations"
    return f"{late}, gradients are applied {late} {each} after they were taken; nothing lands in the first {late}"


def _table(body: Body, workers: Sequence[int]) -> Iterator[str]:
    yield "  per million f32 parameters and worker:"
    yield "    workers   sent per iteration   of f32   memory   roundings"
    for count in workers:
        (exchange,) = exchanges(body.statements)
        sent = facts.sent_bytes(exchange, count)
        plain = round(2 * (count - 1) / count * facts.MILLION * facts.REAL_BYTES)
        share = f"{100 * sent / plain:.0f} %" if plain else "-"
        kept = megabytes(facts.memory_bytes(body, count).total)
        yield f"    {count:>7}   {megabytes(sent):>18}   {share:>6}   {kept:>6}   {facts.roundings(exchange, count):>9}"


def megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count else "0"
