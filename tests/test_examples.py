"""The examples run, in their short form, as their first lines say."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SECONDS = 150


def start(*command: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(EXAMPLES)}
    return subprocess.Popen(
        [sys.executable, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


def said(process: subprocess.Popen[str]) -> str:
    """What it printed; none of its children outlives it."""
    try:
        out, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
        pytest.fail(f"it hangs:\n{out}")
    assert process.returncode == 0, out
    return out


def torchrun(name: str, *arguments: str) -> str:
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", f"--master-port={free_port()}"]
    return said(start(*command, str(EXAMPLES / name), *arguments))


def trained(text: str) -> None:
    """Forty steps of two workers: far above chance, which is 0.1."""
    found = re.search(r"held-out accuracy ([\d.]+)", text)
    assert found and float(found[1]) > 0.6, text


def test_a_plain_loop() -> None:
    trained(torchrun("plain.py", "--steps", "40", "--spec", "local_sgd"))


def test_accumulation_with_a_loss_scale_and_clipping() -> None:
    trained(torchrun("accumulate_amp_clip.py", "--steps", "40", "--spec", "choco"))


def test_accelerate() -> None:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed")
    trained(torchrun("with_accelerate.py", "--steps", "40"))


def test_lightning() -> None:
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed")
    trained(said(start(str(EXAMPLES / "with_lightning.py"), "--steps", "40", "--spec", "dpsgd_atc")))


def test_two_hosts() -> None:
    """Two agents on one machine, as two hosts would start them."""
    command = [
        "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d",
        "--rdzv-id", "relaxed", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", str(EXAMPLES / "two_hosts.py"),
        "--steps", "40",
    ]  # fmt: skip
    agents = [start(*command) for _ in range(2)]
    texts = [said(agent) for agent in agents]
    trained("".join(texts))
    assert {m for text in texts for m in re.findall(r"rank (\d) of 2", text)} == {"0", "1"}
