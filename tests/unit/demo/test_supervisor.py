"""A worker that dies ends the demo with its last words."""

import sys

import pytest

from relaxc.demo import supervisor
from relaxc.demo.events import Preparing, to_line
from relaxc.demo.hosts import unshaped_hosts
from relaxc.demo.settings import Settings, quick

SPEAKS = f"print('noise'); print({to_line(Preparing('x'))!r}, flush=True); "
HANGS = "import time; time.sleep(600)"


def outcome(*programs: str) -> list[object]:
    with unshaped_hosts(len(programs)) as hosts:
        workers = [
            supervisor.start_worker(hosts, rank, 1, [sys.executable, "-c", text]) for rank, text in enumerate(programs)
        ]
        return list(supervisor.events(workers))


def test_events_until_all_have_ended() -> None:
    assert outcome(SPEAKS, "pass") == [Preparing("x")]


def test_a_worker_that_ends_badly_while_another_waits() -> None:
    with pytest.raises(supervisor.WorkerFailed, match="worker 1 ended with exit status 3; its last lines:\nlast words"):
        outcome(SPEAKS + HANGS, "import sys; print('last words', file=sys.stderr); sys.exit(3)")


def test_the_one_that_was_killed_is_the_cause() -> None:
    killed = "import os; os.kill(os.getpid(), 9)"
    with pytest.raises(supervisor.WorkerFailed, match="worker 1 was ended by signal 9"):
        outcome(SPEAKS + HANGS, killed, HANGS)


def test_only_the_last_lines_are_told() -> None:
    with pytest.raises(supervisor.WorkerFailed) as raised:
        outcome("import sys; [print(i, file=sys.stderr) for i in range(100)]; sys.exit(1)")
    assert str(raised.value).splitlines()[1:] == [str(i) for i in range(100 - supervisor.LAST_LINES, 100)]


def test_silence_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "SILENCE", 0.5)
    monkeypatch.setattr(supervisor, "PREPARATION", 0.5)
    with pytest.raises(supervisor.WorkerFailed, match="worker 0 has said nothing for"):
        outcome(HANGS)


def test_settings_survive_the_command_line() -> None:
    assert Settings.from_json(quick(8).to_json()) == quick(8)


def test_the_rate_rises_falls_and_stays() -> None:
    settings = Settings(steps=100, warmup=10, floor=0.2)
    assert settings.rate_at(0) == pytest.approx(0.1)
    assert settings.rate_at(50) == pytest.approx(0.6)
    assert settings.rate_at(100) == settings.rate_at(130) == pytest.approx(0.2)
