"""What asynchronous exchanges did, as a file of each worker: a line of JSON for each launch, landing and drop, and for
each that was settled, which is a landing between two iterations, before iteration t.

With it the interpreter goes the same way again (program/record.py): who met whom, and when it landed, is all that the
program does not say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from relaxc.errors import BuildError

if TYPE_CHECKING:
    from relaxc.attach.flight import Flight
    from relaxc.attach.lanes import Lane


class Recorder:
    """Writes `PATH/rankR.jsonl`, each line as it comes."""

    def __init__(self, path: Path, rank: int) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._file = (path / f"rank{rank}.jsonl").open("w", encoding="utf-8", buffering=1)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise BuildError("RX0520", f"can't write a record to {path}: {why}", "give another folder") from error

    def write(self, event: str, lane: Lane, flight: Flight, t: int) -> None:
        line = {
            "t": t, "body": lane.body, "parameter": lane.parameter, "block": lane.block, "event": event,
            "round": flight.number, "peers": [list(peer) for peer in flight.peers],
        }  # fmt: skip
        self._file.write(json.dumps(line) + "\n")

    def introduce(self, lane: Lane) -> None:
        """Tell which parameters go together, under the number of the first."""
        line = {
            "t": 0, "body": lane.body, "parameter": lane.parameter, "block": lane.block, "event": "cohort",
            "parameters": sorted(p.number for site in lane.sites for p in site.members),
        }  # fmt: skip
        self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        self._file.close()
