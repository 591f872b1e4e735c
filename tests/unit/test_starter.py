"""`relaxc specs` and `relaxc new`: the library as a place to start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxc.cli import status
from relaxc.errors import RelaxError
from relaxc.language import library
from relaxc.starter import copy_of, described, summary


def test_a_summary_is_the_first_sentence_without_its_source() -> None:
    text = (
        "# Local SGD: all train alone\n# for a while (Stich et al. 2019). Pays often.\nrelax gradients\n# more. text\n"
    )
    assert summary(text) == "Local SGD: all train alone for a while"


def test_each_spec_has_a_line() -> None:
    lines = dict(described())
    assert set(lines) == set(library.specs())
    assert all(10 < len(line) < 200 for line in lines.values()), lines


def test_specs_prints_each(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        status(["specs"])
    assert not ended.value.code
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == list(library.specs())
    assert not [line for line in lines if "et al" in line or "…" in line]


@pytest.mark.parametrize("origin", library.specs())
def test_a_copy_passes_check_under_its_new_name(
    origin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        status(["new", "mine", "--from", origin])
    assert not ended.value.code
    text = (tmp_path / "mine.relax").read_text()
    assert f"algorithm {origin}" not in text
    assert status(["check", "mine.relax"]) == 0, capsys.readouterr().err
    assert status(["new", "mine"]) == 2, "an existing file stays"


def test_what_is_refused() -> None:
    with pytest.raises(RelaxError, match="no spec `chocco`") as error:
        copy_of("chocco", "mine")
    assert error.value.help == "did you mean `choco`?"
    with pytest.raises(RelaxError, match="not a name"):
        copy_of("choco", "my spec")
