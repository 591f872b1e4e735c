"""`relaxc simulate`: virtual workers train, and what comes of it is printed and drawn."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from relaxc import cli_spec
from relaxc.program.types import Typed
from relaxc.usage import UsageError

if TYPE_CHECKING:
    from relaxc.schedule.network import Network
    from relaxc.simulate.outcome import Curve
    from relaxc.simulate.run import Progress, Training

CHART_WIDTH, CHART_HEIGHT = 64, 14


@dataclass(frozen=True)
class Wanted:
    """What the command line says. None where it says nothing, for the spec's cluster or the task to say."""

    spec: str
    task: str
    workers: int | None
    network: str | None
    iterations: int
    seeds: int
    against: Sequence[str]
    settings: Sequence[str]
    rate: float | None
    momentum: float | None
    computation: float | None
    output: Path | None


def simulate(wanted: Wanted) -> int:
    """The exit status. Raise UsageError, ModelError (RX04)."""
    from relaxc.simulate import plot
    from relaxc.simulate.outcome import verdicts

    _refuse(wanted)
    sources = [cli_spec.named(name) for name in (wanted.spec, *wanted.against)]
    settings = [cli_spec.settings_of(wanted.settings), *({} for _ in wanted.against)]
    first, errors = cli_spec.attempt(partial(cli_spec.checked, sources[0], settings[0]))
    if first is None:
        cli_spec.show(errors, json=False, color="auto")
        return cli_spec.WRONG_SPEC
    workers = _workers(wanted, first)
    found = [
        cli_spec.attempt(partial(cli_spec.checked, s, given, [workers]))
        for s, given in zip(sources, settings, strict=True)
    ]
    typed = [judged for judged, _ in found if judged is not None]
    for judged, wrong in found:
        cli_spec.show(wrong if judged is None else judged.warnings, json=False, color="auto")
    if len(typed) < len(found):
        return cli_spec.WRONG_SPEC
    network = _network(wanted, first, workers)
    curves = _curves(wanted, typed, [Path(s.name).stem for s in sources], workers, network)
    said = verdicts(curves)
    title = f"{wanted.task}, {workers} workers"
    _print(curves, said, title, network)
    if wanted.output is not None:
        plot.write(wanted.output, curves, said, title)
        sys.stdout.write(f"{wanted.output}: written\n")
    return cli_spec.OK


def _refuse(wanted: Wanted) -> None:
    if wanted.output is not None:
        from relaxc.simulate.plot import refuse_file

        refuse_file(wanted.output)
    if wanted.rate is not None and not 0 < wanted.rate < float("inf"):
        raise UsageError("--lr takes a number above 0")
    if wanted.computation is not None and not 0 <= wanted.computation < float("inf"):
        raise UsageError("--computation takes seconds from 0 up")


def _workers(wanted: Wanted, typed: Typed) -> int:
    own = cli_spec.counts_of(typed.spec)
    if wanted.workers is None and not own:
        raise UsageError("say how many workers: --workers 16")
    return wanted.workers or own[0]


def _network(wanted: Wanted, typed: Typed, workers: int) -> Network | None:
    from relaxc.schedule.network_clause import network_of
    from relaxc.schedule.network_file import require_workers
    from relaxc.schedule.network_text import parse_network

    if wanted.network is not None:
        network = parse_network(wanted.network)
    elif typed.spec.cluster is not None:
        network = network_of(typed.spec.cluster)
    else:
        return None
    require_workers(network, workers)
    return network


def _curves(
    wanted: Wanted, typed: Sequence[Typed], names: Sequence[str], workers: int, network: Network | None
) -> list[Curve]:
    from relaxc.simulate.outcome import Curve
    from relaxc.simulate.pace import seconds_of_iteration
    from relaxc.simulate.task import COMPUTATION, load_task

    curves = []
    for name, judged in zip(names, typed, strict=True):
        trainings = tuple(_training(wanted, judged, name, workers, seed, network) for seed in range(wanted.seeds))
        task = load_task(wanted.task, workers, 0)
        computation = task.setting("computation", COMPUTATION) if wanted.computation is None else wanted.computation
        seconds = None
        if network is not None:
            seconds = seconds_of_iteration(judged, task.parameters, workers, network, computation)
        curves.append(Curve(name, trainings, seconds))
    return curves


def _training(wanted: Wanted, judged: Typed, name: str, workers: int, seed: int, network: Network | None) -> Training:
    from relaxc.simulate.descent import Descent
    from relaxc.simulate.run import train
    from relaxc.simulate.task import RATE, load_task

    task = load_task(wanted.task, workers, seed)
    rate = task.setting("rate", RATE) if wanted.rate is None else wanted.rate
    momentum = task.setting("momentum", 0.0) if wanted.momentum is None else wanted.momentum
    inner = 1 if network is None else network.per_machine
    label = name if wanted.seeds == 1 else f"{name}, seed {seed}"
    with _progress(label, wanted.iterations) as progress:
        return train(judged.program, task, workers, wanted.iterations, seed, Descent(rate, momentum), inner, progress)


@contextmanager
def _progress(label: str, iterations: int) -> Iterator[Progress]:
    """A bar on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TimeRemainingColumn

    with Bars(
        *Bars.get_default_columns()[:3], TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bars:
        bar = bars.add_task(label, total=iterations)
        yield lambda done: bars.update(bar, completed=done)


def _print(curves: Sequence[Curve], said: Sequence[str], title: str, network: Network | None) -> None:
    from relaxc.schedule.network_text import shown
    from relaxc.simulate.pace import HOW

    for line in _chart(curves, by_time=False):
        print(line)
    if network is not None:
        print()
        for line in _chart(curves, by_time=True):
            print(line)
        each = ", ".join(f"{c.name} {c.seconds:.3g} s" for c in curves)
        print(f"\nan iteration over {shown(network)}: {each} ({HOW})")
    print(f"\n{title}")
    for line in said:
        print(f"- {line}")


def _chart(curves: Sequence[Curve], by_time: bool) -> list[str]:
    import math

    from relaxc.demo.chart import Series, draw

    series = [
        Series(
            c.name,
            [(n * ((c.seconds or 0.0) if by_time else 1.0), loss) for n, loss, _, _ in c.points if math.isfinite(loss)],
        )
        for c in curves
    ]
    x = "predicted time, s" if by_time else "iterations"
    return draw(series, x=x, y="loss of the workers' mean", width=CHART_WIDTH, height=CHART_HEIGHT)
