"""For so many seconds: texts made by the grammar and real specs with something changed, all of which the compiler must
answer with a program or with diagnostics. Status 1, and the text, where it does anything else.

    python -m benchmarks.fuzz --seconds 300 --seed 1
"""

import argparse
import random
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from fuzzing import library_texts, mutated, survives, written

PATIENCE = 10.0
"""Seconds that one text may take."""


def text_of(draw: random.Random, library: list[str]) -> str:
    kind = draw.random()
    if kind < 0.4:
        return written(draw)
    return mutated(written(draw) if kind < 0.6 else draw.choice(library), draw)


def attempt(text: str) -> bool | None:
    """Whether `text` is a spec; None after a failure, which is shown."""
    start = time.monotonic()
    try:
        made = survives(text)
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        traceback.print_exc()
        print(f"--- the text\n{text!r}")
        return None
    if time.monotonic() - start > PATIENCE:
        print(f"--- took {time.monotonic() - start:.0f} s\n{text!r}")
        return None
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw, library = random.Random(options.seed), library_texts()
    end, tried, specs, failures = time.monotonic() + options.seconds, 0, 0, 0
    while time.monotonic() < end:
        made = attempt(text_of(draw, library))
        tried += 1
        specs += made is True
        failures += made is None
    print(f"{tried} texts in {options.seconds:g} s, {specs} of them specs, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
