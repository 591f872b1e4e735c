"""Built things, each made once: a folder per key that is either whole or not believed.

    CACHE/KIND/KEY/            an entry: what was built, and SEAL, which lists it
    CACHE/KIND/.KEY.lock       held while KEY is built
    CACHE/KIND/.KEY.XXXXXXXX/  a build that runs, or was killed; whoever next holds the lock removes it
    CACHE/logs/KEY.log         what the compiler said when a build of KEY failed

A key names everything that the content depends on, so an entry never goes stale: another torch, compiler or processor
has other keys. The whole cache may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from relaxc.build import listing
from relaxc.build.report import Report
from relaxc.errors import BuildError
from relaxc.resources import cache_folder

SEAL = "entry.json"
PATIENCE = 3.0
"""Seconds after which a wait for another builder is mentioned."""
DEADLINE = 1800.0
"""Seconds after which such a wait is given up."""
CHOOSE = "set RELAXC_CACHE to a folder on a local disk that you can write"

Make = Callable[[Path], None]
"""Fills the folder that it is given."""


def key_of(parts: Iterable[str | bytes]) -> str:
    """A short name for all of `parts`; their borders count."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()[:24]


def lookup(kind: str, key: str) -> Path | None:
    """The whole entry of `key`, if any cache has one; one that is cut short or damaged counts as absent."""
    for root in _believed():
        entry = root / kind / key
        if listing.intact(entry, SEAL):
            return entry
    return None


def lookup_any(kind: str, prefix: str) -> Path | None:
    """Some whole entry whose key starts with `prefix`."""
    entries = [entry for root in _believed() for entry in sorted((root / kind).glob(f"{prefix}*"))]
    return next((entry for entry in entries if listing.intact(entry, SEAL)), None)


def obtain(kind: str, key: str, make: Make, *, what: str, report: Report) -> Path:
    """The entry of `key`, built by `make` where no cache has it. `what` names it in lines and errors.

    Of several processes that ask at once one builds and the others wait. Raises BuildError: RX0504 where no cache can
    be written, RX0505 where another process holds the lock for ever, and whatever `make` raises.
    """
    if found := lookup(kind, key):
        return found
    root = writable_root(report)
    try:
        return _build(root / kind, key, make, what, report)
    except OSError as error:
        raise BuildError("RX0504", f"the cache {root} cannot be written: {error.strerror or error}", CHOOSE) from error


def log_path(folder: Path, key: str) -> Path:
    """Where the log of `key` goes, which `make` builds in `folder`: outside it, since a failed build leaves nothing."""
    return folder.parents[1] / "logs" / f"{key}.log"


def _build(shelf: Path, key: str, make: Make, what: str, report: Report) -> Path:
    shelf.mkdir(parents=True, exist_ok=True)
    entry = shelf / key
    with _locked(shelf / f".{key}.lock", what, report):
        if listing.intact(entry, SEAL):  # built while this process waited
            return entry
        _clear(shelf, key)
        with _temporary(shelf, key) as folder:
            make(folder)
            listing.write(folder, SEAL)
            folder.rename(entry)
    return entry


def _clear(shelf: Path, key: str) -> None:
    """Remove what a killed build left and an entry that is not whole. The lock is held: nobody else is at it."""
    for path in [shelf / key, *shelf.glob(f".{key}.*")]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != f".{key}.lock":
            path.unlink(missing_ok=True)


@contextmanager
def _temporary(shelf: Path, key: str) -> Iterator[Path]:
    """A folder beside the entry, so that a rename publishes it; gone afterwards unless it was renamed."""
    folder = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=shelf))
    try:
        folder.chmod(stat.S_IMODE(shelf.stat().st_mode))  # mkdtemp's is private, and a cache may be shared
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(path: Path, what: str, report: Report) -> Iterator[None]:
    from filelock import FileLock, Timeout  # only a miss pays for it

    lock = FileLock(path)
    try:
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout:
            report(f"waiting for another process that builds {what}")
            lock.acquire(timeout=DEADLINE)
    except Timeout:
        message = f"another process has been building {what} for {DEADLINE / 60:.0f} minutes"
        raise BuildError("RX0505", message, f"end the process that holds {path}, then try again") from None
    except NotImplementedError:
        raise BuildError("RX0504", f"the disk of {path.parent} cannot lock files", CHOOSE) from None
    try:
        yield
    finally:
        lock.release()


# --- where


def writable_root(report: Report) -> Path:
    """The user's cache; where that cannot be written a temporary folder of this user's own, and one line that says so.

    Raises BuildError RX0504 where neither can.
    """
    first, second = _roots()
    reason = _refusal(first)
    if reason is None:
        return first
    if _refusal(second) is not None or not _private(second):
        raise BuildError("RX0504", f"neither {first} nor {second} can be written: {reason}", CHOOSE)
    report(f"the cache {first} cannot be written ({reason}): using {second}")
    return second


def _roots() -> tuple[Path, Path]:
    """Where entries are looked for, and written if possible, in this order."""
    fallback = fallback_root()
    try:
        chosen = cache_folder()
    except RuntimeError:  # no home
        return fallback, fallback
    # Without a home, "~" may stay in the path, and a cache in the working directory is nobody's wish.
    homeless = chosen.parts[:1] == ("~",) and not os.environ.get("RELAXC_CACHE")
    return (fallback if homeless else chosen.absolute()), fallback


def _believed() -> list[Path]:
    """The roots whose entries may be loaded: a temporary folder counts only where nobody else can write it."""
    first, second = _roots()
    return [root for root in dict.fromkeys((first, second)) if root != fallback_root() or _private(root)]


def fallback_root() -> Path:
    return Path(tempfile.gettempdir()) / f"relaxc-{os.getuid()}"


def _refusal(root: Path) -> str | None:
    """Why `root` cannot be written, made where it is absent; None where it can."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _private(root: Path) -> bool:
    """Whether only this user can write `root`: libraries are loaded from it, and anyone may create names in /tmp."""
    try:
        status = root.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
