"""Orders in a profile, as lists of modules."""

from __future__ import annotations

from relaxc.schedule.profile import Profile


def by_need(profile: Profile) -> list[str]:
    """Modules in the order in which they first read a weight."""
    read = sorted((p for p in profile.parameters if p.needed is not None), key=lambda p: p.needed)
    return list(dict.fromkeys(p.module for p in read))


def by_gradient(profile: Profile) -> list[str]:
    """Modules in the order in which the last of their gradients comes."""
    there = sorted((p for p in profile.parameters if p.ready is not None), key=lambda p: -p.ready)
    return list(dict.fromkeys(p.name.rpartition(".")[0] for p in there))[::-1]


def sound(profile: Profile) -> bool:
    """Times lie within the pass that they are of."""
    ready = [p.ready for p in profile.parameters if p.ready is not None]
    needed = [p.needed for p in profile.parameters if p.needed is not None]
    return 0 < min(ready) <= max(ready) <= profile.backward and 0 <= min(needed) <= max(needed) <= profile.forward
