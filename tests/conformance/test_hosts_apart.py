"""Two hosts of two workers, in namespaces of their own: what crosses the link between them is what explain says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

import relaxc
from relaxc import pipeline
from relaxc.demo.hosts import Hosts, Unavailable, shaped_hosts
from relaxc.explain import explain, megabytes
from relaxc.language.source import Source
from relaxc.program.figures import sent_in, travelled

HOSTS, INNER, ITERATIONS = 2, 2, 10
SPECS = {
    "hierarchy": "relax gradients { route = hierarchy, compress = 8bit, feedback = worker }",
    "all": "relax gradients { compress = 8bit, feedback = worker }",
}
WORKER = """
import sys
import torch
import torch.distributed as dist
import relaxc
from relaxc.demo.counters import interface_traffic

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(1000, 1000, bias=False)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
relaxed = relaxc.compile(sys.argv[1]).attach(model, optimizer, timeout=60)

def step():
    optimizer.zero_grad()
    model(torch.ones(2, 1000)).sum().backward()
    optimizer.step()

step()
dist.barrier()
before = interface_traffic("eth0").sent
for _ in range(int(sys.argv[2])):
    step()
dist.barrier()
print(interface_traffic("eth0").sent - before, flush=True)
relaxed.detach()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    try:
        with shaped_hosts(HOSTS, 1000) as made:
            yield made
    except Unavailable as error:
        pytest.skip(f"hosts cannot be made here: {error}")


def crossed(hosts: Hosts, spec: str, port: int) -> list[int]:
    """Bytes that the link of each host has sent in ITERATIONS iterations."""
    workers = []
    for rank in range(HOSTS * INNER):
        env = {
            "RANK": str(rank), "LOCAL_RANK": str(rank % INNER), "WORLD_SIZE": str(HOSTS * INNER),
            "LOCAL_WORLD_SIZE": str(INNER), "MASTER_ADDR": hosts.address(0), "MASTER_PORT": str(port),
        }  # fmt: skip
        command = [sys.executable, "-c", WORKER, spec, str(ITERATIONS)]
        workers.append(hosts.spawn(rank // INNER, command, env=env, stdout=subprocess.PIPE))
    said = [int(worker.communicate(timeout=120)[0]) for worker in workers]
    return [max(said[host * INNER : (host + 1) * INNER]) for host in range(HOSTS)]


@pytest.mark.slow
def test_what_crosses_is_what_explain_says(hosts: Hosts) -> None:
    """To a twentieth: packets have headers, and a census of a byte per parameter goes along."""
    for spec in SPECS.values():
        relaxc.compile(spec)  # once, before all workers want it
    typed = pipeline.to_typed(pipeline.to_spec(Source("spec", SPECS["hierarchy"]), {}))
    (sent,) = sent_in(typed.program.bodies[0], "")
    each = travelled(sent, HOSTS * INNER)[True]
    shown = explain(typed.program, pipeline.to_paths(typed.program), typed.facts, [HOSTS * INNER])
    assert f"in machines of {INNER}: {megabytes(round(each))} across machines" in shown
    for found in crossed(hosts, SPECS["hierarchy"], 29501):
        assert 1 <= found / (INNER * each * ITERATIONS) < 1.05
    for found in crossed(hosts, SPECS["all"], 29502):
        assert 2 <= found / (INNER * each * ITERATIONS) < 2.1
