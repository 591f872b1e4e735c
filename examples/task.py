"""What all examples train: handwritten digits, which come with scikit-learn, and a small classifier."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spec", default="quickstart", help="a .relax file, or the name of a shipped spec")
    parser.add_argument("--steps", type=int, default=400)
    return parser.parse_args()


def split() -> tuple[TensorDataset, TensorDataset]:
    """For training and held out: images f32[n, 64] in 0..1, labels i64[n]."""
    data = load_digits()
    images, labels = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
    held = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~held], labels[~held]), TensorDataset(images[held], labels[held])


def batches(data: TensorDataset, rank: int, size: int = 32) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """For ever; another order on each worker."""
    draw = torch.Generator().manual_seed(rank)
    while True:
        images, labels = data[torch.randint(len(data), (size,), generator=draw)]
        yield images, labels


def classifier() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 10))


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    model.eval()
    with torch.no_grad():
        images, labels = data[:]
        right = (model(images).argmax(1) == labels).float().mean()
    model.train()
    return float(right)


def report(model: nn.Module, data: TensorDataset) -> None:
    """Every worker evaluates; rank 0 says what came out."""
    found = accuracy(model, data)
    if dist.get_rank() == 0:
        print(f"held-out accuracy {found:.3f}")
