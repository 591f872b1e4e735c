"""The command was used wrongly, or the installation is damaged."""

from __future__ import annotations


class UsageError(Exception):
    """What was asked can't be done: one sentence that says why. Exit status 2."""
