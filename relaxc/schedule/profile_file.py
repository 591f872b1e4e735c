"""profile.json of a plan: what `compile` with a sample writes, and a schedule is fitted to."""

from __future__ import annotations

from pathlib import Path

import msgspec

from relaxc.errors import BuildError
from relaxc.schedule.profile import Profile

PROFILE = "profile.json"


def encode(profile: Profile) -> bytes:
    return msgspec.json.format(msgspec.json.encode(profile), indent=2)


def decode(raw: bytes) -> Profile:
    """Raise msgspec.DecodeError (ValidationError included) where `raw` is no profile of this version."""
    return msgspec.json.decode(raw, type=Profile)


def read_profile(folder: Path) -> Profile | None:
    """That of the plan in `folder`, None where the plan was made without a sample. Raise BuildError (RX0512) where it
    is damaged."""
    path = folder / PROFILE
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise BuildError(
            "RX0512", f"the plan {folder} is damaged: its {PROFILE} is no profile: {error}",
            f"compile it again with `relaxc compile SPEC --model M --sample S -o {folder}`",
        ) from error  # fmt: skip
