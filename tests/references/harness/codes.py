"""What is left of a tensor that was encoded and decoded again: the papers' quantisers, in torch. Scales travel in f32."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Code = Callable[[Tensor], Tensor]


def f32(x: Tensor) -> Tensor:
    return x.float().double()


def in_blocks(code: Callable[[Tensor, Tensor], Tensor], size: int, x: Tensor, u: Tensor) -> Tensor:
    """`code` on each `size` elements of `x` and of `u`, the last block shorter."""
    parts = zip(x.reshape(-1).split(size), u.split(size), strict=True)
    return torch.cat([code(part, drawn) for part, drawn in parts]).reshape(x.shape)


def nothing_drawn(x: Tensor) -> Tensor:
    return x.reshape(-1)


def cast(significant: int, least: float, x: Tensor) -> Tensor:
    """To so many significant bits, ties to even, and no finer than `least`. torch's own cast of f64 rounds twice."""
    _fraction, exponent = torch.frexp(x)
    unit = torch.exp2((exponent - significant).double()).clamp(min=least)
    return (x / unit).round() * unit


def minmax(bits: int, x: Tensor) -> Tensor:
    """2^bits levels between the least and the greatest of each 512 elements."""

    def code(part: Tensor, _: Tensor) -> Tensor:
        low = f32(part.min())
        unit = f32((part.max() - low) / (2**bits - 1))
        level = ((part - low) / unit).round().clamp(0, 2**bits - 1) if unit else 0 * part
        return low + level * unit

    return in_blocks(code, 512, x, nothing_drawn(x))


def scaled_signs(x: Tensor) -> Tensor:
    """Signs times the mean magnitude of each 2048 elements."""

    def code(part: Tensor, _: Tensor) -> Tensor:
        return f32(part.abs().mean()) * signs(part)

    return in_blocks(code, 2048, x, nothing_drawn(x))


def signs(x: Tensor) -> Tensor:
    """Plus where nothing decides."""
    return torch.where(x >= 0, 1.0, -1.0).double()


def qsgd(bits: int, x: Tensor, u: Tensor) -> Tensor:
    """Levels of the norm of each 512 elements, rounded at random."""
    top = 2 ** (bits - 1) - 1

    def code(part: Tensor, drawn: Tensor) -> Tensor:
        size = f32(part.norm())
        if size == 0:
            return 0 * part
        return size * (part / size * top + drawn).floor().clamp(-top - 1, top) / top

    return in_blocks(code, 512, x, u)


def ternary(x: Tensor, u: Tensor, clip: float = 2.5) -> Tensor:
    """-1, 0 or 1 times the greatest magnitude, after what lies beyond `clip` root mean squares was pulled in."""
    limit = float(clip * x.square().mean().sqrt())
    near = x.clamp(-limit, limit)
    top = f32(near.abs().max())
    return top * (near / top + u.reshape(x.shape)).floor().clamp(-2, 1) if top else 0 * x


def natural(x: Tensor, u: Tensor) -> Tensor:
    """The power of two below or above: above with the probability that makes the mean right."""
    fraction, exponent = torch.frexp(x.abs())  # fraction in [1/2, 1)
    up = (2 * fraction + u.reshape(x.shape)).floor() >= 2
    return torch.where(x == 0, 0.0, x.sign() * torch.exp2((exponent - 1 + up).double()))
