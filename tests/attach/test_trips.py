"""What a codec's guard does at run time: it is counted, costs the bytes of the blocks that tripped and no others, and a
worker that is far away comes back."""

from __future__ import annotations

import loops
import pytest
import torch
from pool import Pool

SPEC = "algorithm a { step  let q = encode(weight, modulo(8bit, unit = 0.001))  weight += mix(q, complete) - decode(q) }\nrelax with a"
ELEMENTS = 512 * 5 + 100


def moved(rank: int, workers: int) -> None:
    """Rank 0 is far away in one element of block 2, in all of the short last block, and nowhere else."""
    model = torch.nn.ParameterList([torch.zeros(ELEMENTS), torch.zeros(3)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    relaxed = loops.plan(SPEC).attach(model, optimizer, timeout=60)

    def step() -> dict[str, float]:
        sum(p.sum() for p in model.parameters()).backward()
        optimizer.step()
        optimizer.zero_grad()
        relaxed.complete()
        return relaxed.stats()

    stats = step()
    assert stats["trips"] == 0 and stats["bytes_sent"] == stats["predicted_bytes"] > 0
    with torch.no_grad():
        if rank == 0:
            model[0][2 * 512 + 7] = 5.0
            model[0][5 * 512 :] = -3.0
    step()
    stats = step()
    peers = workers - 1
    assert stats["trips"] == 2 * (peers if rank == 0 else 1)
    again = (512 + 100) * 4 * (peers if rank == 0 else 1)
    assert stats["bytes_sent"] == stats["predicted_bytes"] + again
    torch.testing.assert_close(model[0][2 * 512 + 7].item(), 5.0 / workers, rtol=0, atol=0.004)
    torch.testing.assert_close(model[0][-1].item(), -3.0 / workers, rtol=0, atol=0.004)
    relaxed.detach()


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_what_trips_is_counted_and_sent_once_more(pool: Pool, workers: int) -> None:
    pool.run(moved, workers)


def many_rounds(rank: int, workers: int) -> list[torch.Tensor]:
    """Thrown apart again and again, to opposite sides."""
    model = torch.nn.ParameterList([torch.randn(700, dtype=torch.float64)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    relaxed = loops.plan(SPEC.replace("complete", "random_pairs")).attach(model, optimizer, timeout=60)
    seen = []
    for t in range(1000):
        thrown = torch.randn(700, dtype=torch.float64, generator=torch.Generator().manual_seed(t))
        with torch.no_grad():
            if t % 20 == 0:
                model[0] += thrown * (1 if rank == 0 else -1 if rank == 1 else 0)
        model[0].sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        relaxed.complete()
        if t % 100 == 0 or t == 999:
            seen.append(model[0].detach().clone())
    assert relaxed.stats()["trips"] > 50
    relaxed.detach()
    return [tensor.numpy() for tensor in seen]


def test_the_sum_of_the_workers_stays_over_a_thousand_rounds(pool: Pool) -> None:
    answers = pool.run(many_rounds, 4)
    totals = [sum(torch.from_numpy(a[n]) for a in answers) for n in range(len(answers[0]))]
    torch.manual_seed(1234)
    first = 4 * torch.randn(700, dtype=torch.float64)
    for total in totals:
        assert (total - first).abs().max() < 1e-10
