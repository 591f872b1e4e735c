"""One forward as it runs: which weight is first read when, and by which module."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from relaxc.schedule.trace.clock import Clock
from relaxc.schedule.trace.names import Live, compiled_modules, module_name, names_by_id
from relaxc.schedule.trace.reads import Read, Reads, is_read
from relaxc.schedule.trace.sample import Sample


class Recording:
    """Forwards with hooks on each module and an ear on each of torch's functions.

    What torch.compile compiled runs as it was written, and counts as read where the outermost compiled module begins:
    a compiled function takes all its weights at once."""

    def __init__(self, model: nn.Module, sample: Sample, live: Live, clock: Clock) -> None:
        self._model, self._sample, self._clock = model, sample, clock
        self._names, self._compiled = names_by_id(live), frozenset(compiled_modules(model))

    def run(self) -> Reads:
        """Raise whatever the model raises."""
        within = _Within(self._clock, self._compiled)
        ear = _Ear(self._names, within)
        with self._clock.running(), as_written(), _hooked(self._model, within):
            start = within.begin()
            with ear:
                self._model(*self._sample.args, **self._sample.kwargs)
            end = self._clock.mark()
        first = {name: Read(self._clock.between(start, mark), who) for name, (mark, who) in ear.heard.items()}
        entered = {name: self._clock.between(start, mark) for name, mark in within.entered.items()}
        return Reads(self._clock.between(start, end), first, entered)


def as_written() -> AbstractContextManager[Any]:
    """Within, torch.compile compiles nothing and what it has compiled runs uncompiled."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


class _Within:
    """The modules that are running now, outermost first, and when each was first entered."""

    def __init__(self, clock: Clock, compiled: frozenset[str]) -> None:
        self._clock, self._compiled = clock, compiled
        self._running: list[tuple[str, Any]] = []
        self.entered: dict[str, Any] = {}

    def begin(self) -> Any:
        """Enter the model itself, before whatever its call does first."""
        self.enter("")
        return self.entered[""]

    def enter(self, name: str) -> None:
        mark = self._clock.mark()
        self.entered.setdefault(name, mark)
        self._running.append((name, mark))

    def leave(self, name: str) -> None:
        if self._running[-1][0] == name and len(self._running) > 1:
            self._running.pop()

    def now(self) -> tuple[Any, str]:
        """When what reads now counts as reading, and which module that is."""
        for name, mark in self._running:
            if name in self._compiled:
                return mark, name
        return self._clock.mark(), self._running[-1][0]


class _Ear(TorchFunctionMode):
    """`heard` has each weight's first read, in order: its mark and module."""

    def __init__(self, names: Mapping[int, str], within: _Within) -> None:
        super().__init__()
        self._names, self._within = names, within
        self.heard: dict[str, tuple[Any, str]] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        unread = [name for name in self._given((args, named)) if name not in self.heard]
        if not unread:
            return func(*args, **named)
        mark, module = self._within.now()
        result = func(*args, **named)
        if is_read(getattr(func, "__name__", ""), result):
            for name in unread:
                self.heard.setdefault(name, (mark, module))
        return result

    def _given(self, value: Any) -> Iterator[str]:
        if isinstance(value, torch.Tensor):
            if id(value) in self._names:
                yield self._names[id(value)]
        elif isinstance(value, tuple | list):
            for part in value:
                yield from self._given(part)
        elif isinstance(value, dict):
            yield from self._given(tuple(value.values()))


@contextmanager
def _hooked(model: nn.Module, within: _Within) -> Iterator[None]:
    handles = []
    try:
        for name, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue  # takes no hooks
            plain = module_name(name)
            handles.append(module.register_forward_pre_hook(_entering(within, plain), prepend=True))
            handles.append(module.register_forward_hook(_leaving(within, plain), always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _entering(within: _Within, name: str) -> Callable[..., None]:
    return lambda *_: within.enter(name)


def _leaving(within: _Within, name: str) -> Callable[..., None]:
    return lambda *_: within.leave(name)
