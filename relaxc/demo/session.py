"""`relaxc demo`, from hosts to report."""

from collections.abc import Sequence

from rich.console import Console

from relaxc.demo import report, settings, supervisor
from relaxc.demo.hosts import Hosts, hosts_or_loopback
from relaxc.demo.live import Display
from relaxc.demo.outcome import Outcome, record

EXCHANGES = ("ddp", "fp16", "quickstart")
FULL_STEPS = 84
QUICK_STEPS = 8


def run(
    *,
    workers: int = 4,
    megabits: float = 200,
    steps: int | None = None,
    quick: bool = False,
    console: Console | None = None,
    exchanges: Sequence[str] = EXCHANGES,
) -> int:
    """Train the same thing with each exchange and compare; 0, or 1 where a worker failed, 130 after Ctrl-C."""
    console = console or Console()
    wanted = settings.quick(steps or QUICK_STEPS) if quick else settings.full(steps or FULL_STEPS)
    try:
        with hosts_or_loopback(workers, megabits) as hosts:
            outcomes = train(hosts, wanted, exchanges, console)
            report.show(console, outcomes, hosts.shaping)
    except supervisor.WorkerFailed as error:
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted: every process has been ended, and the hosts are gone")
        return 130
    return 0


def train(hosts: Hosts, wanted: settings.Settings, exchanges: Sequence[str], console: Console) -> dict[str, Outcome]:
    console.print(introduction(hosts, wanted))
    outcomes: dict[str, Outcome] = {}
    workers = supervisor.start(hosts, wanted, exchanges)
    with Display(console, exchanges, wanted.steps) as display:
        for event in supervisor.events(workers):
            record(outcomes, event)
            display.show(event)
    return outcomes


def introduction(hosts: Hosts, wanted: settings.Settings) -> str:
    shaping = hosts.shaping
    links = (
        f"each with a link of {shaping.megabits:g} Mbit/s"
        if shaping.available
        else f"unshaped, no claim about speed ({shaping.reason})"
    )
    return (
        f"{hosts.count} workers, {links}: a character transformer learns the source of Python's standard library, "
        f"{wanted.size.context} characters a worker and step, {wanted.steps} steps"
    )
