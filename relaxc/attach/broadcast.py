"""All replicas start from rank 0's parameters and buffers."""

from __future__ import annotations

import torch
from torch import nn

from relaxc.attach.groups import Groups


def broadcast_model(model: nn.Module, groups: Groups) -> None:
    """Bytes of every parameter and buffer, since a backend need not know their dtype."""
    if groups.workers == 1:
        return
    tensors = [*(p.data for p in model.parameters()), *model.buffers()]
    copies = [t.detach().contiguous().reshape(-1).view(torch.uint8).cpu() for t in tensors if t.numel()]
    for copy in copies:
        groups.control.broadcast(copy, 0).wait()
    with torch.no_grad():
        for tensor, copy in zip((t for t in tensors if t.numel()), copies, strict=True):
            if copy.data_ptr() != tensor.data_ptr():
                tensor.copy_(copy.view(tensor.dtype).reshape(tensor.shape))
