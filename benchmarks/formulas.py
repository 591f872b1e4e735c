"""Codecs as a user of torch would write them: from tensors the parts of a code, or from them what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Formula = Callable[..., tuple[Tensor, ...]]
BLOCK, SIGN_BLOCK = 512, 2048
PART = 0.01
"""Of topk."""


def pair(level: Tensor) -> Tensor:
    """Two levels of four bits to a byte, the halves of a block side by side."""
    half = BLOCK // 2
    return level[:, :half] | level[:, half:] << 4


def apart(code: Tensor) -> Tensor:
    return torch.cat([code & 15, code >> 4], 1)


def minmax_encode(bits: int) -> Formula:
    def formula(x: Tensor) -> tuple[Tensor, ...]:
        rows, most = x.view(-1, BLOCK), 2**bits - 1
        low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
        scale = (high - low) / most
        level = ((rows - low) / scale).round().clamp(0, most).to(torch.uint8)
        return low, scale, pair(level) if bits == 4 else level

    return formula


def minmax_decode(bits: int) -> Formula:
    def formula(low: Tensor, scale: Tensor, code: Tensor) -> tuple[Tensor, ...]:
        level = apart(code) if bits == 4 else code
        return ((low + level.to(torch.float32) * scale).view(-1),)

    return formula


def minmax_keep(x: Tensor, residual: Tensor) -> tuple[Tensor, ...]:
    value = x + residual
    code = minmax_encode(8)(value)
    return (*code, value - minmax_decode(8)(*code)[0])


def minmax_combine(*codes: Tensor) -> tuple[Tensor, ...]:
    """Of several codes' parts one behind the other."""
    terms = [minmax_decode(8)(*codes[k : k + 3])[0] for k in range(0, len(codes), 3)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return minmax_encode(8)(total * (1 / len(terms)))


def absmax_encode(bits: int) -> Formula:
    def formula(x: Tensor) -> tuple[Tensor, ...]:
        rows, most = x.view(-1, BLOCK), 2 ** (bits - 1) - 1
        scale = rows.abs().amax(1, keepdim=True) / most
        level = (rows / scale).round().clamp(-most - 1, most).to(torch.int8)
        return scale, pair((level & 15).to(torch.uint8)) if bits == 4 else level

    return formula


def absmax_decode(bits: int) -> Formula:
    def formula(scale: Tensor, code: Tensor) -> tuple[Tensor, ...]:
        level = (apart(code) ^ 8).to(torch.int8) - 8 if bits == 4 else code
        return ((level.to(torch.float32) * scale).view(-1),)

    return formula


def sign_keep(x: Tensor, residual: Tensor) -> tuple[Tensor, ...]:
    """Eight signs to a byte, the eighths of a block above each other."""
    value = x + residual
    rows = value.view(-1, SIGN_BLOCK)
    scale = rows.abs().mean(1, keepdim=True)
    positive = rows >= 0
    planes = positive.to(torch.uint8).view(-1, 8, SIGN_BLOCK // 8)
    code = planes[:, 0]
    for k in range(1, 8):
        code = code | planes[:, k] << k
    return scale, code, value - torch.where(positive, scale, -scale).view(-1)


def cast(kind: torch.dtype) -> Formula:
    return lambda x: (x.to(kind),)


def top(x: Tensor) -> tuple[Tensor, ...]:
    places = x.abs().topk(round(PART * x.numel()), sorted=False).indices
    return places, x[places]


def compiled(formula: Formula, arguments: Sequence[Tensor], results: Sequence[Tensor]) -> Callable[[], None]:
    """By inductor, into memory that is there already. Raises whatever its first run does."""

    def write(given: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        for target, value in zip(made, formula(*given), strict=True):
            target.copy_(value)

    torch.compiler.reset()  # all formulas are one function to it, which it would give up
    fast = torch.compile(write, dynamic=False, fullgraph=True)
    fast(arguments, results)
    return lambda: fast(arguments, results)
