"""Is a topology a tree: is there one path between any two workers?"""

from __future__ import annotations

from relaxc.topology.kinds import rows
from relaxc.topology.spectrum import connected
from relaxc.topology.topology import Topology

ALWAYS = ("chain", "star")


def never_a_tree(topology: Topology) -> str | None:
    """What `topology` is instead for some number of workers that it serves; None where it may be one."""
    if topology.name in ALWAYS:
        return None
    if topology.name != "edges":
        return f"{topology} is no tree"
    return not_a_tree(topology, 1 + max(rank for edge in topology.arguments for rank in edge[:2]))  # type: ignore[index]


def not_a_tree(topology: Topology, workers: int) -> str | None:
    """Why `workers` workers, which the topology serves, are no tree; None where they are."""
    if not connected(topology, workers):
        return f"{topology} leaves some of {workers} workers apart"
    links = sum(len(row) - 1 for row in rows(topology, workers, 0, 0)) // 2
    return None if links == workers - 1 else f"{topology} has a circle"
