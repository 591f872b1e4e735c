"""Uneven inputs: a worker that has run out takes part in the others' exchanges with nothing of its own.

Within `join()` workers tell each other what comes next: before a backward whose results are exchanged, and before a
step whose program exchanges. One that has run out answers that it has nothing, and does its part of what the others
named: absent gradients, and a body with `step` as identity. When nobody names anything, all are done.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from relaxc.attach.consensus import take_from
from relaxc.attach.groups import Groups
from relaxc.attach.programs import Programs
from relaxc.errors import ExchangeError

DONE, BACKWARD, STEP = 0, 1, 2
"""What a worker does next; STEP + n is a step of optimizer n."""


class Join:
    """`exchanges` tells whether a backward exchanges anything. `equal` are the parameters in which replicas are
    identical."""

    def __init__(
        self, groups: Groups, tensors: Sequence[nn.Parameter], equal: Sequence[nn.Parameter], programs: Programs | None,
        native: bool,
    ) -> None:  # fmt: skip
        self._groups, self._tensors, self._equal = groups, tensors, equal
        self._programs, self._native = programs, native
        self.active = self._named = False
        self._last = -1

    @property
    def _backward_matters(self) -> bool:
        return self._native or (self._programs is not None and self._programs.exchange_in_backward)

    def before_backward(self) -> None:
        """At a forward that an exchanging backward will follow."""
        if self.active and not self._named and self._backward_matters:
            self._named = True
            self._name(BACKWARD)

    def after_backward(self) -> None:
        self._named = False

    def before_step(self, optimizer: int) -> None:
        if self.active:
            self._name(STEP + optimizer)

    def enter(self) -> None:
        waits = self._native or self._programs is None or self._programs.waits
        self.active, self._named, self._last = waits and self._groups.workers > 1, False, -1

    def leave(self) -> None:
        """This worker has run out: shadow the others until all have. Where nobody waits for anybody it only waits for
        them."""
        if not self.active:
            if self._programs is not None:
                self._programs.come_to_rest()
                self._programs.launch_again()
            return
        if self._programs is not None:
            self._programs.make_up()  # a step that the last iteration left out
        if self._named:
            self._backward()
        while (event := self._name(DONE)) != DONE:
            self._backward() if event == BACKWARD else self._step(event - STEP)
        self.active = False
        if self._programs is not None:
            self._programs.complete()
        if self._last >= 0:
            for tensor in self._equal:
                if tensor.numel():
                    take_from(tensor, self._last, self._groups)

    def _name(self, event: int) -> int:
        """What is done next, by those who still have something."""
        mine = torch.tensor([event])
        named = [int(n) for n in self._groups.gather_tensors(mine)]
        others = {n for n in named if n != DONE}
        if len(others) > 1:
            told = ", ".join(map(_words, sorted(others)))
            raise ExchangeError(
                "RX0618", f"within join() workers do different things at a time: {told}",
                "give all workers the same loop; only the number of iterations may differ",
            )  # fmt: skip
        if not others:
            return DONE
        if DONE in named:
            self._last = next(rank for rank, n in enumerate(named) if n != DONE)
        return others.pop()

    def _backward(self) -> None:
        """Absent gradients. The one parameter that backward needs to run at all has zeros."""
        self._drop()
        if self._programs is not None:
            with torch.no_grad():
                self._programs.asked(training=False)
            self._programs.shadowing = True
        if self._native:
            first = self._tensors[0]
            torch.autograd.backward([first], [torch.zeros_like(first)])
        elif self._programs is not None:
            self._programs.backward(())
        if self._programs is not None:
            self._programs.shadowing = False
        self._named = False

    def _step(self, optimizer: int) -> None:
        clock = self._programs.by_optimizer[optimizer] if self._programs is not None else None
        if clock is not None:
            self._drop()
            with torch.no_grad():
                clock.skip()

    def _drop(self) -> None:
        for tensor in self._tensors:
            tensor.grad = None


def _words(event: int) -> str:
    return "backward" if event == BACKWARD else f"a step of optimizer {event - STEP}"
