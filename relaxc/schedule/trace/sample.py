"""What one call of the model takes: given as it is, by its shapes, or by the name of what makes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from relaxc.errors import ModelError
from relaxc.schedule.trace.dtypes import DTYPES
from relaxc.users_code import NAMED, described, found

_TENSOR = re.compile(r"\s*([a-z]+\d*)\[([\d,\s]*)\]\s*(?:<\s*(\d+))?\s*")
_FORMS = 'give shapes, such as "f32[8,3,32,32]" or "i64[8,128]<1000" (integers below 1000), or package.module:batch'
_LARGEST = 2**34
"""Elements; more is a slip."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """What the model is called with."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def on(self, device: torch.device) -> Sample:
        """With all tensors on that device."""

        def moved(value: Any) -> Any:
            return value.to(device) if isinstance(value, torch.Tensor) else value

        args, kwargs = pytree.tree_map(moved, (self.args, dict(self.kwargs)))
        return Sample(args, kwargs)


def as_sample(value: Any) -> Sample:
    """A tuple or list is the arguments, a mapping the named ones, all else the only argument."""
    if isinstance(value, Sample):
        return value
    if isinstance(value, Mapping):
        return Sample((), {str(k): v for k, v in value.items()})
    return Sample(tuple(value) if isinstance(value, tuple | list) else (value,))


def parse_sample(text: str) -> Sample:
    """Shapes (`f32[8,3,32,32], i64[8]<10`), filled with the same numbers each time: normal ones, integers from 0 to
    below the bound (default 2). Or `package.module:batch`: a callable, or the arguments themselves.

    Raise ModelError: RX0421 where what the text names fails, RX0423 where it is neither form.
    """
    if NAMED.fullmatch(text.strip()):
        return as_sample(_named(text.strip()))
    generator = torch.Generator().manual_seed(0)
    tensors = list(_tensors(text))
    if all(0 in shape for _, shape, _ in tensors):  # nothing would be computed, and nothing could be timed
        raise _refused(f"{text!r} has no element", "give the shape of one batch")
    return Sample(tuple(_filled(*tensor, generator) for tensor in tensors))


def _named(option: str) -> Any:
    try:
        thing = found(option)
        return thing() if callable(thing) else thing
    except (Exception, SystemExit) as error:
        raise ModelError(
            "RX0421", f"the sample {option} failed: {described(error)}",
            "see that it can be imported, and called without arguments if it is a function",
        ) from error  # fmt: skip


def _tensors(text: str) -> Iterator[tuple[torch.dtype, tuple[int, ...], int | None]]:
    """The dtype, shape and bound of each tensor."""
    position = 0
    while True:
        matched = _TENSOR.match(text, position)
        if matched is None:
            raise _refused(f"{text!r} is no sample", _FORMS)
        yield _read(*matched.groups())
        position = matched.end()
        if position == len(text):
            return
        if text[position] != ",":
            raise _refused(f"{text!r} is no sample", _FORMS)
        position += 1


def _read(dtype: str, sides: str, bound: str | None) -> tuple[torch.dtype, tuple[int, ...], int | None]:
    if dtype not in DTYPES:
        raise _refused(f"no dtype {dtype} in a sample", f"use {', '.join(DTYPES)}")
    written = [side.strip() for side in sides.split(",")] if sides.strip() else []
    if not all(side.isdecimal() for side in written):
        raise _refused(f"[{sides}] is no shape", _FORMS)
    found_dtype = DTYPES[dtype]
    if bound is not None and (found_dtype.is_floating_point or found_dtype == torch.bool or int(bound) < 1):
        raise _refused(f"<{bound} bounds no {dtype}", "only integers have a bound, from 1 up")
    if bound is not None and int(bound) - 1 > torch.iinfo(found_dtype).max:
        raise _refused(f"<{bound} is beyond what {dtype} holds", "give a smaller bound, or i64")
    shape = tuple(map(int, written))
    if torch.Size(shape).numel() > _LARGEST:
        raise _refused(f"[{sides}] is too large", "give the shape of one batch")
    return found_dtype, shape, None if bound is None else int(bound)


def _filled(dtype: torch.dtype, shape: tuple[int, ...], bound: int | None, generator: torch.Generator) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(2 if bound is None else bound, shape, generator=generator).to(dtype)


def _refused(message: str, help: str) -> ModelError:
    return ModelError("RX0423", message, help)
