"""Relays and pushes on real workers: messages in several pieces, checkpoints of what edges hold, refusals at attach."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import loops
import torch
from pool import Pool
from torch import nn

LARGE = 100_003
"""Elements of several pieces."""
RELAY = "algorithm r { step  weight = relay(weight, GRAPH) / workers }\nrelax with r"


def large() -> nn.ParameterList:
    draw = torch.Generator().manual_seed(3)
    return nn.ParameterList([torch.randn(LARGE, generator=draw), torch.randn(7, generator=draw), torch.randn(0)])


def stepped(model: nn.ParameterList, optimizer: torch.optim.Optimizer, rank: int, t: int) -> None:
    optimizer.zero_grad()
    sum((p * (rank + t + 1)).sum() for p in model).backward()
    optimizer.step()


def relayed(rank: int, workers: int, graph: str) -> list[Any]:
    model = large()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    plan = loops.plan(RELAY.replace("GRAPH", graph))
    relaxed = plan.attach(model, optimizer, timeout=60)
    seen = []
    for t in range(3):
        stepped(model, optimizer, rank, t)
        relaxed.complete()
        seen.append([p.detach().clone() for p in model])
    saved = copy.deepcopy((relaxed.state_dict(), model.state_dict()))
    held = {key: v for key, v in saved[0].items() if key.startswith("relay/")}
    for t in range(3, 6):
        stepped(model, optimizer, rank, t)
        relaxed.complete()
        seen.append([p.detach().clone() for p in model])
    relaxed.detach()
    other = large()
    again = torch.optim.SGD(other.parameters(), 0.1)
    taken_up = plan.attach(other, again, timeout=60)
    other.load_state_dict(saved[1])
    taken_up.load_state_dict(saved[0])
    for t in range(3, 6):
        stepped(other, again, rank, t)
        taken_up.complete()
        loops.same(loops.weights(other), seen[t])
    taken_up.detach()
    return [[w.numpy() for w in of_step] for of_step in seen], {key: v.numpy() for key, v in held.items()}


def test_messages_in_pieces_and_what_edges_hold(pool: Pool, tmp_path: Path) -> None:
    """By the sum that a relay stands for, from a history of all workers."""
    (tmp_path / "tree").write_text("1 0\n1 2\n3 1")
    apart = [[0, 1, 2, 2], [1, 0, 1, 1], [2, 1, 0, 2], [2, 1, 2, 0]]
    answers = pool.run(relayed, 4, f'edges("{tmp_path}/tree")')
    weights = [[p.detach().clone() for p in large()] for _ in range(4)]
    history: list[list[list[torch.Tensor]]] = []
    for t in range(6):
        history.append([[w - 0.1 * (rank + t + 1) for w in weights[rank]] for rank in range(4)])
        for i in range(4):
            for number in range(3):
                terms = [history[t - d + bool(d)][j][number] for j, d in enumerate(apart[i]) if t >= d - 1]
                weights[i][number] = sum(terms[1:], terms[0]) / 4
                found = torch.from_numpy(answers[i][0][t][number])
                torch.testing.assert_close(found, weights[i][number], rtol=1e-5, atol=1e-5)
                weights[i][number] = found
    assert set(answers[0][1]) == {"relay/0.1/0/rank0", "relay/0.1/1/rank0"}
    assert set(answers[1][1]) == {f"relay/0.{peer}/{p}/rank1" for peer in (0, 2, 3) for p in (0, 1)}
    torch.testing.assert_close(
        torch.from_numpy(answers[1][1]["relay/0.3/0/rank1"]), history[2][3][0], rtol=1e-5, atol=1e-5
    )


def refused(rank: int, workers: int, spec: str) -> str:
    model = large()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return loops.refused("RX0608", lambda: loops.plan(spec).attach(model, optimizer, timeout=20))


def test_graphs_that_do_not_serve_so_many_workers(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "tree").write_text("0 1")
    (tmp_path / "arrows").write_text("0 1\n1 0\n1 3\n3 0\n0 2\n2 0")
    relay, push = (
        RELAY.replace("GRAPH", f'edges("{tmp_path}/tree")'),
        f'relax with sgp {{ topology = arrows("{tmp_path}/arrows") }}',
    )
    assert all("leaves some of 3 workers apart" in said for said in pool.run(refused, 3, relay))
    assert all("the arrows name worker 3" in said for said in pool.run(refused, 3, push))
