"""The probe with real workers: on loopback, over shaped links, and where it can't run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ports import free_port

from relaxc import cli
from relaxc.schedule.network_file import read_network

PROBE = ["-m", "relaxc", "probe", "-o"]


def torchrun(workers: int, output: Path) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc-per-node={workers}",
        f"--master-port={free_port()}",
    ]
    return subprocess.Popen(
        [*command, *PROBE, str(output)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_workers_on_loopback(tmp_path: Path) -> None:
    output = tmp_path / "cluster.json"
    out, err = torchrun(3, output).communicate(timeout=500)
    network = read_network(output)
    assert (network.workers, network.per_machine) == (3, 3)
    assert network.inner == network.link and 0 < network.link.at(1 << 20) < 1
    assert network.reduce is not None and network.reduce.at(1 << 20) > 0
    assert 0 < network.wire.at(1 << 20) < 1
    assert set(network.codings) == {
        "exact", "bf16", "minmax(bits = 8, block = 512, rounding = nearest)",
        "minmax(bits = 4, block = 512, rounding = nearest)",
    }  # fmt: skip
    for coding in network.codings.values():
        assert 0 < coding.encode.at(1e6) < 1 and 0 < coding.decode.at(1e6) < 1
    assert out.count("error of the fit") == 1 and out.count(f"{output}: written") == 1
    assert err.count("relaxc probe: all-reduce") == 1
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_control_c_leaves_nothing(tmp_path: Path) -> None:
    process = torchrun(2, tmp_path / "cluster.json")
    assert process.stderr is not None
    for line in process.stderr:
        if "relaxc probe: links" in line:
            break
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    process.communicate(timeout=60)
    assert process.returncode != 0 and not list(tmp_path.iterdir())
    end = time.monotonic() + 120
    while subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, check=False).stdout:
        assert time.monotonic() < end, "workers go on"
        time.sleep(0.1)


def test_it_says_how_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "cluster.json"
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert cli.status(["probe", "-o", str(output)]) == 2
    assert "torchrun --nnodes" in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    assert cli.status(["probe", "-o", str(output)]) == 2
    assert "start two at least" in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert cli.status(["probe", "-o", str(tmp_path / "absent" / "cluster.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
