"""Kernels compiled without optimisation, in a fifth of the time: the pool's workers do so, since most tests that train are
about what calls kernels. Those of `shipped()` have them as users do, as have all tests of kernels themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from relaxc.build import flags

SHIPPED = flags.KERNEL_FLAGS
QUICK = tuple("-O0" if flag == "-O3" else flag for flag in SHIPPED)


def quick() -> None:
    """From here on in this process."""
    flags.KERNEL_FLAGS = QUICK  # part of a library's key in the cache, so neither is taken for the other


@contextmanager
def shipped() -> Iterator[None]:
    before, flags.KERNEL_FLAGS = flags.KERNEL_FLAGS, SHIPPED
    try:
        yield
    finally:
        flags.KERNEL_FLAGS = before
