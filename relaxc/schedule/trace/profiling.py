"""A model and a sample in, a Profile out: the straight line of the trace."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn

from relaxc.errors import ModelError
from relaxc.schedule.profile import ParameterTimes, Profile
from relaxc.schedule.trace.clock import Clock, clock_of
from relaxc.schedule.trace.dtypes import name_of
from relaxc.schedule.trace.estimate import EstimatingClock, Rates
from relaxc.schedule.trace.exported import trace_by_export
from relaxc.schedule.trace.graph import TimedGraph, Traced
from relaxc.schedule.trace.iteration import Iteration, iterate
from relaxc.schedule.trace.loss import loss_of
from relaxc.schedule.trace.names import Live, compiled_modules, live_parameters, only_device
from relaxc.schedule.trace.reads import Reads, disagreement, medians
from relaxc.schedule.trace.recorded import Recording, as_written
from relaxc.schedule.trace.sample import Sample, as_sample
from relaxc.schedule.trace.state import same_attributes, untouched
from relaxc.schedule.trace.symbolic import trace_symbolically
from relaxc.schedule.trace.weights import by_weights
from relaxc.users_code import described

TRACERS: tuple[tuple[str, Callable[[nn.Module, Sample], Traced]], ...] = (
    ("torch.fx", trace_symbolically), ("torch.export", trace_by_export),
)  # fmt: skip
"""In the order in which they are tried; a recorded iteration comes after them, and works for all that runs."""


def trace(
    model: nn.Module, sample: Any, *, loss: Callable[[Any], torch.Tensor] | None = None, runs: int = 7,
    clock: Clock | None = None, rates: Rates | None = None,
) -> Profile:  # fmt: skip
    """When each gradient is there and each weight is needed, as medians of so many runs.

    `sample` is what the model is called with: a tuple of arguments, a mapping of named ones, or one tensor. `loss`
    takes the model's output (default: its own `loss`, else the means of its outputs). Times are measured on the
    model's device, and `step` is that of plain SGD. A model on the meta device, `rates` of another device, or None for
    a sample give an estimate. The model is left as it was; `clock` is for tests.

    Raise ModelError: RX0402 where nothing requires a gradient, RX0404 where a parameter has no shape, RX0422 where the
    model fails on the sample, RX0424 where no output needs a gradient, RX0421 where there is no sample and torch.fx
    can't follow the model.
    """
    live = live_parameters(model)
    _refuse(model, live)
    if sample is None:
        return by_weights(model, live, rates or Rates())
    device = only_device(model.parameters())
    if device is not None and device.type == "meta":
        rates = rates or Rates()
    given = as_sample(sample) if device is None else as_sample(sample).on(device)
    chosen = clock or (EstimatingClock(rates) if rates else clock_of(device or next(iter(live.values())).device))
    subject = _Subject(model, given, loss or loss_of, live, chosen, estimated=rates is not None)
    with untouched(model), as_written() if subject.estimated else nullcontext():
        if not model.training:
            model.train()
        return _profile(subject, str(device.type if device is not None else "cpu"), 1 if subject.estimated else runs)


def _refuse(model: nn.Module, live: Live) -> None:
    shapeless = next((n for n, p in model.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)), "")
    if shapeless:
        raise ModelError("RX0404", f"parameter {shapeless} has no shape yet", "run one forward pass before")
    if not live:
        raise ModelError(
            "RX0402", "the model has no parameter that requires a gradient", "trace before freezing it all"
        )


@dataclass(frozen=True)
class _Subject:
    model: nn.Module
    sample: Sample
    loss: Callable[[Any], torch.Tensor]
    live: Live
    clock: Clock
    estimated: bool

    def iterate(self) -> Iteration:
        return iterate(self.model, self.sample, self.loss, self.live, self.clock)


def _profile(subject: _Subject, device: str, runs: int) -> Profile:
    recording = Recording(subject.model, subject.sample, subject.live, subject.clock)
    with _fits():
        warm = subject.iterate()  # compiles, allocates, and says what fails
        recorded = recording.run()
    taking_part = dict.fromkeys([*recorded.first, *warm.ready])
    how, graph, why = _traced(subject, recorded, taking_part)
    iterations, heard = [], []
    with _fits():
        for _ in range(runs):
            iterations.append(subject.iterate())
            if graph is None:
                heard.append(recording.run())
            else:
                graph.run()
    reads = medians(heard) if graph is None else graph.reads()
    sure = [*(reads if graph is None else recorded).first, *(name for i in iterations for name in i.ready)]
    return _made(subject, iterations, reads.among(dict.fromkeys(sure)), how, why, device)


@contextmanager
def _fits() -> Iterator[None]:
    """Raise ModelError (RX0422) with the user's own line where the model fails on the sample."""
    try:
        yield
    except ModelError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(
            "RX0422", f"the model failed on the sample: {described(error)}",
            "see that forward and backward run on it; it is what forward takes, a tuple of arguments or a mapping of "
            "named ones, without the target",
        ) from error  # fmt: skip


