"""join(): workers with different numbers of batches; and detach() wherever a loop may be."""

from __future__ import annotations

import loops
import pytest
import torch
from pool import Pool

TRACKING = """
algorithm tracking(topology = ring) {
  state track = 0
  state last = 0
  track = mix(track, topology) + grad - last
  last = grad
  grad = track
  step
  weight = mix(weight, topology)
}
relax with tracking
"""
STREAMING = """
algorithm streaming(period = 3, late = 2) {
  state anchor = weight
  step
  every staggered(period) {
    let drift = mean(anchor - weight, compress = 8bit)
    after late { anchor -= drift  weight = (weight + anchor) / 2 }
  }
}
relax with streaming
"""
ADAM = "relax with one_bit_adam { warmup = 2 }"
PROGRAMS = ["relax with dpsgd", "relax with dpsgd_atc", "relax with choco", TRACKING, STREAMING]
NATIVE = [loops.EXACT, loops.CODED, loops.LATE]


def sgd(model: torch.nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.05)


def uneven(rank: int, workers: int, spec: str, batches: list[int], equal: bool) -> list[torch.Tensor]:
    model = loops.mlp()
    optimizer = sgd(model)
    relaxed = loops.plan(spec).attach(model, optimizer, timeout=20)
    with relaxed.join():
        for t in range(batches[rank]):
            loops.step(model, optimizer, rank, t)
    mine = loops.weights(model)
    assert all(torch.isfinite(w).all() for w in mine)
    if equal:
        for other in loops.everywhere(mine, workers):
            loops.same(other, mine)
    for t in range(2):  # the loop after it is an ordinary one
        loops.step(model, optimizer, rank, 50 + t)
    relaxed.complete()
    relaxed.detach()
    return mine


@pytest.mark.parametrize("batches", [[3, 3, 3], [1, 4, 2], [0, 0, 2]])
@pytest.mark.parametrize("spec", [*NATIVE, ADAM])
def test_replicas_end_equal(pool: Pool, spec: str, batches: list[int]) -> None:
    pool.run(uneven, 3, spec, batches, True)


@pytest.mark.parametrize("batches", [[2, 2], [1, 4], [3, 0]])
@pytest.mark.parametrize("spec", PROGRAMS)
def test_programs_with_uneven_inputs(pool: Pool, spec: str, batches: list[int]) -> None:
    pool.run(uneven, 2, spec, batches, False)


def test_a_worker_without_batches_counts_as_absent_gradients(pool: Pool) -> None:
    """Worker 1 has run out after one batch: the others' mean is half of worker 0's gradient."""
    ran_out = pool.run(uneven, 2, loops.EXACT, [2, 1], True)[0]
    alone = loops.mlp()
    rule = sgd(alone)
    means = loops.mean_alone(alone, 2, lambda m, r: loops.backward(m, r, 0))
    for p, g in zip(alone.parameters(), means, strict=True):
        p.grad = g.float()
    rule.step()
    rule.zero_grad()
    loops.backward(alone, 0, 1)
    for p in alone.parameters():
        p.grad /= 2
    rule.step()
    loops.close(ran_out, loops.weights(alone), 1e-5)


def test_a_mixing_worker_that_has_run_out_still_mixes(pool: Pool) -> None:
    """Worker 1 trains once, then only averages with worker 0, who trains three times."""
    found = pool.run(uneven, 2, "relax with dpsgd_atc", [3, 1], False)
    team = [loops.mlp(), loops.mlp()]
    rules = [sgd(m) for m in team]
    for t in range(3):
        for w, (m, rule) in enumerate(zip(team, rules, strict=True)):
            if t < [3, 1][w]:
                loops.step(m, rule, w, t)
        for of_one in zip(*(m.parameters() for m in team), strict=True):
            mean = sum(p.detach() for p in of_one) / 2
            for p in of_one:
                p.data.copy_(mean)
    for weights in found:
        loops.close(weights, loops.weights(team[0]), 1e-5)


def accumulating(rank: int, workers: int) -> None:
    model = loops.mlp()
    optimizer = sgd(model)
    relaxed = loops.plan(loops.CODED).attach(model, optimizer, timeout=20)
    with relaxed.join():
        for t in range(2 + rank):
            optimizer.zero_grad()
            with relaxed.no_sync():
                loops.backward(model, rank, 2 * t)
            loops.backward(model, rank, 2 * t + 1)
            optimizer.step()
    everyone = loops.everywhere(loops.weights(model), workers)
    loops.same(everyone[0], everyone[1])
    relaxed.detach()


def test_with_accumulation(pool: Pool) -> None:
    pool.run(accumulating, 2)


