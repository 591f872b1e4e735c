"""The ways to exchange gradients that the demo compares: each takes a model and an optimizer."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import relaxc
from relaxc.demo.model import parameter_count
from relaxc.resources import folder


@dataclass(frozen=True)
class Attached:
    """A model made ready for data-parallel training."""

    forward: Callable[[torch.Tensor], torch.Tensor]
    predicted_bytes: float
    """On the wire, sent by this worker in one step, without headers."""
    detach: Callable[[], None]


Attach = Callable[[nn.Module, torch.optim.Optimizer], Attached]


def all_reduce_bytes(elements: int, width: int) -> float:
    """What each worker sends in a bandwidth-optimal all-reduce: a reduce-scatter and a gather."""
    workers = dist.get_world_size()
    return 2 * (workers - 1) / workers * elements * width


def full_precision(model: nn.Module, optimizer: torch.optim.Optimizer) -> Attached:
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return Attached(parallel, all_reduce_bytes(parameter_count(model), 4), lambda: None)


def half_precision(model: nn.Module, optimizer: torch.optim.Optimizer) -> Attached:
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return Attached(parallel, all_reduce_bytes(parameter_count(model), 2), lambda: None)


def quickstart(model: nn.Module, optimizer: torch.optim.Optimizer) -> Attached:
    plan = relaxc.compile(str(folder("specs") / "quickstart.relax"))
    relaxed = plan.attach(model, optimizer)
    return Attached(model, relaxed.stats()["predicted_wire_bytes_per_iteration"], relaxed.detach)


EXCHANGES: dict[str, Attach] = {"ddp": full_precision, "fp16": half_precision, "quickstart": quickstart}
