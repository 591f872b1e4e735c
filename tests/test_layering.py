"""Who imports whom, read from the sources: DESIGN's rules, so that a built plan loads without the compiler."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "relaxc"

BASE = {
    "relaxc", "relaxc.errors", "relaxc.manifest", "relaxc.resources", "relaxc.keep", "relaxc.units", "relaxc.usage",
    "relaxc.users_code",
}  # fmt: skip
"""Modules that know nothing of the line and that all of it may know; `relaxc` itself holds the version."""
FOUNDATION = ("wire", "topology")
"""The folders that all may import; each imports those before it at most."""
LINE = ("language", "program", "schedule", "emit", "build")
"""The folders of the line; none imports one that comes later."""
COMPILER = {"language", "program", "emit"}
RUNNING = {"attach", "probe"}
TORCH = {"build", "simulate", "demo", "probe", "attach"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Each module that `path` names in an import, at any level of nesting, and whether only type checkers see it."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    return tuple((target, id(node) in typing_only) for node in ast.walk(tree) for target in targets(node))


def targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"relative import in line {node.lineno}"
        return [resolved(node.module or "", alias.name) for alias in node.names]
    return []


def resolved(module: str, imported: str) -> str:
    """`from relaxc import manifest` names a module, `from relaxc.manifest import Manifest` a thing in one."""
    inner = f"{module}.{imported}"
    as_path = ROOT / inner.replace(".", "/")
    return inner if as_path.with_suffix(".py").is_file() or (as_path / "__init__.py").is_file() else module


def of_relaxc(path: Path) -> list[str]:
    return [t for t, typing_only in imports(path) if t.split(".")[0] == "relaxc" and not typing_only]


def stage(module: str) -> str:
    """The folder below relaxc/, or "" for a module at its top."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else ""


def importers(library: str) -> set[str]:
    found = (
        name(p)
        for p in modules()
        if any(t.split(".")[0] == library for t, typing_only in imports(p) if not typing_only)
    )
    return set(found)


@pytest.mark.parametrize("path", modules(), ids=name)
def test_arrows_never_point_back_along_the_line(path: Path) -> None:
    here = stage(name(path))
    if here not in LINE:
        return
    allowed = {*LINE[: LINE.index(here) + 1], *FOUNDATION}
    for target in of_relaxc(path):
        assert target in BASE or stage(target) in allowed, f"{name(path)} imports {target}"


def closure(path: Path) -> set[str]:
    """Every module of relaxc that `path` brings along, itself excluded."""
    known: set[str] = set()
    waiting = [path]
    while waiting:
        for target in set(of_relaxc(waiting.pop())) - known - {"relaxc"}:
            known.add(target)
            waiting.append(file_of(target))
    return known


def file_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@pytest.mark.parametrize("path", modules(), ids=name)
def test_the_running_side_knows_the_built_plan_only(path: Path) -> None:
    """Of the schedule it may take what is pure: all that it brings along counts."""
    if stage(name(path)) not in RUNNING:
        return
    brought = {*closure(path), name(path)}
    assert not [module for module in brought if stage(module) in COMPILER]
    assert not brought & (importers("lark") | importers("jinja2"))


@pytest.mark.parametrize("path", modules(), ids=name)
def test_build_knows_no_compiler(path: Path) -> None:
    if stage(name(path)) == "build":
        known = {stage(t) for t in of_relaxc(path)}
        assert not known & {*COMPILER, "schedule", *RUNNING}


@pytest.mark.parametrize("path", modules(), ids=name)
def test_nobody_imports_what_is_on_top(path: Path) -> None:
    if not name(path).startswith(("relaxc.cli", "relaxc.demo", "relaxc.__main__")):
        top = [t for t in of_relaxc(path) if t.startswith("relaxc.cli")]
        assert not top
    if name(path) != "relaxc" and not name(path).startswith(("relaxc.cli", "relaxc.api", "relaxc.demo")):
        assert "relaxc.api" not in of_relaxc(path)


