"""The ways to exchange that four_hosts.py compares: what a user would pick today, and specs of the library."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.model_averaging import averagers
from torch.nn.parallel import DistributedDataParallel

import relaxc
from relaxc import resources
from relaxc.cli_compile import compile
from relaxc.demo.model import CharTransformer
from relaxc.demo.size import Size

SIZE = Size()
PERIOD = 8
Forward = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Way:
    """A model that is attached in some way: `after_step` is called behind optimizer.step(), `evaluating` around an
    evaluation of `model`, `rest` where other ways take their turns."""

    forward: Forward
    after_step: Callable[[], None]
    evaluating: Callable[[], AbstractContextManager[Any]]
    stop: Callable[[], None]
    rest: Callable[[], object] = lambda: None


Make = Callable[[nn.Module, torch.optim.Optimizer], Way]


def _nothing() -> None:
    pass


def alone(model: nn.Module, optimizer: torch.optim.Optimizer) -> Way:
    return Way(model, _nothing, nullcontext, _nothing)


def _parallel(hook: Callable[[DistributedDataParallel], None], **more: Any) -> Make:
    def make(model: nn.Module, optimizer: torch.optim.Optimizer) -> Way:
        parallel = DistributedDataParallel(model, gradient_as_bucket_view=True, **more)
        hook(parallel)
        return Way(parallel, _nothing, nullcontext, _nothing)

    return make


def _fp16(parallel: DistributedDataParallel) -> None:
    parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)


def _power_sgd(parallel: DistributedDataParallel) -> None:
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
    parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def post_local(model: nn.Module, optimizer: torch.optim.Optimizer) -> Way:
    """Gradients of nobody else, weights averaged every PERIOD steps, as torch's own recipe has it after its warm-up."""
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    alone_, _ = dist.new_subgroups(group_size=1)
    parallel.register_comm_hook(
        post_localSGD_hook.PostLocalSGDState(None, alone_, start_localSGD_iter=0), post_localSGD_hook.post_localSGD_hook
    )
    averager = averagers.PeriodicModelAverager(PERIOD, warmup_steps=0)
    return Way(parallel, lambda: averager.average_parameters(parallel.parameters()), nullcontext, _nothing)


megabits = 0
"""Of the links, which plans are fitted to."""


def model() -> CharTransformer:
    return CharTransformer(SIZE)


def fitted(text: str) -> Make:
    """A plan for this model and network, compiled by rank 0 and loaded by all."""

    def make(model: nn.Module, optimizer: torch.optim.Optimizer) -> Way:
        shared: list[str | None] = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(shared)
        folder = Path(shared[0] or "")
        if dist.get_rank() == 0:
            (folder / "way.relax").write_text(text if " " in text else shipped(text))
            sample = ["--model", "ways:model", "--sample", f"i64[1,{SIZE.context}]<{SIZE.vocabulary}"]
            among = ["--network", f"{megabits}Mbps, 100us", "--workers", str(dist.get_world_size())]
            assert compile([str(folder / "way.relax"), *sample, *among, "-o", str(folder / "plan")]) == 0
        dist.barrier()
        relaxed = relaxc.load(folder / "plan").attach(model, optimizer)
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder)
        return Way(model, _nothing, relaxed.consensus, relaxed.detach)

    return make


def shipped(name: str) -> str:
    return (resources.folder("specs") / f"{name}.relax").read_text()


def spec(text: str) -> Make:
    def make(model: nn.Module, optimizer: torch.optim.Optimizer) -> Way:
        relaxed = relaxc.compile(text).attach(model, optimizer)
        return Way(model, _nothing, relaxed.consensus, relaxed.detach)

    return make


def asynchronous(text: str) -> Make:
    """What is under way is waited for at the end of a turn, with the state that a checkpoint takes: it would be on the
    links, and looked for, in the turns of others."""

    def make(model: nn.Module, optimizer: torch.optim.Optimizer) -> Way:
        relaxed = relaxc.compile(text).attach(model, optimizer)
        return Way(model, _nothing, relaxed.consensus, relaxed.detach, relaxed.state_dict)

    return make


BASELINES: dict[str, Make] = {
    "DDP": _parallel(lambda parallel: None),
    "DDP, fp16 hook": _parallel(_fp16),
    "DDP, PowerSGD rank 4": _parallel(_power_sgd, bucket_cap_mb=1000),  # with several buckets it hangs on Gloo
    "post-local SGD": post_local,
}
EVERY_STEP = {
    "quickstart (4bit)": "quickstart",
    "1bit": "relax gradients for ndim < 2\nrelax gradients { compress = 1bit }",
    "powersgd, rank 4": "powersgd",
    "choco on a ring, 1bit": "choco",
    "parallel choco on a ring, 1bit": "parallel_choco",
    "sparta": "sparta",
}
FITTED = {
    "choco, fitted": "choco",
    "1bit, fitted": "relax gradients for ndim < 2\nrelax gradients { compress = 1bit }",
}
"""Of those that exchange in every step."""
PLAIN = f"every = {PERIOD}, compress = 4bit, rate = 1, momentum = 0"
"""What post-local SGD does, in 4 bits: an outer momentum needs more rounds than there are here."""
PERIODIC = {
    "local_sgd": f"relax with local_sgd {{ period = {PERIOD} }}",
    "updates, 4bit": f"relax updates {{ {PLAIN} }}",
    "updates, 4bit, 3 late": f"relax updates {{ {PLAIN}, delay = 3 }}",
    "updates, 4bit, 7 late": f"relax updates {{ {PLAIN}, delay = {PERIOD - 1} }}",
}
ASYNCHRONOUS = {
    "async_average": "async_average",
    "async_bytegrad": "async_bytegrad",
    "swarm": "swarm",
    "swarm_8bit": "swarm_8bit",
    "async_bytegrad, period 20": "relax with async_bytegrad { period = 20 }",
    "swarm, period 32": "relax with swarm { period = geometric(32) }",
    "swarm_8bit, period 16": "relax with swarm_8bit { period = geometric(16) }",
}
"""As they are shipped, and with links that are idle most of the time: messages take time of the cores."""
