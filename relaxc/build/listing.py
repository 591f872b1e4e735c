"""A listing of the files in a folder, written last: a folder that it does not describe was cut short."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec


class File(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


class Listing(msgspec.Struct, frozen=True):
    """Relative posix path of each file -> what it holds."""

    files: dict[str, File]


def write(folder: Path, name: str) -> None:
    """List every file of `folder` in its file `name`, all of it on disk when this returns."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p != folder / name)
    listing = Listing({p.relative_to(folder).as_posix(): _describe(p) for p in paths})
    (folder / name).write_bytes(msgspec.json.format(msgspec.json.encode(listing), indent=2))
    for path in [*paths, folder / name]:
        _sync(path)


def read(folder: Path, name: str) -> Listing | None:
    """None where there is no listing, or a torn one."""
    try:
        return msgspec.json.decode((folder / name).read_bytes(), type=Listing)
    except (OSError, msgspec.DecodeError):
        return None


def first_damaged(folder: Path, listing: Listing) -> str | None:
    """The first file that is absent or differs from the listing."""
    return next((name for name, file in listing.files.items() if not _matches(folder / name, file)), None)


def intact(folder: Path, name: str) -> bool:
    listing = read(folder, name)
    return listing is not None and first_damaged(folder, listing) is None


def _describe(path: Path) -> File:
    return File(path.stat().st_size, _sha256(path))


def _matches(path: Path, file: File) -> bool:
    try:
        return path.stat().st_size == file.bytes and _sha256(path) == file.sha256
    except OSError:
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