def compiled(rank: int, workers: int, spec: str) -> None:
    model = loops.mlp()
    optimizer = sgd(model)
    relaxed = loops.plan(spec).attach(model, optimizer, timeout=20)
    running = torch.compile(model, backend="eager")
    for _epoch in range(2):
        with relaxed.join():
            for t in range(2 + rank):
                optimizer.zero_grad()
                loops.loss(running, loops.batch(rank, t)).backward()
                optimizer.step()
    everyone = loops.everywhere(loops.weights(model), workers)
    loops.same(everyone[0], everyone[1])
    relaxed.detach()


@pytest.mark.parametrize("spec", [loops.EXACT, ADAM])
def test_a_compiled_model(pool: Pool, spec: str) -> None:
    pool.run(compiled, 2, spec)


def raising(rank: int, workers: int) -> None:
    """An exception ends it at once: nobody is shadowed."""
    model = loops.mlp()
    relaxed = loops.plan(loops.EXACT).attach(model, sgd(model), timeout=20)

    def stopped() -> None:
        with relaxed.join():
            loops.backward(model, rank, 0)
            raise KeyError("an error of the user's")

    with pytest.raises(KeyError):
        stopped()
    loops.backward(model, rank, 1)
    relaxed.detach()


def test_an_exception_within(pool: Pool) -> None:
    pool.run(raising, 2)


def detached(rank: int, workers: int, spec: str, where: str) -> None:
    """Then the model trains on alone, as one that was never attached."""
    model = loops.mlp()
    optimizer = sgd(model)
    relaxed = loops.plan(spec).attach(model, optimizer, timeout=20)
    for t in range(3):
        loops.step(model, optimizer, rank, t)
    if where == "after forward":
        loss = loops.loss(model, loops.batch(rank, 3))
        relaxed.detach()
        loss.backward()
    elif where == "after backward":
        optimizer.zero_grad()
        loops.backward(model, rank, 3)
        relaxed.detach()
        optimizer.step()
    else:
        relaxed.detach()
    before = loops.weights(model)
    other = loops.bare_copy(model)
    rule = sgd(other)
    for t in range(2):
        loops.step(model, optimizer, rank, 60 + t)
        loops.step(other, rule, rank, 60 + t)
    loops.same(loops.weights(model), loops.weights(other))
    assert not all(torch.equal(a, b) for a, b in zip(before, loops.weights(model), strict=True))
    assert not model._forward_pre_hooks and not optimizer._optimizer_step_pre_hooks
    again = loops.plan(spec).attach(model, optimizer, timeout=20)
    loops.step(model, optimizer, rank, 70)
    again.detach()


@pytest.mark.parametrize("where", ["after step", "after forward", "after backward"])
@pytest.mark.parametrize("spec", [*PROGRAMS, ADAM, loops.LATE])
def test_detach_anywhere(pool: Pool, spec: str, where: str) -> None:
    pool.run(detached, 2, spec, where)


def in_eval_mode(rank: int, workers: int, spec: str, parts: bool) -> None:
    """Fine-tuning without dropout, or a model called part by part: the others are told all the same."""
    model = loops.mlp()
    model.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    relaxed = loops.plan(spec).attach(model, optimizer, timeout=20)
    with relaxed.join():
        for t in range(2 + 2 * rank):
            optimizer.zero_grad()
            x, y = loops.batch(rank, t)
            for part in model if parts else (model,):
                x = part(x)
            torch.nn.functional.mse_loss(x, y).backward()
            optimizer.step()
    relaxed.detach()


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("spec", ["relax gradients", "relax with dpsgd_atc"])
def test_models_in_eval_mode_and_in_parts(pool: Pool, spec: str, parts: bool) -> None:
    pool.run(in_eval_mode, 2, spec, parts)


def last_step_skipped(rank: int, workers: int, spec: str) -> None:
    """The GradScaler leaves out the last step of the worker with most batches."""
    model = loops.mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    relaxed = loops.plan(spec).attach(model, optimizer, scaler=scaler, timeout=20)
    batches = 2 + 2 * rank
    with relaxed.join():
        for t in range(batches):
            optimizer.zero_grad()
            loss = scaler.scale(loops.loss(model, loops.batch(rank, t)))
            (loss * (float("inf") if t == batches - 1 and rank == workers - 1 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
    relaxed.detach()
    assert all(torch.isfinite(w).all() for w in loops.weights(model))


@pytest.mark.parametrize("spec", ["relax with dpsgd_atc", "relax with one_bit_adam { warmup = 2 }"])
def test_a_skip_at_the_very_end(pool: Pool, spec: str) -> None:
    pool.run(last_step_skipped, 2, spec)


def consensus_within(rank: int, workers: int) -> None:
    model = loops.mlp()
    relaxed = loops.plan("relax with dpsgd").attach(model, torch.optim.SGD(model.parameters(), lr=0.1), timeout=20)
    with relaxed.join():
        loops.refused("RX0617", lambda: relaxed.consensus().__enter__())
    relaxed.detach()


def test_consensus_is_refused_within_join(pool: Pool) -> None:
    pool.run(consensus_within, 2)
