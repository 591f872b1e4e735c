"""Several hosts on one machine: network namespaces joined by a bridge, each link shaped to a rate.

The namespaces have no names. Each is held by a process that ends with this one, and a namespace ends with the last
process in it, so nothing is left behind however this process ends. As root they are made directly, otherwise in one
user namespace that holds them all. Where neither is allowed, or ``ip`` and ``tc`` are absent, `unshaped_hosts` has the
same interface with plain processes on loopback.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from relaxc.demo.counters import Traffic, interface_traffic

INTERFACE = "eth0"
ENTRY = Path(__file__).with_name("in_host.py")
SETUP_TIMEOUT = 20.0
"""Seconds for each command that sets the network up."""
LARGEST_SEGMENT = 80 * 1024
"""Bytes. A burst below one offloaded packet (64 KB) would have the kernel cut each to pieces, and cores are few."""


class Unavailable(Exception):
    """Hosts cannot be made here; the text says why."""


@dataclass(frozen=True)
class Shaping:
    """Whether the links have the rate that was asked for, and if not, why not."""

    megabits: float | None
    reason: str = ""

    @classmethod
    def unavailable(cls, reason: str) -> "Shaping":
        return cls(None, reason)

    @property
    def available(self) -> bool:
        return self.megabits is not None


def bucket(megabits: float) -> tuple[int, int]:
    """Burst and queue in bytes of a token bucket of that rate: 1 ms of burst, and room for several senders at once."""
    per_second = megabits * 1e6 / 8
    return max(LARGEST_SEGMENT, int(per_second / 1000)), max(1 << 20, int(per_second / 40))


def address(index: int) -> str:
    return f"10.77.{index // 250}.{index % 250 + 1}"


@dataclass
class Hosts:
    """`count` hosts. Spawn from the thread that made them: a process's life is tied to the thread that started it."""

    count: int
    shaping: Shaping
    namespaces: list[list[str]]
    """For each host, the namespace files to enter; none where hosts are plain processes."""
    holders: list[int]
    processes: list["subprocess.Popen[Any]"] = field(default_factory=list)

    def spawn(
        self,
        index: int,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
    ) -> "subprocess.Popen[Any]":
        """Start a command on a host. Its session is its own: Ctrl-C reaches this process, which ends it in `close`."""
        process = _start(
            ["run", str(os.getpid()), *self.namespaces[index], "--", *command],
            env={**os.environ, **(env or {}), **self.gloo(index)},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
        self.processes.append(process)
        return process

    def gloo(self, index: int) -> dict[str, str]:
        """Environment by which Gloo binds to this host's link, with no look-up of host names."""
        return {"GLOO_SOCKET_IFNAME": self.interface}

    @property
    def interface(self) -> str:
        return INTERFACE if self.shaping.available else "lo"

    def address(self, index: int) -> str:
        return address(index) if self.shaping.available else "127.0.0.1"

    def free_port(self) -> int:
        """A port of host 0 that nothing listens on."""
        if self.shaping.available:
            return 29500
        with socket.socket() as probe:
            probe.bind((self.address(0), 0))
            return int(probe.getsockname()[1])

    def traffic(self, index: int) -> Traffic:
        """Bytes that this host's link has carried so far, headers included (all of loopback's where hosts share it)."""
        return interface_traffic(self.interface, self.holders[index] if self.holders else None)

    def rendezvous(self, rank: int, port: int) -> dict[str, str]:
        """The variables that torch.distributed's env:// reads, for one worker a host."""
        return {
            "RANK": str(rank),
            "LOCAL_RANK": "0" if self.shaping.available else str(rank),
            "WORLD_SIZE": str(self.count),
            "MASTER_ADDR": self.address(0),
            "MASTER_PORT": str(port),
        }

    def close(self) -> None:
        """End every process that was spawned and is still there."""
        for process in self.processes:
            end(process)


def end(process: "subprocess.Popen[Any]") -> None:
    """End a process of ours and what it has started, by its own group's id."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _start(arguments: Sequence[str], **streams: Any) -> "subprocess.Popen[Any]":
    return subprocess.Popen([sys.executable, "-I", "-S", str(ENTRY), *arguments], start_new_session=True, **streams)


def _run(namespaces: Sequence[str], command: Sequence[str], text: str) -> None:
    """Run a command of iproute2 in those namespaces with `text` as its input."""
    result = subprocess.run(
        [sys.executable, "-I", "-S", str(ENTRY), "run", str(os.getpid()), *namespaces, "--", *command],
        input=text,
        capture_output=True,
        text=True,
        timeout=SETUP_TIMEOUT,
        check=False,
    )
    if result.returncode != 0:
        raise Unavailable(f"`{command[0]}` failed: {_last_line(result.stderr)}")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"


@contextmanager
def _held(flags: str, namespaces: Sequence[str] = ()) -> "Iterator[subprocess.Popen[str]]":
    """A process in new namespaces that lives until its input is closed."""
    process: subprocess.Popen[str] = _start(
        ["hold", str(os.getpid()), flags, *namespaces],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None and process.stderr is not None
            if process.stdout.readline().strip() != "ready":
                raise Unavailable(f"no namespaces: {_last_line(process.stderr.read())}")
            yield process
        finally:
            end(process)


def _files(user: int | None, network: int) -> list[str]:
    return ([f"/proc/{user}/ns/user"] if user is not None else []) + [f"/proc/{network}/ns/net"]


def _switch_links(holders: Sequence[int]) -> str:
    """Input of ``ip -batch`` for the switch: a bridge, and a cable to each host. No IPv6: Gloo might pick it."""
    lines = ["link add name bridge0 type bridge", "link set dev bridge0 addrgenmode none", "link set dev bridge0 up"]
    for index, holder in enumerate(holders):
        lines += [
            f"link add name port{index} type veth peer name {INTERFACE} netns {holder}",
            f"link set dev port{index} addrgenmode none",
            f"link set dev port{index} master bridge0",
            f"link set dev port{index} up",
        ]
    return "\n".join(lines) + "\n"


def _host_links(index: int) -> str:
    lines = [
        "link set dev lo up",
        f"link set dev {INTERFACE} addrgenmode none",
        f"address add {address(index)}/16 dev {INTERFACE}",
        f"link set dev {INTERFACE} up",
    ]
    return "\n".join(lines) + "\n"


def _shape(devices: Sequence[str], megabits: float) -> str:
    burst, limit = bucket(megabits)
    kilobits = round(megabits * 1000)
    return "".join(f"qdisc add dev {d} root tbf rate {kilobits}kbit burst {burst}b limit {limit}b\n" for d in devices)


def _require_tools() -> None:
    absent = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if absent:
        raise Unavailable(f"{' and '.join(absent)} of iproute2 not found")
    if not sys.platform.startswith("linux"):
        raise Unavailable("no network namespaces on this system")


def _connect(
    switch: Sequence[str], namespaces: Sequence[Sequence[str]], holders: Sequence[int], megabits: float
) -> None:
    _run(switch, ["ip", "-batch", "-"], _switch_links(holders))
    for index, files in enumerate(namespaces):
        _run(files, ["ip", "-batch", "-"], _host_links(index))
        _run(files, ["tc", "-batch", "-"], _shape([INTERFACE], megabits))
    _run(switch, ["tc", "-batch", "-"], _shape([f"port{i}" for i in range(len(holders))], megabits))


@contextmanager
def shaped_hosts(count: int, megabits: float) -> Iterator[Hosts]:
    """Hosts joined at `megabits` (10^6 bit/s in each direction of each link); raises `Unavailable`."""
    _require_tools()
    with ExitStack() as stack:
        root = os.geteuid() == 0
        switch = stack.enter_context(_held("n" if root else "Un")).pid
        user = None if root else switch
        within = [] if user is None else [f"/proc/{user}/ns/user"]
        holders = [stack.enter_context(_held("n", within)).pid for _ in range(count)]
        namespaces = [_files(user, holder) for holder in holders]
        _connect(_files(user, switch), namespaces, holders, megabits)
        hosts = Hosts(count, Shaping(megabits), namespaces, holders)
        stack.callback(hosts.close)
        yield hosts


@contextmanager
def unshaped_hosts(count: int, reason: str = "") -> Iterator[Hosts]:
    """The same without a network of their own: plain processes on loopback."""
    hosts = Hosts(count, Shaping.unavailable(reason), [[] for _ in range(count)], [])
    try:
        yield hosts
    finally:
        hosts.close()


@contextmanager
def hosts_or_loopback(count: int, megabits: float) -> Iterator[Hosts]:
    """Shaped hosts where this machine allows them, otherwise plain processes; `hosts.shaping` says which."""
    with ExitStack() as stack:
        try:
            hosts = stack.enter_context(shaped_hosts(count, megabits))
        except Unavailable as error:
            hosts = stack.enter_context(unshaped_hosts(count, str(error)))
        yield hosts
