"""Lightning:  python examples/with_lightning.py

Its ddp strategy, less the wrapping: the plan exchanges what it has to.
"""

from __future__ import annotations

from typing import Any

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from task import accuracy, arguments, classifier, split
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

import relaxc


class RelaxedStrategy(DDPStrategy):
    """Attaches a plan where DDP would wrap the model."""

    def __init__(self, plan: relaxc.Plan, **options: Any) -> None:
        super().__init__(**options)
        self.plan = plan

    def configure_ddp(self) -> None:
        pass

    def setup_optimizers(self, trainer: lightning.Trainer) -> None:
        super().setup_optimizers(trainer)
        self.relaxed = self.plan.attach(self.lightning_module, self.optimizers)

    def teardown(self) -> None:
        self.relaxed.detach()
        super().teardown()


class Digits(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model: nn.Module = classifier()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(x)
        return result

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _index: int) -> torch.Tensor:
        x, y = batch
        return functional.cross_entropy(self(x), y)  # self(x), not self.model(x): the plan is attached to all of it

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    def on_train_end(self) -> None:
        strategy = self.trainer.strategy
        assert isinstance(strategy, RelaxedStrategy)
        with strategy.relaxed.consensus():
            found = accuracy(self.model, split()[1])
        if self.global_rank == 0:
            print(f"held-out accuracy {found:.3f}")


def main() -> None:
    given = arguments()
    strategy = RelaxedStrategy(relaxc.compile(given.spec), process_group_backend="gloo")
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy=strategy, max_steps=given.steps, gradient_clip_val=1.0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Digits(), DataLoader(split()[0], batch_size=32, shuffle=True))


if __name__ == "__main__":
    main()
