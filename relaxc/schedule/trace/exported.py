"""torch.export: the forward run on stand-ins for its tensors, down to the operations of aten."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import torch
from torch import nn
from torch.utils import _pytree as pytree

from relaxc.schedule.trace.graph import Traced
from relaxc.schedule.trace.sample import Sample


def trace_by_export(model: nn.Module, sample: Sample) -> Traced:
    """Raise whatever the model or torch.export raises."""
    named = dict(sample.kwargs)
    with _quiet():
        program = torch.export.export(model, sample.args, named, strict=False)
        module = program.module()
    assert isinstance(module, torch.fx.GraphModule)
    return Traced(module, pytree.tree_leaves((sample.args, named)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Why it fails is in the exception; the log, and what is printed, say it again."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
