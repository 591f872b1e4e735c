from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

import relaxc
from relaxc import manifest
from relaxc.build import compiler, cpu, plan_files
from relaxc.build.plan_files import LISTING, MANIFEST, read_plan, usable_library, write_plan
from relaxc.errors import BuildError
from relaxc.manifest import Manifest


def plan(**fields: object) -> Manifest:
    made = Manifest(
        relaxc=relaxc.__version__,
        spec="quickstart.relax",
        hash="0",
        cpu=str(cpu.available().architecture),
        seed=0,
        bodies=(),
        first_bucket_bytes=1,
        bucket_bytes=1,
        coded_bucket_bytes=1,
        piece_bytes=1,
    )
    return msgspec.structs.replace(made, **fields)


def files(made: Manifest) -> dict[str, bytes | Path]:
    return {MANIFEST: manifest.encode(made), "kernels.cpp": b"int f() { return 7; }\n", "kernels.so": b"library"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "build" / "spec"
    write_plan(target, files(plan()))
    return target


def refused(folder: Path) -> BuildError:
    with pytest.raises(BuildError) as caught:
        read_plan(folder)
    assert str(folder) in caught.value.message
    assert "relaxc compile" in (caught.value.help or "")
    return caught.value


def test_there_and_back(folder: Path) -> None:
    assert read_plan(folder) == plan()
    assert sorted(p.name for p in folder.iterdir()) == ["kernels.cpp", "kernels.so", MANIFEST, LISTING]
    assert [p.name for p in folder.parent.iterdir()] == ["spec"]


def test_a_plan_can_be_moved(folder: Path, tmp_path: Path) -> None:
    moved = folder.rename(tmp_path / "elsewhere")
    assert read_plan(moved) == plan()


def test_a_file_is_copied(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(b"binary")
    write_plan(tmp_path / "p", {**files(plan()), "sub/lib.so": tmp_path / "lib.so"})
    assert (tmp_path / "p" / "sub" / "lib.so").read_bytes() == b"binary"
    assert read_plan(tmp_path / "p") == plan()


def test_an_older_plan_is_replaced_whole(folder: Path) -> None:
    write_plan(folder, {**files(plan(seed=4)), "left over": b""})
    write_plan(folder, files(plan(seed=5)))
    assert read_plan(folder).seed == 5
    assert not (folder / "left over").exists()
    assert [p.name for p in folder.parent.iterdir()] == ["spec"]


def test_a_file_that_is_not_the_plans_is_not_deleted(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(BuildError, match="holds notes"):
        write_plan(folder, files(plan(seed=5)))
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_damaged_plan_is_replaced(folder: Path) -> None:
    (folder / LISTING).write_text("")
    write_plan(folder, files(plan()))
    assert read_plan(folder) == plan()


def test_what_is_no_plan_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    (tmp_path / "file").write_text("y")
    for name in ("mine", "file"):
        with pytest.raises(BuildError) as caught:
            write_plan(tmp_path / name, files(plan()))
        assert caught.value.code == "RX0515"
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "x"
    assert (tmp_path / "file").read_text() == "y"


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    write_plan(tmp_path / "p", files(plan()))
    assert read_plan(tmp_path / "p") == plan()


def test_a_failed_write_keeps_the_older_plan(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="cannot be written"):
        write_plan(folder, {**files(plan(seed=5)), "kernels.so": tmp_path / "absent.so"})
    assert read_plan(folder).seed == 0
    assert [p.name for p in folder.parent.iterdir()] == ["spec"]


def test_a_parent_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match="cannot be written") as caught:
        write_plan(tmp_path / "file" / "plan", files(plan()))
    assert caught.value.code == "RX0504"


def test_absent(tmp_path: Path) -> None:
    assert refused(tmp_path / "no").code == "RX0510"


def test_no_plan(tmp_path: Path) -> None:
    assert refused(tmp_path).code == "RX0511"


@pytest.mark.parametrize("name", [MANIFEST, "kernels.so", LISTING])
def test_cut_short(folder: Path, name: str) -> None:
    raw = (folder / name).read_bytes()
    (folder / name).write_bytes(raw[: len(raw) // 2])
    error = refused(folder)
    assert error.code == "RX0512"
    assert name in error.message


def test_a_missing_file(folder: Path) -> None:
    (folder / "kernels.so").unlink()
    assert refused(folder).message.endswith("kernels.so is missing")


def test_another_format(tmp_path: Path) -> None:
    raw = msgspec.json.encode({"format": 99, "relaxc": "9.0.0", "everything": "else"})
    write_plan(tmp_path / "p", {MANIFEST: raw})
    error = refused(tmp_path / "p")
    assert error.code == "RX0513"
    assert "format 99" in error.message


def test_another_relaxc(tmp_path: Path) -> None:
    write_plan(tmp_path / "p", files(plan(relaxc="0.0.1")))
    assert "0.0.1" in refused(tmp_path / "p").message


def test_a_manifest_without_its_fields(tmp_path: Path) -> None:
    raw = msgspec.json.encode({"format": manifest.FORMAT, "relaxc": relaxc.__version__})
    write_plan(tmp_path / "p", {MANIFEST: raw})
    assert refused(tmp_path / "p").code == "RX0513"


def test_series() -> None:
    assert plan_files.series("0.1.0") == plan_files.series("0.1.9") != plan_files.series("0.2.0")
    assert plan_files.series("1.1.0") == plan_files.series("1.2.0") != plan_files.series("2.0.0")


# --- another processor


def test_the_library_is_used_where_the_cpu_has_its_flags(folder: Path) -> None:
    assert usable_library(folder, plan()) == folder / "kernels.so"


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++ on this machine")
def test_it_is_rebuilt_where_the_cpu_lacks_some(folder: Path, root: Path) -> None:
    library = usable_library(folder, plan(cpu=f"{cpu.available().architecture} avx99"))
    assert library.is_relative_to(root)


def test_and_refused_where_there_is_no_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert usable_library(folder, plan()) == folder / "kernels.so"
    with pytest.raises(BuildError, match="avx99") as caught:
        usable_library(folder, plan(cpu=f"{cpu.available().architecture} avx99"))
    assert caught.value.code == "RX0514"
    assert caught.value.help != compiler.INSTALL
