"""Workers that go at their own pace: an interpreter of one worker each, which share a post office and arrivals.

For programs in which all that is exchanged lands asynchronously. Where there are synchronous exchanges too, all workers
advance in step: that is one Interpreter with `arrivals`.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaxc.program.exchange import Residuals
from relaxc.program.flights import Arrivals, Post
from relaxc.program.functions import Array
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import Program
from relaxc.program.store import Rule
from relaxc.wire.parameters import Parameter


class Workers:
    """`advance` is one iteration of one worker. `residuals` are by (place, parameter)."""

    def __init__(
        self,
        program: Program,
        parameters: Sequence[Parameter],
        workers: int,
        arrivals: Arrivals,
        seed: int = 0,
        weights: Sequence[Array] | None = None,
        optimizer: Rule | None = None,
    ) -> None:
        self.post = Post(workers, seed)
        self.residuals: dict[tuple[int, int], Residuals] = {}
        self.each = [
            Interpreter(
                program, parameters, workers, seed, weights, optimizer, arrivals=arrivals, members=(w,), post=self.post
            )
            for w in range(workers)
        ]
        for one in self.each:
            one.residuals = self.residuals

    def iterations(self, worker: int) -> int:
        return self.each[worker].iteration

    def weights(self, worker: int) -> list[Array]:
        return self.each[worker].weights[worker]

    def states(self, worker: int, parameter: int) -> dict[str, float | Array]:
        return self.each[worker].states(worker, parameter)

    def advance(self, worker: int, grads: Sequence[Array | None]) -> list[Array | None]:
        """`grads` as this worker's backward made them; returns its `.grad`. Raise ValueError where something would land
        that a partner has not launched yet."""
        everyone: list[Sequence[Array | None]] = [[None] * len(grads) for _ in self.each]
        everyone[worker] = grads
        return self.each[worker].iterate(everyone)[worker]
