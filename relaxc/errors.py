"""The user's mistakes outside a spec's text: RX04 model, RX05 build, RX06 running. Bugs of relaxc are other
exceptions."""

from __future__ import annotations


class RelaxError(Exception):
    """One sentence that says what is wrong, and one that says what to do."""

    def __init__(self, code: str, message: str, help: str | None = None) -> None:
        self.code, self.message, self.help = code, message, help
        super().__init__(f"{code}: {message}" + (f"\n  help: {help}" if help else ""))


class ModelError(RelaxError):
    """RX04: the plan does not fit the model."""


class BuildError(RelaxError):
    """RX05: a compiler, a cache or a plan directory is not what is needed."""


class ExchangeError(RelaxError):
    """RX06: the workers disagree, or one was lost while training."""
