"""One worker of the demo: it trains the same thing once for each exchange, all in this process."""

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from relaxc.demo import batches, corpus
from relaxc.demo.counters import interface_traffic
from relaxc.demo.events import Began, Ended, Evaluated, Event, Preparing, Stepped, to_line
from relaxc.demo.exchanges import EXCHANGES, Attached
from relaxc.demo.model import CharTransformer, parameter_count
from relaxc.demo.settings import Settings

TIMEOUT = timedelta(minutes=5)
WARM_UP_STEPS = 2
Report = Callable[[Event], None]


@dataclass(frozen=True)
class Data:
    train: Tensor
    held_out: Tensor
    rank: int
    workers: int

    def batch(self, settings: Settings, step: int) -> batches.Batch:
        return batches.training_batch(self.train, settings.size.context, seed=settings.seed, step=step, rank=self.rank)

    def evaluation(self, settings: Settings) -> batches.Batch:
        return batches.held_out_batch(
            self.held_out,
            settings.size.context,
            sequences=settings.held_out_sequences,
            rank=self.rank,
            workers=self.workers,
        )


@dataclass
class Training:
    """One run: a fresh model from the seed, and a clock that stands still during evaluation."""

    name: str
    settings: Settings
    data: Data
    model: CharTransformer
    optimizer: torch.optim.Optimizer
    attached: Attached
    report: Report
    seconds: list[float] = field(default_factory=list)

    def step(self, step: int) -> None:
        x, y = self.data.batch(self.settings, step)
        start = time.perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate * self.settings.rate_at(step)
        loss = cross_entropy(self.attached.forward(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.seconds.append(time.perf_counter() - start)
        self.report(Stepped(self.name, step + 1, sum(self.seconds), loss.item()))

    def evaluate(self, step: int) -> float:
        loss = held_out_loss(self.model, self.data.evaluation(self.settings))
        self.report(Evaluated(self.name, step, sum(self.seconds), loss))
        return loss

    def run(self, target: float | None) -> float:
        """Train for the settings' steps, longer while the target is not reached; the last held-out loss."""
        best = loss = self.evaluate(0)
        limit = self.settings.steps * (self.settings.overtime if target is not None else 1)
        for step in range(int(limit)):
            self.step(step)
            if self.settings.evaluated_after(step):
                loss = self.evaluate(step + 1)
                best = min(best, loss)
                if step + 1 >= self.settings.steps and (target is None or best <= target):
                    break
        return loss


def cross_entropy(logits: Tensor, wanted: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def average(value: float) -> float:
    """Over the workers, the same on each."""
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def held_out_loss(model: nn.Module, batch: batches.Batch) -> float:
    with torch.no_grad():
        return average(cross_entropy(model(batch[0]), batch[1]).item())


def begin(name: str, settings: Settings, data: Data, report: Report) -> Training:
    torch.manual_seed(settings.seed)
    model = CharTransformer(settings.size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.rate, betas=(0.9, 0.95), fused=True)
    attached = EXCHANGES[name](model, optimizer)
    return Training(name, settings, data, model, optimizer, attached, report)


def warm_up(name: str, settings: Settings, data: Data) -> None:
    """Build what is built once, and let each exchange meet its first-time costs, outside of the clock."""
    training = begin(name, settings, data, lambda event: None)
    for step in range(WARM_UP_STEPS):
        training.step(step)
    training.attached.detach()


def compare(name: str, settings: Settings, data: Data, report: Report, target: float | None) -> float:
    training = begin(name, settings, data, report)
    report(Began(name, parameter_count(training.model)))
    average(0.0)  # nobody starts the clock before all are there
    interface = os.environ["GLOO_SOCKET_IFNAME"]
    before = interface_traffic(interface).sent
    loss = training.run(target)
    sent = average((interface_traffic(interface).sent - before) / len(training.seconds))
    shared_by = data.workers if interface == "lo" else 1
    report(
        Ended(name, statistics.median(training.seconds), sent / shared_by, average(training.attached.predicted_bytes))
    )
    training.attached.detach()
    return loss


def train_all(names: list[str], settings: Settings, data: Data, report: Report) -> None:
    """All warm up first: what fails, fails early, and no run has more behind it than the others."""
    for name in names:
        report(Preparing(f"warming up {name}"))
        warm_up(name, settings, data)
    target = None
    for name in names:
        gc.collect()
        loss = compare(name, settings, data, report, target)
        target = loss if target is None else target


def reporter(rank: int) -> Report:
    """Worker 0 speaks for all."""
    return (lambda event: print(to_line(event), flush=True)) if rank == 0 else (lambda event: None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--settings", required=True)
    parser.add_argument("--exchanges", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    rank, workers = dist.get_rank(), dist.get_world_size()
    train, held_out = map(batches.as_tensor, corpus.standard_library())
    data = Data(train, held_out, rank, workers)
    train_all(arguments.exchanges.split(","), Settings.from_json(arguments.settings), data, reporter(rank))
    dist.destroy_process_group()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
