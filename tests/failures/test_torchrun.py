"""Under torchrun: a restart after a loss, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nursery import patience
from ports import free_port

PROGRAM = Path(__file__).parent / "programs" / "elastic.py"


def start(what: str, folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        f"--master-port={free_port()}",
        *options,
    ]
    return subprocess.Popen(
        [*command, str(PROGRAM), what, str(folder)], stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folders = {what: tmp_path_factory.mktemp(what) for what in ("die", "wait")}
    started = {
        "die": start("die", folders["die"], "--max-restarts=1"),
        "wait": start("wait", folders["wait"]),
    }
    yield started, folders
    for process in started.values():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_control_c_leaves_no_process(runs) -> None:
    process, folder = runs[0]["wait"], runs[1]["wait"]
    end = time.monotonic() + patience(60)
    while not (folder / "waiting").exists():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.1)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, said = process.communicate(timeout=patience(30))
    assert "terminate called" not in said
    pids = [int(path.read_text()) for path in folder.glob("attached.*")]
    assert len(pids) == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_the_second_attempt_trains(runs) -> None:
    process, folder = runs[0]["die"], runs[1]["die"]
    _, said = process.communicate(timeout=patience(90))
    assert process.returncode == 0, said
    assert "terminate called" not in said
    assert sorted(p.name for p in folder.glob("done.*")) == ["done.1.0", "done.1.1"]
    results = [json.loads((folder / f"done.1.{rank}").read_text()) for rank in (0, 1)]
    assert results[0] == results[1]
    assert results[0]["iterations"] == 8


def test_a_worker_that_its_own_torchrun_starts_again_rejoins(tmp_path: Path) -> None:
    """One torchrun for each worker, as the README has it."""
    port = free_port()
    program, workers = PROGRAM.with_name("comes_back.py"), 3
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", "--max-restarts=1"]
    started = [
        subprocess.Popen(
            [*command, str(program), str(rank), str(workers), str(port), str(tmp_path)], stderr=subprocess.PIPE, text=True,
            start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(workers)
    ]  # fmt: skip
    try:
        wait_for(started, [tmp_path / f"attached.{rank}.0" for rank in range(workers)])
        time.sleep(1)
        os.kill(int((tmp_path / "attached.2.0").read_text()), signal.SIGKILL)
        wait_for(started, [tmp_path / "attached.2.1"])
        time.sleep(1)
        (tmp_path / "end").touch()
        said = [process.communicate(timeout=patience(60))[1] for process in started]
        assert [process.returncode for process in started] == [0] * workers, said
        assert len({(tmp_path / f"done.{rank}").read_text() for rank in range(workers)}) == 1
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def wait_for(started: list[subprocess.Popen[str]], paths: list[Path]) -> None:
    end = time.monotonic() + patience(90)
    while not all(path.exists() and path.read_text() for path in paths):
        assert time.monotonic() < end and all(process.poll() is None for process in started)
        time.sleep(0.1)
