"""Order between streams, and what a device's failure does, on a device that only says what it is asked (see
logging_device.cpp): what emulation on the CPU can't see, since there whatever has returned is done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils.cpp_extension import include_paths, library_paths

from relaxc.build import compiler

HERE = Path(__file__).parent
BEGIN = """
import ctypes, sys, threading, time, torch
ctypes.CDLL(sys.argv[1])
from relaxc.build.runtime import load_runtime
runtime = load_runtime()
library = runtime.DeviceLibrary(None, torch.device("privateuseone", 0), 0, b"", [])

class Watch:
    slice = 0.1
    def on_wait(self, *_):
        pass
    def on_failure(self, *what):
        print("failure:", *what, flush=True)
        raise RuntimeError("told")

operations = runtime.Operations(runtime.Channel(), 0, 1, 0, None, Watch(), survives=True, device=library)
job = operations.job([])
"""
LANDS = """
def matchmaker():
    operations.start(job, 0)
    while not operations.over(job):
        time.sleep(0.001)

thread = threading.Thread(target=matchmaker)
thread.start()
thread.join()
print("arrived", file=sys.stderr, flush=True)
operations.over(job)
print("lands", file=sys.stderr, flush=True)
operations.stop()
"""
IN_STEP = """
def says(what):
    time.sleep(0.3)
    print(what, file=sys.stderr, flush=True)

job = operations.job([runtime.Piece(0, phases=[[]])])
operations.run([], 0, [])
says("computed")
operations.start(job, 0, held=True)
says("started")
operations.ready(job, 0)
says("ready")
operations.wait(job, 0)
says("waited")
operations.stop()
"""
FAILS = """
try:
    operations.start(job, 0)
    for _ in range(3):
        time.sleep(0.1)
        operations.wait(job, -1)
        operations.free(job)
    print("failed:", operations.failure(job), flush=True)
except RuntimeError as error:
    print("raised:", error, flush=True)
operations.stop()
"""


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("device") / "device.so"
    command = [
        *compiler.find().command, "-std=c++20", "-O0", "-shared", "-fPIC", *(f"-I{path}" for path in include_paths()),
        str(HERE / "logging_device.cpp"), "-o", str(library), *(f"-L{path}" for path in library_paths()), "-lc10",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return library


def ran(device: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + program, str(device)], env={**os.environ, **environment}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip


def test_what_has_arrived_is_followed_by_the_stream_of_whoever_asks(device: Path) -> None:
    """The matchmaker's stream (0) comes behind the queue's when it finds that a job is over, and the trainer's (7) when
    the trainer asks, as a lane does where it lands."""
    done = ran(device, LANDS)
    assert done.returncode == 0, done.stderr
    before, _, behind = done.stderr.partition("arrived")
    lines = before.split("\n")
    assert "record 1" in lines and lines.index("follow 0") > lines.index("record 1") and "follow 7" not in lines
    assert "follow 7" in behind.partition("lands")[0]
    assert "the host waits" not in done.stderr


def test_each_side_comes_behind_what_the_other_was_given(device: Path) -> None:
    """The queue's stream (1) behind what was computed, and a bucket's messages behind what made it ready; the
    trainer's (7) behind them where it waits. The host waits for none of it."""
    done = ran(device, IN_STEP)
    assert done.returncode == 0, done.stderr
    steps = done.stderr.split()
    places = [steps.index(word) for word in ("computed", "started", "ready", "waited")]
    between = {
        word: [" ".join(steps[n : n + 2]) for n in range(before, after) if steps[n] in ("record", "follow")]
        for word, before, after in zip(("computed", "started", "ready", "waited"), (0, *places), places, strict=False)
    }
    assert between["computed"] == ["record 7"]
    assert between["started"] == ["follow 1"]
    assert between["ready"][:3] == ["record 7", "follow 1", "record 1"]
    assert between["waited"] == ["follow 7"]
    assert "the host waits" not in done.stderr


def test_a_device_that_has_failed_does_not_end_the_process(device: Path) -> None:
    """The exchange's thread only notes it: the exception is the trainer's, whose own call says what is wrong."""
    done = ran(device, FAILS, FAILS="1")
    assert done.returncode == 0, done.stderr
    assert "device-side assert triggered" in done.stdout
