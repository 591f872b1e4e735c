"""Text that is on every machine with Python: the source of its own standard library."""

import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

VOCABULARY = "\n" + "".join(map(chr, range(32, 127)))
"""Newline and printable ASCII; what else occurs is left out, tabs become spaces."""
HELD_OUT_EVERY = 10
_CODE = {ord(c): i for i, c in enumerate(VOCABULARY)}
_TABLE = bytes(_CODE.get(b, 0) for b in range(256))
_DROP = bytes(b for b in range(256) if b not in _CODE)


def files(folder: Path) -> list[Path]:
    """The modules at the top of the library, by name, so that every machine with this Python reads the same text."""
    return sorted(folder.glob("*.py"), key=lambda path: path.name)


def split(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Training and held-out files. By file: a held-out text never has its continuation among the training ones."""
    held_out = list(paths[::HELD_OUT_EVERY])
    return [path for path in paths if path not in held_out], held_out


def encode(text: bytes) -> bytes:
    """One byte a character: its place in the vocabulary."""
    return text.replace(b"\r\n", b"\n").replace(b"\t", b"    ").translate(_TABLE, _DROP)


def read(paths: Iterable[Path]) -> bytes:
    return b"".join(encode(path.read_bytes()) for path in paths)


def standard_library() -> tuple[bytes, bytes]:
    """Training and held-out text, encoded."""
    train, held_out = split(files(Path(sysconfig.get_paths()["stdlib"])))
    return read(train), read(held_out)
