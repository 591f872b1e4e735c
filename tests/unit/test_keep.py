"""A kept file is whole or as if absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxc.keep import recall, remember


def test_what_was_kept_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    assert remember(path, b"body") and recall(path) == b"body"
    assert remember(path, b"") and recall(path) == b""
    assert [p.name for p in path.parent.iterdir()] == ["b"]


@pytest.mark.parametrize("cut", [0, 1, 31, 35])
def test_half_a_file_is_none(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "b"
    remember(path, b"body")
    path.write_bytes(path.read_bytes()[:cut])
    assert recall(path) is None


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not remember(tmp_path / "file" / "b", b"body")
    assert recall(tmp_path / "file" / "b") is None
    assert not remember(tmp_path, b"body")  # a folder is in the way
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
