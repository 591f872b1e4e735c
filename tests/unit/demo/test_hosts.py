"""Hosts in namespaces: they reach each other at the rate asked for, and nothing of them outlives their parent."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from relaxc.demo import hosts as hosts_module
from relaxc.demo.counters import Traffic, interface_traffic, parse
from relaxc.demo.hosts import Hosts, Unavailable, hosts_or_loopback, shaped_hosts, unshaped_hosts

MEGABITS = 40
SERVER = """
import socket, sys
listener = socket.create_server((sys.argv[1], 0))  # any port: on loopback others may have taken one
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
total = 0
while chunk := peer.recv(1 << 16):
    total += len(chunk)
peer.sendall(b"done")
print(total, flush=True)
"""
CLIENT = """
import socket, sys, time
peer = socket.create_connection((sys.argv[1], int(sys.argv[3])))
start = time.monotonic()
peer.sendall(bytes(int(sys.argv[2])))
peer.shutdown(socket.SHUT_WR)
assert peer.recv(4) == b"done"
print(time.monotonic() - start, flush=True)
"""
PARENT = """
import os, signal, subprocess, sys, time
from relaxc.demo.hosts import hosts_or_loopback
signal.signal(signal.SIGINT, signal.default_int_handler)
with hosts_or_loopback(2, 100) as hosts:
    workers = [hosts.spawn(i, ["sleep", "600"]) for i in range(2)]
    pids = [w.pid for w in workers] + hosts.holders
    space = os.readlink(f"/proc/{pids[-1]}/ns/net")
    print(hosts.shaping.available, space, *pids, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def two() -> Iterator[Hosts]:
    try:
        with shaped_hosts(2, MEGABITS) as hosts:
            yield hosts
    except Unavailable as error:
        pytest.skip(f"hosts cannot be made here: {error}")


def send(hosts: Hosts, count: int) -> float:
    """Bytes from host 1 to host 0; the seconds it took."""
    server = hosts.spawn(0, [sys.executable, "-c", SERVER, hosts.address(0)], stdout=subprocess.PIPE)
    assert server.stdout is not None
    with server.stdout:
        port = server.stdout.readline().decode().strip()
        command = [sys.executable, "-c", CLIENT, hosts.address(0), str(count), port]
        client = hosts.spawn(1, command, stdout=subprocess.PIPE)
        output, _ = client.communicate(timeout=60)
        assert int(server.stdout.readline()) == count
    return float(output)


def test_hosts_reach_each_other_and_the_interfaces_count_it(two: Hosts) -> None:
    before = [two.traffic(0), two.traffic(1)]
    seconds = send(two, 2_000_000)
    at_server, at_client = two.traffic(0) - before[0], two.traffic(1) - before[1]
    assert 2_000_000 < at_client.sent < 2_200_000
    assert 2_000_000 < at_server.received < 2_200_000
    assert at_server.sent < 200_000  # acknowledgements
    # 0.4 s at the rate, less what the buckets hold; a busy machine may take longer, never less
    assert seconds > 0.5 * 2_000_000 * 8 / (MEGABITS * 1e6)


def test_a_host_has_its_link_and_loopback_and_nothing_else(two: Hosts) -> None:
    worker = two.spawn(0, ["cat", "/proc/net/dev"], stdout=subprocess.PIPE)
    table = worker.communicate(timeout=30)[0].decode()
    assert {line.split(":")[0].strip() for line in table.splitlines() if ":" in line} == {"lo", "eth0"}


def test_two_sets_of_hosts_at_once(two: Hosts) -> None:
    with shaped_hosts(1, MEGABITS) as others:
        spaces = {str(Path(f"/proc/{pid}/ns/net").readlink()) for pid in two.holders + others.holders}
    assert len(spaces) == 3


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def in_use(namespace: str) -> bool:
    for process in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):
            if str(process.readlink()) == namespace:
                return True
    return False


def gone(pids: list[int], namespace: str, seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while any(map(alive, pids)) or in_use(namespace):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_the_parent(number: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    with parent:
        shaped, namespace, *rest = parent.stdout.readline().split()
        pids = [int(pid) for pid in rest]
        assert all(map(alive, pids))
        parent.send_signal(number)
        parent.wait(timeout=30)
    assert gone(pids, namespace if shaped == "True" else "none")


def test_closing_ends_what_was_spawned_and_what_it_spawned() -> None:
    with hosts_or_loopback(1, MEGABITS) as hosts:
        worker = hosts.spawn(0, ["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE)
        assert worker.stdout is not None
        grandchild = int(worker.stdout.readline())
        worker.stdout.close()
    assert worker.returncode == -signal.SIGKILL
    assert gone([worker.pid, grandchild], "none")


def test_without_iproute_it_goes_on_unshaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with hosts_or_loopback(2, MEGABITS) as hosts:
        assert not hosts.shaping.available
        assert hosts.shaping.reason == "ip and tc of iproute2 not found"
        monkeypatch.undo()
        before = hosts.traffic(0)
        send(hosts, 100_000)
        assert (hosts.traffic(0) - before).sent > 100_000
        assert hosts.gloo(0) == {"GLOO_SOCKET_IFNAME": "lo"}
        assert hosts.rendezvous(1, 5)["MASTER_ADDR"] == "127.0.0.1"


def test_a_refusal_names_what_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_module, "_held", refuse)
    with hosts_or_loopback(1, MEGABITS) as hosts:
        assert hosts.shaping.reason == "no namespaces: Operation not permitted" or "iproute2" in hosts.shaping.reason


def refuse(*_: object) -> None:
    raise Unavailable("no namespaces: Operation not permitted")


def test_a_command_that_is_not_there_ends_with_a_status() -> None:
    with unshaped_hosts(1) as hosts:
        worker = hosts.spawn(0, ["no-such-command-here"], stderr=subprocess.PIPE)
        _, errors = worker.communicate(timeout=30)
    assert worker.returncode == 1
    assert b"No such file" in errors


def test_counters_by_hand() -> None:
    table = "Inter-| Receive | Transmit\n face |bytes\n  lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\neth0:70 2 0 0 0 0 0 0 9 4 0 0 0 0 0 0\n"
    assert parse(table, "eth0") == Traffic(sent=9, received=70)
    assert parse(table, "lo") == Traffic(sent=3, received=1)
    with pytest.raises(LookupError, match="no interface eth1"):
        parse(table, "eth1")
    assert interface_traffic("lo").sent >= 0
