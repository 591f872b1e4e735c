"""`relaxc demo --quick`, end to end."""

import io
import os
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from relaxc.demo import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
DEMO = "from relaxc.demo import run; import sys, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "


def quick(*exchanges: str, steps: int = 8) -> tuple[int, str]:
    text = io.StringIO()
    console = Console(file=text, width=100, force_terminal=False)
    status = run(workers=2, steps=steps, quick=True, console=console, exchanges=exchanges)
    return status, text.getvalue()


def rows(text: str) -> dict[str, list[str]]:
    """The table, by the first column."""
    names = ("DDP, fp32", "DDP, fp16 hook", "relaxc quickstart")
    lines = [line.strip() for line in text.splitlines() if " MB" in line]
    return {name: line[len(name) :].split() for line in lines for name in names if line.startswith(name)}


def test_the_three_runs_are_compared() -> None:
    status, text = quick("ddp", "fp16", "quickstart")
    assert status == 0, text
    table = rows(text)
    assert set(table) == {"DDP, fp32", "DDP, fp16 hook", "relaxc quickstart"}
    sent = {name: float(row[0]) for name, row in table.items()}
    predicted = {name: float(row[2]) for name, row in table.items()}
    assert predicted["DDP, fp16 hook"] == pytest.approx(predicted["DDP, fp32"] / 2, rel=0.05)
    assert predicted["relaxc quickstart"] < predicted["DDP, fp16 hook"]
    if "unshaped" not in text:
        assert all(predicted[name] * 0.95 - 0.01 < sent[name] < predicted[name] * 1.25 + 0.02 for name in table)
    assert "held-out loss, nats a character" in text and "seconds of training" in text
    assert "of its seconds at 200 Mbit/s" in text or "did not reach" in text or "unshaped, no claim about speed" in text


def test_ctrl_c_ends_it_and_what_it_started() -> None:
    command = [sys.executable, "-c", DEMO + "sys.exit(run(workers=2, steps=100000, quick=True, exchanges=('ddp',)))"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert demo.stdout is not None
    with demo:
        while "warming up" not in demo.stdout.readline():
            assert demo.poll() is None
        started = children(demo.pid)
        assert len(started) >= 2
        demo.send_signal(signal.SIGINT)
        assert "every process has been ended" in demo.stdout.read()
        assert demo.wait(timeout=120) == 130
    assert not any(map(exists, started))


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123 - procfs
        return [int(child) for child in file.read().split()]


def exists(pid: int) -> bool:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True