def _traced(
    subject: _Subject, recorded: Reads, taking_part: Iterable[str]
) -> tuple[str, TimedGraph | None, tuple[str, ...]]:
    """The first tracer that gives a graph of what was recorded, and why not the ones before it."""
    why: list[str] = []
    if compiled := compiled_modules(subject.model):
        what = f"module {compiled[0]}" if compiled[0] else "the model"
        return "recorded", None, tuple(f"{how}: {what} is compiled" for how, _ in TRACERS)
    for how, tracer in TRACERS:
        graph, reason = _attempt(tracer, subject, recorded, taking_part)
        if graph is not None:
            return how, graph, tuple(why)
        why.append(f"{how}: {reason}")
    return "recorded", None, tuple(why)


def _attempt(
    tracer: Callable[[nn.Module, Sample], Traced], subject: _Subject, recorded: Reads, taking_part: Iterable[str]
) -> tuple[TimedGraph | None, str | None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a tracer warns of is that it may be wrong, which is looked at below
            with same_attributes(subject.model):
                traced = tracer(subject.model, subject.sample)
            graph = TimedGraph(traced, subject.live, subject.clock)
            graph.run()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a tracer does not know of, the next one may
        return None, described(error)
    reason = disagreement(recorded, taking_part, graph.order)
    return (graph, None) if reason is None else (None, reason)


def _made(
    subject: _Subject, iterations: Sequence[Iteration], reads: Reads, how: str, why: tuple[str, ...], device: str
) -> Profile:
    compiled = "" in compiled_modules(subject.model)
    late = any(i.late for i in iterations) or (subject.estimated and compiled)
    backward = median(i.backward for i in iterations)
    scaled = reads.lasting(median(i.model for i in iterations))
    ready = {name: _ready(name, iterations) for name in subject.live}
    if late:
        ready = {name: None if at is None else backward for name, at in ready.items()}
    return Profile(
        forward=median(i.forward for i in iterations), backward=backward, step=median(i.step for i in iterations),
        parameters=tuple(_times(name, tensor, ready[name], scaled) for name, tensor in subject.live.items()),
        how=how, why=why, estimated=subject.estimated, device=device, late_gradients=late,
    )  # fmt: skip


def _ready(name: str, iterations: Sequence[Iteration]) -> float | None:
    times = [iteration.ready[name] for iteration in iterations if name in iteration.ready]
    return median(times) if times else None


def _times(name: str, tensor: torch.Tensor, ready: float | None, reads: Reads) -> ParameterTimes:
    read = reads.first.get(name)
    return ParameterTimes(
        name, tuple(tensor.shape), name_of(tensor.dtype), ready, None if read is None else read.at,
        "" if read is None else read.module,
    )  # fmt: skip
