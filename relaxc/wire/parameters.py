"""A model's parameter as the schedule sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

ITEM_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8}
"""Bytes of an element of each dtype that a plan can exchange."""


WRAPS = ("_orig_mod.", "_checkpoint_wrapped_module.")
"""What torch.compile and checkpoint_wrapper put into names: a plan and a saved state know the model without."""


def plain_name(name: str) -> str:
    for wrap in WRAPS:
        name = name.replace(wrap, "")
    return name


@dataclass(frozen=True, slots=True)
class Parameter:
    """`number` counts the model's parameters in registration order, tied ones once; it keys owners and dithers."""

    number: int
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        count = 1
        for side in self.shape:
            count *= side
        return count

    @property
    def bytes(self) -> int:
        return self.elements * ITEM_BYTES[self.dtype]

    @property
    def real_bytes(self) -> int:
        """Bytes of the type that arithmetic on it uses: f32, or f64 for f64 tensors."""
        return 8 if self.dtype == "f64" else 4


def elements_before(parameters: Sequence[Parameter]) -> tuple[list[int], int]:
    """By number the elements of all parameters with lower ones, and those of all. `parameters` has all, in order."""
    *before, total = accumulate((p.elements for p in parameters), initial=0)
    return before, total