@pytest.mark.parametrize("path", modules(), ids=name)
def test_the_foundation_and_the_base_stand_alone(path: Path) -> None:
    module = name(path)
    if (here := stage(module)) in FOUNDATION:
        assert {stage(t) for t in of_relaxc(path)} <= {*FOUNDATION[: FOUNDATION.index(here) + 1]}
    elif module in BASE - {"relaxc"}:
        assert set(of_relaxc(path)) <= BASE


def test_only_parse_knows_lark() -> None:
    # doctor asks importlib whether it is there, which is no import
    assert importers("lark") <= {"relaxc.language.parse"}


def test_only_emit_knows_jinja2() -> None:
    assert {stage(module) for module in importers("jinja2")} <= {"emit"}


def test_only_the_command_line_knows_typer() -> None:
    assert all(module.startswith("relaxc.cli") for module in importers("typer"))


def test_few_know_torch() -> None:
    for module in importers("torch"):
        below = module.removeprefix("relaxc.")
        assert stage(module) in TORCH or f"{below}.".startswith("schedule.trace."), f"{module} imports torch"


def test_build_imports_torch_inside_functions_only() -> None:
    for path in (PACKAGE / "build").glob("*.py"):
        top = [t for node in ast.parse(path.read_text()).body for t in targets(node)]
        assert not [t for t in top if t.split(".")[0] == "torch"], path.name


@pytest.mark.parametrize("folder", ["report", "tune"])
def test_what_draws_and_ranks_takes_data(folder: str) -> None:
    """Timelines, manifests and profiles in, text out: neither torch nor templates, and no cli. Ranking knows the
    language, whose specs it varies."""
    known = {"report", "schedule", *FOUNDATION} | ({"tune", "language"} if folder == "tune" else set())
    for path in (PACKAGE / folder).glob("*.py"):
        brought = [t for t in of_relaxc(path) if t not in BASE]
        assert {stage(t) for t in brought} <= known, name(path)


@pytest.mark.parametrize("folder", FOUNDATION)
def test_the_foundation_takes_numpy_inside_functions_only(folder: str) -> None:
    """So that a check without a worker count stays quick."""
    for path in (PACKAGE / folder).glob("*.py"):
        top = [t for node in ast.parse(path.read_text()).body for t in targets(node)]
        assert not [t for t in top if t.split(".")[0] == "numpy"], path.name


def test_generated_code_reaches_no_torch_header() -> None:
    for header in (ROOT / "runtime" / "relaxrt").rglob("*"):
        included = (
            re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', header.read_text(), re.MULTILINE) if header.is_file() else []
        )
        for path in included:
            assert not path.startswith(("torch/", "ATen/", "c10/", "pybind11/", "Python.h")), (
                f"{header.name} includes {path}"
            )
            beside = (header.parent / path).is_file() or (ROOT / "runtime" / path).is_file()
            assert not beside or "relaxrt" in str((header.parent / path).resolve()) or path.startswith("relaxrt/")


def test_templates_include_relaxrt_only() -> None:
    for template in (ROOT / "codegen").glob("*.j2"):
        quoted = re.findall(r'^\s*#\s*include\s*"([^"]+)"', template.read_text(), re.MULTILINE)
        assert all(path.startswith("relaxrt/") for path in quoted), template.name


def test_only_the_command_line_prints_and_exits() -> None:
    for path in modules():
        module = name(path)
        if module.startswith(("relaxc.cli", "relaxc.demo", "relaxc.build.torch_report", "relaxc.__main__")):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "exit", "sys.exit"):
                pytest.fail(f"{module}:{node.lineno} calls {ast.unparse(node.func)}")


def test_no_drawer_for_odds_and_ends() -> None:
    assert not [name(p) for p in modules() if re.search(r"util|helper|manager|misc|common", p.stem)]
