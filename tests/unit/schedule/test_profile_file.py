"""profile.json: there and back, and what is none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from relaxc.errors import BuildError
from relaxc.schedule.profile import ParameterTimes, Profile
from relaxc.schedule.profile_file import PROFILE, decode, encode, read_profile

MADE = Profile(
    1e-3, 2.5e-3, 1 / 3, (ParameterTimes("a.b", (2, 3), "f32", 1e-7, 0.0, "a"), ParameterTimes("c", (), "f64", None, None)),
    "torch.export", ("torch.fx: no",), estimated=True, device="meta", late_gradients=True,
)  # fmt: skip


def test_there_and_back(tmp_path: Path) -> None:
    assert decode(encode(MADE)) == MADE
    assert read_profile(tmp_path) is None
    (tmp_path / PROFILE).write_bytes(encode(MADE))
    assert read_profile(tmp_path) == MADE


@pytest.mark.parametrize("content", [b"", b"{}", encode(MADE)[:-5], encode(MADE).replace(b'"f32"', b"32")])
def test_what_is_no_profile(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(content)
    (tmp_path / PROFILE).write_bytes(content)
    with pytest.raises(BuildError) as caught:
        read_profile(tmp_path)
    assert caught.value.code == "RX0512" and str(tmp_path) in caught.value.message
    assert "--sample" in (caught.value.help or "")
