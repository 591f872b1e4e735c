"""One matrix of one worker in an exchange of low rank, without the exchange."""

from __future__ import annotations

from typing import Any

import torch

from relaxc.attach.low_rank import _Matrix
from relaxc.wire.low_rank import factors_of


def matrix_on(device: str, rows: int = 30, columns: int = 20, rank: int = 3, scale: float = 1.0) -> Any:
    torch.manual_seed(3)
    size = rows * columns
    slot, residual, kept = (torch.randn(n).mul_(scale).to(device) for n in (size, size, columns * rank))
    p, q = (torch.zeros(n, rank, device=device) for n in (rows, columns))
    shape = torch.Size((rows, columns))
    return _Matrix(factors_of(shape, rank), shape, (columns, 1), slot, residual, kept, p, q)


def exchanged(matrix: Any) -> list[Any]:
    matrix.begin()
    matrix.turn(1)
    matrix.end(1, True)
    return [matrix.slot, matrix.residual, matrix.kept]
