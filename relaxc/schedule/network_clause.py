"""The network of a spec's `cluster { }`."""

from __future__ import annotations

from relaxc.language.spec import Cluster
from relaxc.schedule.network import Network
from relaxc.schedule.network_text import described


def network_of(cluster: Cluster) -> Network:
    line, _ = cluster.span.source.position(cluster.span.start)
    where = f"{cluster.span.source.name}:{line}"
    return described(
        cluster.bandwidth,
        cluster.latency,
        cluster.workers,
        cluster.per_machine,
        cluster.inner,
        f"the cluster in {where}",
    )
