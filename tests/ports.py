"""A port for a store that another process is to open: one that no connection is given by chance meanwhile."""

from __future__ import annotations

import os
import socket
from pathlib import Path

FIRST = 10_000
"""Below it are services."""


def free_port() -> int:
    """Nobody listens there, and it lies below those that the system gives to whoever connects.

    A port that the system has picked itself may be picked again, by a Gloo pair of another test, before the store is up.
    """
    last = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(200):
        port = FIRST + int.from_bytes(os.urandom(4), "little") % (last - FIRST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port in {FIRST}..{last}")
