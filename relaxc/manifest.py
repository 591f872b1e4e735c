"""manifest.json of a plan: what `emit` writes and `attach` reads. Plain data, no torch, no compiler."""

from __future__ import annotations

from typing import Any

import msgspec

FORMAT = 1
"""Version of the plan directory; a plan of another version is refused."""


class FieldPlan(msgspec.Struct, frozen=True):
    name: str
    kind: str
    bits: int
    per_element: bool


class KernelPlan(msgspec.Struct, frozen=True):
    """A generated function: `kernel` is its name in wire/routes.py, `dtype` f32, f16, bf16 or f64."""

    symbol: str
    kernel: str
    dtype: str


class CodecPlan(msgspec.Struct, frozen=True):
    """`text` is the codec with all its arguments; `fields` and `block` are its wire/layout.py."""

    text: str
    block: int
    fields: tuple[FieldPlan, ...]
    kernels: tuple[KernelPlan, ...]


class ExchangePlan(msgspec.Struct, frozen=True):
    place: int
    route: str
    feedback: str
    codec: CodecPlan | None


class BodyPlan(msgspec.Struct, frozen=True):
    """The parameters that `selector` matches (and no earlier body does): their gradients' exchange, `delay`
    iterations late."""

    selector: Any
    statement: str
    exchange: ExchangePlan
    delay: int


class ParameterPlan(msgspec.Struct, frozen=True):
    name: str
    shape: tuple[int, ...]
    dtype: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`hash` covers the meaning (program, kernels' sources, bucket limits), never binaries; workers compare it. `cpu`
    names the processor flags that the library was compiled for. `parameters` is None for a plan made without a model.
    Sizes of buckets are in bytes of gradient; `piece_bytes` bounds one message of a piece."""

    format: int = FORMAT
    relaxc: str
    spec: str
    hash: str
    cpu: str
    seed: int
    bodies: tuple[BodyPlan, ...]
    first_bucket_bytes: int
    bucket_bytes: int
    coded_bucket_bytes: int
    piece_bytes: int
    parameters: tuple[ParameterPlan, ...] | None = None


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2)


def decode(raw: bytes) -> Manifest:
    """Raise msgspec.DecodeError (ValidationError included) where `raw` is no manifest of this version."""
    return msgspec.json.decode(raw, type=Manifest)
