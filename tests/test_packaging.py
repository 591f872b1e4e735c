"""The package as users get it: sdist, wheel and editable install, each in a fresh environment of its own.

The environments borrow this one's dependencies through a .pth file, so that nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = ("grammar", "codegen", "runtime", "specs")

pytestmark = [
    pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="not run from a checkout"),
    pytest.mark.skipif(not importlib.util.find_spec("build"), reason="no package `build`"),
    pytest.mark.skipif(not importlib.util.find_spec("hatchling"), reason="no package `hatchling`"),
]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Standard output; the environment has no PYTHONPATH, which would let the checkout in by the back door."""
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist of the checkout, and a wheel made from that sdist: what `python -m build` does."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    return out


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def environment(folder: Path) -> Path:
    """The python of a new virtual environment in `folder`, which sees this one's packages but not this relaxc."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    site = only(folder / "lib", "python*") / "site-packages"
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    """With the pip of this environment, without dependencies and without the network."""
    flags = (
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--ignore-installed",
    )
    run(sys.executable, "-m", "pip", "--python", python, "install", *flags, *what, cwd=python.parent)


def tracked() -> set[str]:
    """Every file below the shared folders, as a path from the root of the repository."""
    files = (p for name in SHARED for p in (ROOT / name).rglob("*") if p.is_file())
    return {p.relative_to(ROOT).as_posix() for p in files if "__pycache__" not in p.parts}


def test_the_wheel_is_pure_and_carries_all(dist: Path) -> None:
    wheel = only(dist, "*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"relaxc/_share/{path}" for path in tracked()} <= names
    assert {"relaxc/py.typed", "relaxc/cli.py"} <= names
    assert any(n.endswith("/licenses/LICENSE") for n in names)
    assert all(n.startswith(("relaxc/", "relaxc-")) for n in names)


def test_the_sdist_carries_all(dist: Path) -> None:
    with tarfile.open(only(dist, "*.tar.gz")) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert tracked() <= names
    assert {"pyproject.toml", "Makefile", "constraints.txt", "LICENSE"} <= names


def test_metadata(dist: Path) -> None:
    wheel = zipfile.ZipFile(only(dist, "*.whl"))
    (path,) = [n for n in wheel.namelist() if n.endswith("METADATA")]
    lines = wheel.read(path).decode().splitlines()
    assert "Requires-Dist: torch>=2.13" in lines
    assert "License-Expression: Apache-2.0" in lines


def check_it(python: Path, empty: Path, expected: Path) -> None:
    """From an empty folder: the package is the installed one, and `relaxc check` reads a spec that it ships."""
    where = run(
        python, "-c", "import relaxc, sys; print(relaxc.__file__); assert 'torch' not in sys.modules", cwd=empty
    )
    assert Path(where.strip()).is_relative_to(expected)
    folders = f"from relaxc.resources import folder; print(*(folder(n) for n in {SHARED}), sep='\\n')"
    for line in run(python, "-c", folders, cwd=empty).splitlines():
        assert Path(line).is_relative_to(expected)
    specs = run(python, "-c", "from relaxc.resources import folder; print(folder('specs'))", cwd=empty).strip()
    run(python.parent / "relaxc", "check", Path(specs) / "quickstart.relax", cwd=empty)


def test_the_wheel_works_in_a_fresh_environment(dist: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    install(python, only(dist, "*.whl"))
    (tmp_path / "empty").mkdir()
    check_it(python, tmp_path / "empty", tmp_path / "venv")


def test_an_editable_install_works(tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    install(python, "--editable", ROOT)
    (tmp_path / "empty").mkdir()
    check_it(python, tmp_path / "empty", ROOT)


def test_versions_agree() -> None:
    """The changelog has a place for this version or for what comes next."""
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()
    pins = (ROOT / "constraints.txt").read_text()
    assert "\ntorch==2.13.0\n" in pins
