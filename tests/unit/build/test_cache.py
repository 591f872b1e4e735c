from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from relaxc.build import cache
from relaxc.errors import BuildError


def make(folder: Path) -> None:
    (folder / "thing").write_text("whole")


def refuse(folder: Path) -> None:
    raise AssertionError("built again")


def obtain(
    key: str = "k", build: Callable[[Path], None] = make, report: Callable[[str], None] = lambda line: None
) -> Path:
    return cache.obtain("things", key, build, what="a thing", report=report)


def test_built_once_and_found_again(root: Path) -> None:
    entry = obtain()
    assert entry == root / "things" / "k"
    assert obtain(build=refuse) == entry
    assert cache.lookup("things", "k") == entry
    assert cache.lookup("things", "other") is None
    assert cache.lookup_any("things", "") == entry


def test_borders_of_parts_count() -> None:
    assert cache.key_of(["ab", "c"]) != cache.key_of(["a", "bc"])
    assert cache.key_of(["ab"]) == cache.key_of([b"ab"])


@pytest.mark.parametrize("damage", ["truncate", "alter", "remove", "unseal", "tear the seal", "a file instead"])
def test_a_damaged_entry_is_built_again(root: Path, damage: str) -> None:
    entry = obtain()
    thing, seal = entry / "thing", entry / cache.SEAL
    match damage:
        case "truncate":
            thing.write_text("who")
        case "alter":
            thing.write_text("whale")
        case "remove":
            thing.unlink()
        case "unseal":
            seal.unlink()
        case "tear the seal":
            seal.write_bytes(seal.read_bytes()[:20])
        case "a file instead":
            thing.unlink()
            seal.unlink()
            entry.rmdir()
            entry.write_text("")
    assert cache.lookup("things", "k") is None
    assert (obtain() / "thing").read_text() == "whole"


def test_a_failed_build_leaves_nothing(root: Path) -> None:
    def fail(folder: Path) -> None:
        make(folder)
        raise BuildError("RX0503", "does not compile")

    with pytest.raises(BuildError, match="does not compile"):
        obtain(build=fail)
    assert [p.name for p in (root / "things").iterdir()] == [".k.lock"]
    assert (obtain() / "thing").read_text() == "whole"


def test_a_full_disk_is_one_sentence(root: Path) -> None:
    def fill(folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(BuildError, match="No space left on device") as caught:
        obtain(build=fill)
    assert caught.value.code == "RX0504"
    assert "RELAXC_CACHE" in (caught.value.help or "")


# --- other processes

BUILDER = """
import sys, time
from pathlib import Path
from relaxc.build import cache

cache.PATIENCE = 0.2

def make(folder):
    (folder / "thing").write_text("half")
    print("building", flush=True)
    time.sleep(float(sys.argv[1]))
    (folder / "thing").write_text("whole")

entry = cache.obtain("things", "k", make, what="a thing", report=lambda line: print(line, flush=True))
print((entry / "thing").read_text(), flush=True)
"""


def builder(seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", BUILDER, str(seconds)], stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_two_builders_one_builds_and_one_waits(root: Path) -> None:
    first = builder(1.0)
    assert line(first) == "building"
    second = builder(1.0)
    assert line(second) == "waiting for another process that builds a thing"
    assert [line(first), line(second)] == ["whole", "whole"]
    assert [first.wait(), second.wait()] == [0, 0]


def test_a_build_killed_half_way_is_not_believed(root: Path) -> None:
    killed = builder(60)
    assert line(killed) == "building"
    left = list((root / "things").glob(".k.????????"))
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(left) == 1
    assert (left[0] / "thing").read_text() == "half"
    assert cache.lookup("things", "k") is None
    assert (obtain() / "thing").read_text() == "whole"
    assert not left[0].exists()


def test_a_lock_held_for_ever_ends_in_a_sentence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "PATIENCE", 0.1)
    monkeypatch.setattr(cache, "DEADLINE", 0.3)
    holder = builder(60)
    assert line(holder) == "building"
    said: list[str] = []
    started = time.monotonic()
    try:
        with pytest.raises(BuildError, match="another process has been building a thing") as caught:
            obtain(report=said.append)
    finally:
        holder.kill()
        holder.wait()
    assert caught.value.code == "RX0505"
    assert said == ["waiting for another process that builds a thing"]
    assert time.monotonic() - started < 10


# --- folders that cannot be written


def test_a_cache_that_cannot_be_written_falls_back_with_one_line(root: Path) -> None:
    root.write_text("a file is in the way")
    said: list[str] = []
    entry = obtain(report=said.append)
    assert entry.is_relative_to(cache.fallback_root())
    assert len(said) == 1
    assert str(root) in said[0]
    assert str(cache.fallback_root()) in said[0]
    assert obtain(build=refuse, report=said.append) == entry
    assert len(said) == 1


def test_a_read_only_cache_is_read_and_what_it_lacks_goes_elsewhere(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = obtain()
    real = cache._refusal  # permission bits would not stop root, who runs CI
    monkeypatch.setattr(cache, "_refusal", lambda path: "Read-only file system" if path == root else real(path))
    assert obtain(build=refuse) == entry
    assert obtain("new").is_relative_to(cache.fallback_root())


def test_neither_cache_nor_fallback(root: Path) -> None:
    root.write_text("")
    cache.fallback_root().write_text("")
    with pytest.raises(BuildError, match=r"neither .+ can be written") as caught:
        obtain()
    assert caught.value.code == "RX0504"


def test_a_fallback_that_others_can_write_is_not_trusted(root: Path) -> None:
    """/tmp is everybody's: whoever makes our folder first could have us load a library."""
    root.write_text("")
    cache.fallback_root().mkdir()
    cache.fallback_root().chmod(0o777)
    with pytest.raises(BuildError, match="neither"):
        obtain()


def test_no_home(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cache, "cache_folder", homeless)
    assert obtain().is_relative_to(cache.fallback_root())


def test_a_home_that_stays_a_tilde(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELAXC_CACHE")
    monkeypatch.setattr(cache, "cache_folder", lambda: Path("~/.cache/relaxc"))
    assert obtain().is_relative_to(cache.fallback_root())
