"""The end of the demo: a chart, a table, and one sentence."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relaxc.demo.chart import Series, draw
from relaxc.demo.hosts import Shaping
from relaxc.demo.outcome import Outcome, seconds_to, shares, target

LEGEND = (
    "sent: bytes of a worker and step, as its interface counted them, headers included; predicted: payload alone; "
    "step: median; loss: held out, at the end; to loss: seconds until the first run's final loss; share: of the first "
    "run's seconds"
)
CHART_FROM = 3.4
"""Nats. The fall from a uniform guess to here takes a few steps and would flatten the rest of the chart."""


def chart(outcomes: dict[str, Outcome]) -> Text:
    """Held-out loss against seconds."""
    series = [Series(outcome.title, _shown(outcome)) for outcome in outcomes.values()]
    return Text("\n".join(draw(series, x="seconds of training", y="held-out loss, nats a character")))


def _shown(outcome: Outcome) -> list[tuple[float, float]]:
    kept = [(seconds, loss) for seconds, loss in outcome.curve if loss <= CHART_FROM]
    return kept or list(outcome.curve)


def table(outcomes: dict[str, Outcome]) -> Table:
    """Bytes are those of a worker in a step; the last two columns are about the first run's final loss."""
    result = Table(box=SIMPLE_HEAD, pad_edge=False)
    result.add_column("exchange", no_wrap=True)
    for name in ("sent", "predicted", "step", "loss", "to loss", "share"):
        result.add_column(name, justify="right", no_wrap=True)
    taken = shares(outcomes)
    for name, outcome in outcomes.items():
        result.add_row(*_row(outcome, seconds_to(outcome.curve, target(outcomes)), taken[name]))
    return result


def _row(outcome: Outcome, seconds: float | None, share: float | None) -> list[str]:
    ended = outcome.ended
    return [
        outcome.title,
        "" if ended is None else megabytes(ended.bytes_sent),
        "" if ended is None else megabytes(ended.predicted_bytes),
        "" if ended is None else f"{ended.step_seconds * 1000:.0f} ms",
        f"{outcome.held_out:.3f}",
        "never" if seconds is None else f"{seconds:.1f} s",
        "" if share is None else f"{share:.2f}",
    ]


def megabytes(count: float) -> str:
    return f"{count / 1e6:.2f} MB"


def conclusion(outcomes: dict[str, Outcome], shaping: Shaping) -> str:
    if not shaping.available:
        return f"unshaped, no claim about speed ({shaping.reason})"
    *_, last = outcomes.values()
    share = shares(outcomes)[last.name]
    if share is None:
        return f"{last.title} did not reach DDP's held-out loss"
    return f"{last.title} reached DDP's held-out loss in {share:.2f} of its seconds at {shaping.megabits:g} Mbit/s"


def show(console: Console, outcomes: dict[str, Outcome], shaping: Shaping) -> None:
    console.print()
    console.print(chart(outcomes))
    console.print()
    console.print(table(outcomes))
    console.print(LEGEND, style="dim")
    console.print(conclusion(outcomes, shaping))
