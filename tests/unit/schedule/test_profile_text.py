"""What is said of a trace."""

from __future__ import annotations

from relaxc.schedule.profile import ParameterTimes, Profile
from relaxc.schedule.profile_text import LATE, report


def times(name: str, ready: float | None, needed: float | None, module: str = "") -> ParameterTimes:
    return ParameterTimes(name, (1,), "f32", ready, needed, module)


def test_the_slowest_gradients_come_first() -> None:
    parameters = (
        times("embed.weight", 0.04, 0.0, "embed"), times("scale", 0.03, 0.0002), times("gone", None, None),
        times("odd", 0.01, None), *(times(f"layer{i}", 0.001 * i, 0.005, f"l{i}") for i in range(1, 4)),
    )  # fmt: skip
    profile = Profile(0.02, 0.04, 2e-6, parameters, "torch.export", ("torch.fx: TypeError: no (model.py:3)",))
    assert report(profile) == (
        "traced by torch.export on cpu: forward 20 ms, backward 40 ms, a plain step 2 us (medians of several runs)",
        "not traced by torch.fx: TypeError: no (model.py:3)",
        "without a gradient: gone",
        "  embed.weight  gradient at 40 ms (100% of backward), weight read at 0 us of forward by embed",
        "  scale         gradient at 30 ms (75% of backward), weight read at 200 us of forward by the model",
        "  odd           gradient at 10 ms (25% of backward), weight read nowhere",
        "  layer3        gradient at 3 ms (8% of backward), weight read at 5 ms of forward by l3",
        "  layer2        gradient at 2 ms (5% of backward), weight read at 5 ms of forward by l2",
    )


def test_what_is_particular() -> None:
    idle = tuple(times(f"p{i}", None, None) for i in range(7))
    said = report(
        Profile(2.0, 0.0, 0.0, (*idle, times("a", 0.0, 0.0)), "recorded", estimated=True, late_gradients=True)
    )
    first, *rest = said
    assert first.startswith("traced by a recorded iteration on cpu: forward 2 s, backward 0 us, a plain step 0 us (")
    assert first.endswith("(estimated from operations and bytes, not measured)")
    assert rest == [
        LATE,
        "without a gradient: p0, p1, p2, p3, p4 and 2 more",
        "  a  gradient at 0 us (0% of backward), weight read at 0 us of forward by the model",
    ]
