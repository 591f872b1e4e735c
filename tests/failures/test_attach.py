"""Workers that disagree, or are not there: an error on every one of them at attach, which names what differs or who."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pytest
from nursery import Nursery
from pool import Pool

SPEC = "relax gradients { compress = 8bit }"


def make_model() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))


# --- what the odd worker does differently: each returns (model, spec, arguments of attach)


def other_spec(model: Any) -> Any:
    return model, "relax gradients { compress = 4bit }", {}


def other_seedless_spec(model: Any) -> Any:
    return model, SPEC.replace("8bit", "8bit, feedback = worker"), {}


def extra_parameter(model: Any) -> Any:
    from torch import nn

    return nn.Sequential(*model, nn.Linear(4, 1, bias=False)), SPEC, {}


def other_shape(model: Any) -> Any:
    from torch import nn

    model[2] = nn.Linear(4, 5)
    return model, SPEC, {}


def other_dtype(model: Any) -> Any:
    model[2].double()
    return model, SPEC, {}


def other_stride(model: Any) -> Any:
    from torch import nn

    model[0].weight = nn.Parameter(model[0].weight.detach().t().contiguous().t())
    return model, SPEC, {}


def frozen(model: Any) -> Any:
    model[0].bias.requires_grad_(False)
    return model, SPEC, {}


def other_buffer(model: Any) -> Any:
    import torch

    model.register_buffer("mask", torch.zeros(3))
    return model, SPEC, {}


def checks(model: Any) -> Any:
    return model, SPEC, {"check_every": 2}


def scales(model: Any) -> Any:
    import torch

    return model, SPEC, {"scaler": torch.amp.GradScaler("cpu")}


def other_relaxc(model: Any) -> Any:
    import relaxc

    relaxc.__version__ = "0.0.0-other"
    return model, SPEC, {}


def other_torch(model: Any) -> Any:
    import torch

    torch.__version__ = torch.torch_version.TorchVersion("2.0.0")
    return model, SPEC, {}


def sparse(model: Any) -> Any:
    from torch import nn

    model.append(nn.Embedding(10, 4, sparse=True))
    return model, SPEC, {}


def smaller_pieces(model: Any) -> Any:
    return model, SPEC, {"piece_bytes": 8}


DIFFERENCES = {
    "other_spec": ["differ in plan: rank 0 has <text> (", ", rank 2 has <text> ("],
    "other_seedless_spec": ["differ in plan: rank 0 has <text> (", ", rank 2 has <text> ("],
    "extra_parameter": ["differ in parameter: rank 0 has none, rank 2 has 3.weight f32[1, 4]"],
    "other_shape": ["differ in parameter: rank 0 has 2.weight f32[4, 4]", "rank 2 has 2.weight f32[5, 4]"],
    "other_dtype": ["differ in parameter: rank 0 has 2.weight f32[4, 4]", "rank 2 has 2.weight f64[4, 4]"],
    "other_stride": ["0.weight f32[4, 6] stride [6, 1], rank 2 has 0.weight f32[4, 6] stride [1, 4]"],
    "frozen": ["differ in parameter: rank 0 has 0.bias f32[4]", "rank 2 has 1.weight f32[4]"],
    "other_buffer": ["differ in buffer: rank 0 has 1.running_mean torch.float32[4], rank 2 has mask torch.float32[3]"],
    "checks": ["differ in setting: rank 0 has check_every = 0, rank 2 has check_every = 2"],
    "scales": ["differ in setting: rank 0 has scaler = False, rank 2 has scaler = True"],
    "other_relaxc": ["differ in version of relaxc: rank 0 has ", ", rank 2 has 0.0.0-other"],
    "other_torch": ["differ in version of torch: rank 0 has ", ", rank 2 has 2.0.0"],
    "smaller_pieces": ["ranks 0 and 2 differ in the sizes of their messages"],
}


def differ(rank: int, workers: int, names: list[str]) -> list[tuple[str, str, float, bool]]:
    """One attach for each name, in which the last worker is the odd one: (kind, text, seconds, parameters unchanged)."""
    import torch

    import relaxc

    versions = relaxc.__version__, torch.__version__
    results = []
    for name in names:
        model, spec, arguments = make_model(), SPEC, {}
        if rank == workers - 1:
            model, spec, arguments = globals()[name](model)
        before = [p.detach().clone() for p in model.parameters()]
        plan = make_plan(spec, arguments.pop("piece_bytes", None))
        torch.distributed.barrier()  # nobody compiles any more
        start = time.monotonic()
        kind, text = attach(plan, model, arguments)
        same = all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        results.append((kind, text, time.monotonic() - start, same))
        relaxc.__version__, torch.__version__ = versions
    return results


@cache
def make_plan(spec: str, piece_bytes: int | None) -> Any:
    import msgspec

    import relaxc

    plan = relaxc.compile(spec)
    if piece_bytes is None:
        return plan
    return type(plan)(msgspec.structs.replace(plan.manifest, piece_bytes=piece_bytes), plan.library, plan.runtime)


TIMEOUT = 60
"""Of attach, in seconds: longer than a worker on a busy machine takes to compile its own spec."""


def attach(plan: Any, model: Any, arguments: dict[str, Any]) -> tuple[str, str]:
    import torch

    from relaxc.errors import RelaxError

    try:
        plan.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), timeout=TIMEOUT, **arguments)
    except RelaxError as error:
        return type(error).__name__, str(error)
    return "", "attached"


@pytest.fixture(scope="module")
def differing(pool: Pool) -> list[dict[str, tuple[str, str, float, bool]]]:
    """By rank and name."""
    names = [*DIFFERENCES, "sparse"]
    return [dict(zip(names, answer, strict=True)) for answer in pool.run(differ, 3, names)]


@pytest.mark.parametrize("name", DIFFERENCES)
def test_every_worker_names_the_first_difference(differing: Any, name: str) -> None:
    for answers in differing:
        kind, text, seconds, same = answers[name]
        assert kind == "ExchangeError"
        assert text.startswith("RX0601: ")
        assert all(part in text for part in DIFFERENCES[name]), text
        assert seconds < TIMEOUT, "it is told, nobody waits for the end of a timeout"
        assert same, "nothing is changed by an attach that fails"


def test_one_is_refused_and_all_end(differing: Any) -> None:
    kinds = [answers["sparse"][0] for answers in differing]
    assert kinds == ["ExchangeError", "ExchangeError", "ModelError"]
    assert differing[2]["sparse"][1].startswith("RX0406: module 3 makes sparse gradients")
    for answers in differing[:2]:
        assert answers["sparse"][1].startswith("RX0601: attach was refused on rank 2: RX0406: module 3 makes sparse")


# --- absent workers


@pytest.fixture(scope="module")
def absences(nursery: Nursery) -> Any:
    def start(store: str, **job: Any) -> Any:
        return nursery.start("train", 3, store=store, spec="all", timeout=3, steps=3, brisk=True, **job)

    return {
        "late": start("tcp", ranks={1: {"late": 1.5}}),
        "too late": start("file", ranks={1: {"late": 8}}),
        "never": start("tcp", ranks={1: {"absent": 7}, 2: {"absent": 7}}),
        "gone": start("file", ranks={2: {"absent": 0.01}}),
    }


def test_a_worker_may_be_late_within_the_timeout(nursery: Nursery, absences: Any) -> None:
    nursery.wait(absences["late"], 30)
    assert [w.status for w in absences["late"]] == [0, 0, 0]


@pytest.mark.parametrize(("name", "absent"), [("too late", "1"), ("never", "1, 2"), ("gone", "2")])
def test_an_absent_worker_is_named(nursery: Nursery, absences: Any, name: str, absent: str) -> None:
    nursery.wait(absences[name], 40)
    for rank, worker in enumerate(absences[name]):
        if str(rank) in absent:
            continue
        error = worker.event("error")
        assert (error["code"], worker.status) == ("RX0602", 1)
        assert f"rank {rank}: rank {absent} did not call attach within 3 s" in error["text"]
        assert error["time"] - worker.event("attaching")["time"] < 3 + 5


def test_the_late_one_hears_that_the_others_gave_up(nursery: Nursery, absences: Any) -> None:
    nursery.wait(absences["too late"], 40)
    late = absences["too late"][1]
    assert "rank 1: the others called attach and gave up within 3 s" in late.event("error")["text"]
    assert late.event("error")["time"] - late.event("attaching")["time"] < 5
