"""A spec of 40 statements for a model of 10,000 parameters: check, lower, plan, schedule, beyond importing relaxc."""

import argparse
import statistics
import sys
import time

from on_hosts import Figure, show

from relaxc import pipeline
from relaxc.emit.plan import emit
from relaxc.language.source import Source
from relaxc.schedule.schedule import make_schedule
from relaxc.wire.parameters import Parameter

GROUPS, PARAMETERS, WORKERS, ROUNDS = 40, 10_000, 8, 5
KNOBS = (
    "gradients {{ compress = minmax(4, block = {block}) }}",
    "gradients {{ compress = 8bit, delay = 1, feedback = worker }}",
    "weights {{ topology = torus, compress = onebit({block}) }}",
    "with local_sgd {{ period = {block} }}",
)


def spec() -> str:
    lines = []
    for group in range(GROUPS):
        what, _, rest = KNOBS[group % len(KNOBS)].partition(" {{")
        clauses = "{" + rest.format(block=64 + 8 * group).rstrip("}") + "}"
        lines.append(f'relax {what} for "group{group}.*" {clauses}')
    return "\n".join(lines) + "\n"


def parameters() -> tuple[Parameter, ...]:
    return tuple(Parameter(n, f"group{n % GROUPS}.layer{n}.weight", (64, 48), "f32") for n in range(PARAMETERS))


def seconds(text: str, model: tuple[Parameter, ...]) -> float:
    start = time.perf_counter()
    typed = pipeline.to_typed(pipeline.to_spec(Source("large.relax", text), {}))
    sources = emit(typed.program, pipeline.to_paths(typed.program), typed.facts, "large", model)
    make_schedule(sources.manifest, model, WORKERS, 0)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    text, model = spec(), parameters()
    taken = [seconds(text, model) for _ in range(ROUNDS)]
    first = Figure("10,000 parameters in 40 groups: seconds, the first time", 2.0, taken[0], True)
    return show([first, Figure("  again", 2.0, statistics.median(taken[1:]), True)], arguments.json)


if __name__ == "__main__":
    sys.exit(main())
