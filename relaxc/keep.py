"""Bytes kept on disk that can be made again: a file is whole or it is as if absent."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

DIGEST = hashlib.sha256().digest_size


def recall(path: Path) -> bytes | None:
    """What `remember` wrote; None where that is absent, unreadable, cut short or altered."""
    try:
        raw = path.read_bytes()
    except (OSError, RuntimeError):  # RuntimeError: a home folder that can't be determined
        return None
    digest, body = raw[:DIGEST], raw[DIGEST:]
    return body if hashlib.sha256(body).digest() == digest else None


def remember(path: Path, body: bytes) -> bool:
    """Write whole or not at all, whoever else writes at the same time. False where the folder can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    except OSError:
        return False
    return _write(handle, temporary, path, hashlib.sha256(body).digest() + body)


def _write(handle: int, temporary: str, path: Path, raw: bytes) -> bool:
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
        Path(temporary).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        return False
    return True
