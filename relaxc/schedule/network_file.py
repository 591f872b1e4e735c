"""cluster.json: a network as `relaxc probe` measured it. Times in seconds, sizes in bytes and elements."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from relaxc.errors import ModelError
from relaxc.schedule.network import Coding, Line, Network
from relaxc.units import wrong_workers
from relaxc.usage import UsageError

FORMAT = 1
AGAIN = "measure again: torchrun ... -m relaxc probe -o {path}"
MOST_FIXED, MOST_EACH = 60.0, 1.0
"""Seconds of a line: a message that takes longer, or a byte, is a mistake in the file."""


class LineFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fixed: float
    each: float


class CodingFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    encode: LineFile
    decode: LineFile


class PairFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sender: int
    receiver: int
    link: LineFile


class NetworkFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """network.Network as JSON; of pairs and codings, each once."""

    link: LineFile
    format: int = 0
    workers: int | None = None
    per_machine: int = 1
    inner: LineFile | None = None
    pairs: tuple[PairFile, ...] = ()
    reduce: LineFile | None = None
    codings: dict[str, CodingFile] = {}
    wire: LineFile = LineFile(0.0, 0.0)


def encode_network(network: Network) -> bytes:
    pairs = tuple(PairFile(s, r, _written(line)) for (s, r), line in sorted(network.pairs.items()))
    codings = {text: CodingFile(_written(c.encode), _written(c.decode)) for text, c in sorted(network.codings.items())}
    inner = None if network.inner is None else _written(network.inner)
    reduce = None if network.reduce is None else _written(network.reduce)
    file = NetworkFile(
        _written(network.link), FORMAT, network.workers, network.per_machine, inner, pairs, reduce, codings,
        _written(network.wire),
    )  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"


def write_network(path: Path, network: Network) -> None:
    """Whole or not at all. Raise UsageError where it can't be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            temporary.write_bytes(encode_network(network))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"can't write {str(path)!r}: {(error.strerror or str(error)).lower()}") from error


def read_network(path: Path) -> Network:
    """Raise ModelError (RX0441) where there is none, or what is there can't be one."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ModelError("RX0441", f"can't read the network {path}: {reason}", AGAIN.format(path=path)) from error
    return decode_network(raw, path)


def decode_network(raw: bytes, path: Path) -> Network:
    try:
        file = msgspec.json.decode(raw, type=NetworkFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _wrong(raw, path, str(error).lower()) from error
    if file.format != FORMAT:
        raise _wrong(raw, path, f"its format is {file.format}, not {FORMAT}", "format")
    for what, key in _absurd(file):
        raise _wrong(raw, path, what, key)
    pairs = {(p.sender, p.receiver): _line(p.link) for p in file.pairs}
    codings = {text: Coding(_line(c.encode), _line(c.decode)) for text, c in file.codings.items()}
    inner = None if file.inner is None else _line(file.inner)
    reduce = None if file.reduce is None else _line(file.reduce)
    return Network(
        _line(file.link), file.workers, file.per_machine, inner, pairs, reduce, codings, str(path), _line(file.wire)
    )


def require_workers(network: Network, workers: int) -> None:
    """Raise ModelError (RX0442) where `network` is of another number of workers, or has machines that they don't
    fill."""
    if (absurd := wrong_workers(workers, network.per_machine)) is not None:
        raise ModelError("RX0442", absurd, "give a whole number from 1 up, of which per_machine is a divisor")
    if network.workers is None or network.workers == workers:
        return
    where = network.source or "the network"
    path = Path(where)
    if path.is_file():
        where += _at(path.read_bytes(), "workers")
    raise ModelError(
        "RX0442",
        f"{where} is of {network.workers} workers, not of {workers}",
        f"ask for --workers {network.workers}, or give the network of {workers} workers",
    )


def _absurd(file: NetworkFile) -> Iterator[tuple[str, str]]:
    if (what := wrong_workers(file.workers, file.per_machine)) is not None:
        yield what, "per_machine" if file.workers else "workers"
    for key, line in _lines(file):
        if not (0 <= line.fixed <= MOST_FIXED and 0 <= line.each <= MOST_EACH):
            yield f"no {key} costs {line.fixed:g} s and {line.each:g} s for each", key.split()[0]
    if file.link.each == 0:
        yield "a link on which bytes take no time", "link"
    count = math.inf if file.workers is None else file.workers
    for pair in file.pairs:
        if (
            pair.sender == pair.receiver
            or not 0 <= min(pair.sender, pair.receiver) <= max(pair.sender, pair.receiver) < count
        ):
            yield f"there is no pair of workers {pair.sender} and {pair.receiver}", "pairs"


def _lines(file: NetworkFile) -> Iterator[tuple[str, LineFile]]:
    yield "link", file.link
    yield "wire", file.wire
    for key, line in (("inner", file.inner), ("reduce", file.reduce)):
        if line is not None:
            yield key, line
    for pair in file.pairs:
        yield "pairs", pair.link
    for coding in file.codings.values():
        yield "codings", coding.encode
        yield "codings", coding.decode


def _wrong(raw: bytes, path: Path, what: str, key: str = "") -> ModelError:
    return ModelError("RX0441", f"{path}{_at(raw, key)} is not a network: {what}", AGAIN.format(path=path))


def _at(raw: bytes, key: str) -> str:
    """`:3`, the first line with that key."""
    lines = raw.decode(errors="replace").splitlines()
    found = [n for n, line in enumerate(lines, 1) if key and f'"{key}"' in line]
    return f":{found[0]}" if found else ""


def _written(line: Line) -> LineFile:
    return LineFile(line.fixed, line.each)


def _line(file: LineFile) -> Line:
    return Line(file.fixed, file.each)
