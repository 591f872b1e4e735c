"""A plan's directory: written whole or not at all, and believed only when whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import msgspec

import relaxc
from relaxc import manifest
from relaxc.build import listing
from relaxc.build.compiler import lacking
from relaxc.build.kernels import LIBRARY, SOURCE, build_kernels
from relaxc.build.report import Report
from relaxc.errors import BuildError
from relaxc.manifest import Manifest

MANIFEST = "manifest.json"
LISTING = "relaxc-plan.json"
"""Lists the plan's files. Its presence is what makes a folder a plan, so its name must be nobody else's."""
AGAIN = "compile it again with `relaxc compile SPEC -o {folder}`"


def write_plan(folder: Path, files: Mapping[str, bytes | Path]) -> None:
    """Write the plan `files` (relative posix path -> content, or a file to copy; MANIFEST among them) as `folder`.

    It replaces an older plan. Whoever reads `folder` meanwhile sees the old plan, the new one or none, never a mixture.
    Raises BuildError: RX0515 where `folder` holds something else, RX0504 where it cannot be written.
    """
    target = folder.resolve()
    _refuse_other(target, folder)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(target) as temporary:
            for name, content in files.items():
                _put(temporary, name, content)
            listing.write(temporary, LISTING)
            _swap(temporary, target)
    except OSError as error:
        message = f"the plan {folder} cannot be written: {error.strerror or error}"
        raise BuildError("RX0504", message, "give a folder with -o that you can write") from error


def read_plan(folder: Path) -> Manifest:
    """The manifest of the plan in `folder`, every listed file of which is there and unaltered.

    Raises BuildError: RX0510 absent, RX0511 no plan, RX0512 cut short or altered, RX0513 written by another relaxc.
    """
    again = AGAIN.format(folder=folder)
    if not folder.exists():
        raise BuildError("RX0510", f"there is no plan {folder}", again)
    if not (folder / LISTING).is_file():
        message = f"{folder} is not a plan: it has no {LISTING}"
        raise BuildError("RX0511", message, f"name a plan's directory, or {again}")
    written = listing.read(folder, LISTING)
    if written is None or MANIFEST not in written.files:
        raise BuildError("RX0512", f"the plan {folder} is damaged: its {LISTING} is cut short", again)
    if damaged := listing.first_damaged(folder, written):
        how = "altered or cut short" if (folder / damaged).exists() else "missing"
        raise BuildError("RX0512", f"the plan {folder} is damaged: its {damaged} is {how}", again)
    return _decode(folder, (folder / MANIFEST).read_bytes(), again)


def usable_library(folder: Path, plan: Manifest, report: Report | None = None) -> Path:
    """The plan's library where this processor has all that it uses, else one built from the plan's source.

    Raises BuildError RX0514 where it would have to be rebuilt and there is no compiler; else as `build_kernels`.
    """
    missing = lacking(plan.cpu)
    if not missing and (folder / LIBRARY).is_file():
        return folder / LIBRARY
    try:
        return build_kernels((folder / SOURCE).read_text(), report)
    except BuildError as error:
        if error.code == "RX0501" and not plan.cpu:
            message = f"the plan {folder} has kernels for GPUs only, and there is no C++ compiler here to make a CPU's"
            help = "install a C++ compiler here, or compile the plan with --target cpu,cuda"
            raise BuildError("RX0514", message, help) from error
        if error.code != "RX0501" or not missing:
            raise
        message = f"the plan {folder} was compiled for another processor: this one has no {', '.join(missing)}"
        help = "install a C++ compiler here, or compile the plan on such a machine"
        raise BuildError("RX0514", message, help) from error


# --- reading


def _decode(folder: Path, raw: bytes, again: str) -> Manifest:
    """Versions first: the manifest of another version need not have this one's fields."""
    try:
        head = msgspec.json.decode(raw, type=_Head)
        _refuse_version(folder, head, again)
        return manifest.decode(raw)
    except msgspec.DecodeError as error:
        raise BuildError("RX0513", f"the manifest of {folder} is not one of this relaxc: {error}", again) from error


class _Head(msgspec.Struct, frozen=True):
    format: int
    relaxc: str


def _refuse_version(folder: Path, head: _Head, again: str) -> None:
    if head.format != manifest.FORMAT:
        reads = f"relaxc {relaxc.__version__} reads format {manifest.FORMAT}"
        message = f"the plan {folder} has format {head.format}, and {reads}"
        raise BuildError("RX0513", message, again)
    if series(head.relaxc) != series(relaxc.__version__):
        message = f"the plan {folder} was made by relaxc {head.relaxc}, and this is {relaxc.__version__}"
        raise BuildError("RX0513", message, again)


def series(version: str) -> tuple[str, ...]:
    """What two versions share when one reads the other's plans: 1.x, and before that 0.3.x."""
    parts = version.split(".")
    return tuple(parts[:2] if parts[0] == "0" else parts[:1])


# --- writing


def _refuse_other(target: Path, shown: Path) -> None:
    if target.is_dir():
        if not any(target.iterdir()):
            return
        if (target / LISTING).is_file():
            _refuse_foreign(target, shown)
            return
        message = f"{shown} is not empty and is not a plan"
    elif target.exists():
        message = f"{shown} is a file"
    else:
        return
    raise BuildError("RX0515", message, "give another folder with -o, or remove this one yourself")


def _refuse_foreign(target: Path, shown: Path) -> None:
    """A plan's folder is replaced as a whole: a file that is not the plan's would be lost."""
    written = listing.read(target, LISTING)
    own = {LISTING, *(written.files if written is not None else ())}
    foreign = sorted(path.name for path in target.iterdir() if path.name not in own)
    if foreign and written is not None:
        raise BuildError(
            "RX0515",
            f"{shown} holds {foreign[0]}, which is not the plan's",
            "give another folder with -o, or move it away",
        )


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    """A sibling of `target`, so that a rename publishes it; gone afterwards unless it was renamed."""
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        folder.chmod(0o777 & ~_umask())  # mkdtemp's is private, and a plan is for every worker
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _put(folder: Path, name: str, content: bytes | Path) -> None:
    relative = PurePosixPath(name)
    assert not relative.is_absolute() and ".." not in relative.parts, name
    path = folder / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    else:
        path.write_bytes(content)


def _swap(new: Path, target: Path) -> None:
    """A directory that is not empty cannot be renamed over, so the old plan steps aside first, and back if need be."""
    if not target.exists():
        new.rename(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    try:
        target.rename(aside)  # onto the empty folder
    except OSError:
        aside.rmdir()
        raise
    try:
        new.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)
