"""Manifests of specs, made without a compiler, and profiles of models that don't exist."""

from __future__ import annotations

from relaxc import pipeline
from relaxc.emit.plan import emit
from relaxc.language.source import Source
from relaxc.manifest import Manifest
from relaxc.resources import folder
from relaxc.schedule.network import Coding, Line, Network
from relaxc.schedule.profile import ParameterTimes, Profile

FREE = Line(0.0, 0.0)


class Free(dict[str, Coding]):
    """Every codec costs nothing."""

    def get(self, name, default=None):
        return Coding(FREE, FREE)


def manifest_of(text: str) -> Manifest:
    """Of a spec's text, or the name of one of the library."""
    path = folder("specs") / f"{text}.relax"
    source = Source.read(path) if " " not in text and path.exists() else Source("<text>", text)
    judged = pipeline.to_typed(pipeline.to_spec(source, {}))
    return emit(judged.program, pipeline.to_paths(judged.program), judged.facts, "spec", None).manifest


def profile_of(
    sizes: list[int], forward: float = 1.0, backward: float = 2.0, step: float = 0.0, ready: list[float] | None = None
) -> Profile:
    """Parameters of so many elements; the last one's gradient is ready first."""
    count = len(sizes)
    times = ready or [backward * (count - n) / count for n in range(count)]
    named = tuple(ParameterTimes(f"p{n}.weight", (size, 1), "f32", times[n], forward * n / count, f"p{n}")
                  for n, size in enumerate(sizes))  # fmt: skip
    return Profile(forward, backward, step, named, "recorded")


def free_network(each: float, fixed: float = 0.0) -> Network:
    """Codecs and memory cost nothing, so links tell."""
    return Network(Line(fixed, each), codings=Free())
