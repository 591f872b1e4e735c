"""The same batches in every run: a worker's text at a step depends on nothing but seed, step and rank."""

import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor]


def as_tensor(text: bytes) -> Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def at(text: Tensor, places: Tensor, context: int) -> Batch:
    """Sequences that start at `places`, and the characters that follow: two [len(places), context]."""
    window = places[:, None] + torch.arange(context + 1)
    taken = text[window]
    return taken[:, :-1], taken[:, 1:]


def training_batch(text: Tensor, context: int, *, seed: int, step: int, rank: int) -> Batch:
    """One sequence at a random place, of a generator of its own."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + step) * 1_009 + rank)
    return at(text, torch.randint(len(text) - context - 1, (1,), generator=generator), context)


def held_out_batch(text: Tensor, context: int, *, sequences: int, rank: int, workers: int) -> Batch:
    """This worker's share of `sequences` places spread evenly over the held-out text."""
    places = torch.linspace(0, len(text) - context - 2, sequences).long()
    return at(text, places[rank::workers], context)
