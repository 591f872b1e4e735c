"""What README shows works as shown: its spec, its commands, its loop, its table of codes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pool import Pool

from relaxc.language import library
from relaxc.language.functions import FUNCTIONS
from relaxc.topology.kinds import TOPOLOGIES

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def block(after: str) -> str:
    """The indented block that follows the text `after`."""
    lines = README[README.index(after) :].split("\n")[1:]
    start = next(i for i, line in enumerate(lines) if line.startswith("    "))
    end = next(i for i, line in enumerate(lines[start:], start) if line and not line.startswith("    "))
    return "\n".join(line[4:] for line in lines[start:end])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slow.relax").write_text(block("A spec, `slow.relax`:"))
    return tmp_path


def test_the_commands_run(folder: Path) -> None:
    commands = [
        line.split("#")[0].split() for line in block("Look at it, then compile it:").split("\n") if line.strip()
    ]
    assert [c[1] for c in commands] == ["check", "explain", "compile"]
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
    assert (folder / "build" / "slow" / "manifest.json").is_file()


def run_loop(_rank: int, _workers: int, loop: str, folder: str) -> int:
    """The loop as it stands, with the names that it takes for given; torch.distributed is up already."""
    import os

    import torch

    import relaxc

    os.chdir(folder)
    given = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 1))
    names = {
        "torch": torch, "relaxc": relaxc, "model": given, "criterion": torch.nn.functional.mse_loss,
        "optimizer": torch.optim.SGD(given.parameters(), 0.1), "loader": [(torch.randn(4, 8), torch.randn(4, 1))] * 3,
    }  # fmt: skip
    lines = [line for line in loop.split("\n") if "init_process_group" not in line]
    exec("\n".join(lines), names)
    relaxed = names["relaxed"]
    relaxed.detach()  # type: ignore[attr-defined]
    done: int = relaxed.stats()["iterations"]  # type: ignore[attr-defined]
    return done


def test_the_loop_trains(folder: Path, pool: Pool) -> None:
    command = [sys.executable, "-m", "relaxc", "compile", "slow.relax", "-o", "build/slow"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    loop = block("Attach the plan to a loop that runs under torchrun")
    assert pool.run(run_loop, 2, loop, str(folder)) == [3, 3]


def test_every_code_of_the_running_side_is_listed() -> None:
    listed = set()
    for first, last in re.findall(r"RX(\d{4})(?:-(\d{4}))?", README):
        listed |= {f"RX{n:04}" for n in range(int(first), int(last or first) + 1)}
    listed |= {f"RX{n}" for n in re.findall(r", (0\d{3}) \|", README)}
    sources = [*(ROOT / "relaxc").rglob("*.py"), *(ROOT / "runtime").glob("*.cpp")]
    raised = {code for path in sources for code in re.findall(r'"(RX0[456]\d\d)"', path.read_text())}
    assert raised <= listed, f"not in README: {sorted(raised - listed)}"


def named(text: str) -> set[str]:
    """What stands in backticks, with or without arguments."""
    return {name for code in re.findall(r"`([^`\n]+)`", text) for name in re.findall(r"[a-z]\w*", code)}


def test_every_codec_and_topology_is_named() -> None:
    ours = {*library.codecs(), *TOPOLOGIES} - {"exact"}
    assert ours <= named(README), f"not in README: {sorted(ours - named(README))}"


def test_every_function_is_in_the_grammar() -> None:
    comment = re.search(r"\n((?://[^\n]*\n)+)call:", (ROOT / "grammar" / "relax.lark").read_text())
    assert comment and set(FUNCTIONS) <= set(re.findall(r"\w+", comment[1]))


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in README
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("after", ["An algorithm is a program", "A codec is what is sent"])
def test_what_readme_defines_passes_check(after: str, tmp_path: Path) -> None:
    (tmp_path / "own.relax").write_text(block(after))
    done = subprocess.run(
        [sys.executable, "-m", "relaxc", "check", "own.relax"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_table_of_knobs_has_their_defaults() -> None:
    """What each statement takes and fills in, as the language has it."""
    from relaxc.language import library
    from relaxc.language.format import expression
    from relaxc.language.knobs import KNOBS
    from relaxc.language.syntax import Algorithm

    for quantity, knobs in KNOBS.items():
        (row,) = [line for line in README.split("\n") if line.startswith(f"| `relax {quantity}` |")]
        shown = dict(re.findall(r"`(\w+) = ([^`]+)`", row))
        assert set(shown) <= set(knobs.names), quantity
        files = sorted((ROOT / "specs" / "knobs").glob(f"{quantity}*.relax"))
        definitions = [item for f in files for item in library.knobs(f.stem).items if isinstance(item, Algorithm)]
        defaults = {(p.name, expression(p.default)) for d in definitions for p in d.parameters if p.default is not None}
        for knob, default in shown.items():
            assert (knobs.parameters[knob], default) in defaults or default in ("0", "none"), (quantity, knob)


def test_each_row_of_the_migration_names_a_spec_or_what_is_missing() -> None:
    rows = README[README.index("## Coming from elsewhere") : README.index("## Limits")].split("\n")[4:]
    for row in (row for row in rows if row.startswith("|")):
        linked = re.findall(r"\]\((specs/\w+\.relax)\)( `\{[^`]*\}`)?", row)
        assert linked or "not yet" in row, row
        for path, clauses in linked:
            assert (ROOT / path).is_file(), row
            name = Path(path).stem
            if clauses and "warmup" not in clauses:
                from relaxc import pipeline
                from relaxc.language.source import Source

                pipeline.to_typed(pipeline.to_spec(Source(row, f"relax with {name} {clauses.strip().strip('`')}"), {}))
