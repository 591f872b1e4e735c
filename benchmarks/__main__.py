"""`python -m benchmarks`: every benchmark, one after the other; status 1 where a figure was not reached.

Ratios in one interleaved run, medians. Run it on a quiet machine: shared cores move them by a tenth.
"""

import subprocess
import sys
from pathlib import Path

SCRIPTS = (
    "kernels",
    "fragments",
    "unrelaxed",
    "exchange",
    "overlap",
    "pair_average",
    "four_hosts",
    "slow_worker",
    "transports",
    "commands",
    "large",
    "partition",
    "predicted",
    "auto",
)


def main() -> int:
    folder = Path(__file__).parent
    missed = []
    for name in SCRIPTS:
        print(f"--- {name}", flush=True)
        if subprocess.run([sys.executable, str(folder / f"{name}.py")], cwd=folder, check=False).returncode:
            missed.append(name)
    print(f"figures missed in: {', '.join(missed)}" if missed else "every figure was reached")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
