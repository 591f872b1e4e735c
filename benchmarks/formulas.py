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
    return scale, packed(positive), value - torch.where(positive, scale, -scale).view(-1)


def packed(bit: Tensor) -> Tensor:
    """Eight rows of 0 and 1 to one of bytes, one above the other."""
    planes = bit.to(torch.uint8).view(-1, 8, bit.shape[1] // 8)
    code = planes[:, 0]
    for k in range(1, 8):
        code = code | planes[:, k] << k
    return code


def unpacked(code: Tensor) -> Tensor:
    return torch.stack([code >> k & 1 for k in range(8)], 1).view(code.shape[0], -1)


def sign_encode(x: Tensor) -> tuple[Tensor, ...]:
    rows = x.view(-1, SIGN_BLOCK)
    return rows.abs().mean(1, keepdim=True), packed(rows >= 0)


def sign_decode(scale: Tensor, code: Tensor) -> tuple[Tensor, ...]:
    return (torch.where(unpacked(code) == 1, scale, -scale).view(-1),)


def plain_signs(x: Tensor) -> tuple[Tensor, ...]:
    return (packed(x.view(-1, BLOCK) >= 0),)


def plain_signs_decode(code: Tensor) -> tuple[Tensor, ...]:
    return ((unpacked(code).to(torch.float32) * 2 - 1).view(-1),)


def qsgd_encode(x: Tensor) -> tuple[Tensor, ...]:
    rows = x.view(-1, BLOCK)
    size = rows.norm(dim=1, keepdim=True)
    level = torch.floor(rows / size * 7 + torch.rand_like(rows)).to(torch.int8)
    return size, pair((level & 15).to(torch.uint8))


def qsgd_decode(size: Tensor, code: Tensor) -> tuple[Tensor, ...]:
    level = (apart(code) ^ 8).to(torch.int8) - 8
    return ((level.to(torch.float32) * size / 7).view(-1),)


def ternary_encode(x: Tensor) -> tuple[Tensor, ...]:
    """Of a whole tensor; four to a byte."""
    bound = 2.5 * x.square().mean().sqrt()
    near0 = torch.maximum(torch.minimum(x, bound), -bound)
    top = near0.abs().amax()
    level = (torch.floor(near0 / top + torch.rand_like(x)).to(torch.int8) & 3).to(torch.uint8).view(4, -1)
    return top, level[0] | level[1] << 2 | level[2] << 4 | level[3] << 6


def ternary_decode(top: Tensor, code: Tensor) -> tuple[Tensor, ...]:
    level = torch.stack([code >> 2 * k & 3 for k in range(4)])
    return ((((level ^ 2).to(torch.int8) - 2).to(torch.float32) * top).view(-1),)


def natural_encode(x: Tensor) -> tuple[Tensor, ...]:
    size = x.abs().clamp(2.0**-126, 2.0**127)
    low = torch.floor(torch.log2(size))
    exponent = low + torch.floor(size * torch.exp2(-low) + torch.rand_like(x)) - 1
    return packed((x < 0).view(-1, BLOCK)), (exponent + 127).clamp(0, 254).to(torch.uint8)


def natural_decode(negative: Tensor, exponent: Tensor) -> tuple[Tensor, ...]:
    size = torch.exp2(exponent.to(torch.float32) - 127)
    return (torch.where(unpacked(negative).view(-1) == 1, -size, size),)


def bagua_encode(x: Tensor) -> tuple[Tensor, ...]:
    low, high = x.amin(), x.amax()
    scale = 255 / (high - low + 1e-7)
    upper = torch.round(high * scale)
    level = torch.minimum(torch.round(x * scale), upper) - (upper - 255)
    return low, high, level.to(torch.uint8)


def bagua_decode(low: Tensor, high: Tensor, level: Tensor) -> tuple[Tensor, ...]:
    scale = 255 / (high - low + 1e-7)
    return ((level.to(torch.float32) + torch.round(high * scale) - 255) / scale,)


def one_of_each(x: Tensor) -> tuple[Tensor, ...]:
    """One element of each hundred, and which."""
    rows = x.view(-1, 100)
    places = torch.randint(0, 100, (rows.shape[0], 1))
    return rows.gather(1, places), places


def one_of_each_decode(value: Tensor, places: Tensor) -> tuple[Tensor, ...]:
    return (torch.zeros(value.shape[0], 100).scatter(1, places, value).view(-1),)


SIDE, LARGEST = 64, 32


def cosines() -> Tensor:
    """The orthonormal DCT-II."""
    k, n = torch.arange(SIDE).view(-1, 1), torch.arange(SIDE)
    made = torch.cos(torch.pi * (n + 0.5) * k / SIDE) * (2 / SIDE) ** 0.5
    made[0] /= 2**0.5
    return made


COSINES = cosines()


def dct_encode(x: Tensor) -> tuple[Tensor, ...]:
    turned = (COSINES @ x.view(-1, SIDE, SIDE) @ COSINES.T).view(-1, SIDE * SIDE)
    places = turned.abs().topk(LARGEST, dim=1, sorted=False).indices
    return turned.gather(1, places), places


def dct_decode(kept: Tensor, places: Tensor) -> tuple[Tensor, ...]:
    turned = torch.zeros(kept.shape[0], SIDE * SIDE).scatter(1, places, kept).view(-1, SIDE, SIDE)
    return ((COSINES.T @ turned @ COSINES).view(-1),)


def modulo_encode(x: Tensor) -> tuple[Tensor, ...]:
    """Without the check that ours has of each block."""
    level = torch.floor(x / 0.001 + torch.rand_like(x))
    return (torch.remainder(level, 256).to(torch.uint8),)


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
