"""A timeline as a file: what `relaxed.profile` writes, and `relaxc report --measured` reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from relaxc.errors import BuildError
from relaxc.schedule.timeline import LANES, Timeline

FORMAT = 1


@dataclass(frozen=True, slots=True)
class TimelineFile:
    """`kind` is measured or predicted. `hash` is the plan's, of `workers` workers and seen by worker `rank`."""

    timeline: Timeline
    kind: str
    spec: str
    hash: str
    workers: int
    rank: int
    iterations: int
    """How many it is a median of."""
    format: int = FORMAT


def write_timeline(path: Path, file: TimelineFile) -> None:
    """Raise BuildError (RX0520) where it can't be written."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(file), indent=1))
    except OSError as error:
        raise BuildError("RX0520", f"can't write {path}: {(error.strerror or str(error)).lower()}") from error


def read_timeline(path: Path) -> TimelineFile:
    """Raise BuildError (RX0521) where it is no timeline."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=TimelineFile)
    except OSError as error:
        raise BuildError("RX0521", f"can't read {path}: {(error.strerror or str(error)).lower()}") from error
    except msgspec.DecodeError as error:
        raise BuildError(
            "RX0521", f"{path} is no timeline: {str(error).lower()}",
            "give a file that `with relaxed.profile(path):` has written",
        ) from error  # fmt: skip
    if found.format != FORMAT:
        raise BuildError("RX0521", f"{path} has format {found.format}, not {FORMAT}", "measure again with this relaxc")
    strange = next((s.lane for s in found.timeline.spans if s.lane not in LANES), None)
    if strange is not None:
        raise BuildError("RX0521", f"{path} has a lane {strange!r}", f"lanes are {', '.join(LANES)}")
    return found
