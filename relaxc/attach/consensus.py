"""The average of all replicas, and a way back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from relaxc.attach.groups import Groups

CHUNK = 1 << 22
"""Elements that are averaged together."""


class Consensus:
    """Swaps the average in and the replica's own values back. `local` are the parameters that may differ."""

    def __init__(self, model: nn.Module, local: Sequence[torch.Tensor], groups: Groups) -> None:
        self._model, self._local = model, local
        self.groups = groups
        """Of those that take part."""

        self._own: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.depth = 0

    def enter(self) -> None:
        """Where it raises, nothing has been entered."""
        if self.depth == 0 and self.groups.workers > 1:
            try:
                self._average()
            except BaseException:
                self._put_back()
                raise
        self.depth += 1

    def leave(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            self._put_back()

    def _average(self) -> None:
        buffers = [b for b in self._model.buffers() if b.numel()]
        mean = [t.detach() for t in self._local if t.numel()] + [b for b in buffers if _averages(b)]
        others = [b for b in buffers if not _averages(b)]
        self._own = [(t, t.clone()) for t in (*mean, *others)]
        with torch.no_grad():
            average(mean, self.groups)
            for tensor in others:
                take_from(tensor, 0, self.groups)

    def _put_back(self) -> None:
        with torch.no_grad():
            for tensor, own in self._own:
                tensor.copy_(own)
        self._own = []


def _averages(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def average(tensors: Sequence[torch.Tensor], groups: Groups) -> None:
    """The mean over the workers, summed in f64, so that what is equal everywhere stays as it is to the bit (in f64
    tensors up to the last bit)."""
    real = [torch.view_as_real(t) if t.is_complex() else t for t in tensors]
    for together in _chunks(real):
        flat = torch.cat([t.reshape(-1).double() for t in together]).cpu()  # what Python compares goes over Gloo
        groups.control.allreduce([flat]).wait()
        flat /= groups.workers
        parts = torch.split(flat, [t.numel() for t in together])
        for tensor, mean in zip(together, parts, strict=True):
            tensor.copy_(mean.view(tensor.shape))


def _chunks(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    together: list[torch.Tensor] = []
    elements = 0
    for tensor in tensors:
        together.append(tensor)
        elements += tensor.numel()
        if elements >= CHUNK:
            yield together
            together, elements = [], 0
    if together:
        yield together


def take_from(tensor: torch.Tensor, rank: int, groups: Groups) -> None:
    """Worker `rank`'s bytes of a tensor, since a backend need not know its dtype."""
    copy = tensor.detach().contiguous().reshape(-1).view(torch.uint8).clone().cpu()
    groups.control.broadcast(copy, rank).wait()
    tensor.detach().copy_(copy.view(tensor.dtype).reshape(tensor.shape))
