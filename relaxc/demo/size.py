"""The size of the demo's model; apart from the model, so that the supervisor need not import torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    vocabulary: int = 96
    context: int = 64
    width: int = 256
    heads: int = 4
    layers: int = 4
