"""Dtypes by the names that specs, samples and profiles give them."""

from __future__ import annotations

import torch

DTYPES = {
    "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64,
    "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
    "bool": torch.bool,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def name_of(dtype: torch.dtype) -> str:
    return _NAMES.get(dtype, str(dtype).removeprefix("torch."))
