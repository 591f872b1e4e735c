"""Groups with NCCL's rules on the CPU: tests/attach/ordered_group.cpp, compiled as the runtime is."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from relaxc.attach import ordered
from relaxc.build import cache
from relaxc.build.compiler import compile_file, find
from relaxc.build.torch_flags import python_include, torch_flags

SOURCE = Path(__file__).resolve().parent / "attach" / "ordered_group.cpp"
LIBRARY = "ordered_group.so"


def built() -> Path:
    """From the cache, or compiled into it."""
    flags, compiler = torch_flags(), find()
    key = cache.key_of([flags.binary, compiler.version, SOURCE.read_bytes()])

    def make(folder: Path) -> None:
        arguments = [*flags.defines, "-O1", "-fPIC", "-pthread", "-shared", *flags.includes, python_include(),
                     str(SOURCE), *flags.link, "-o", LIBRARY]  # fmt: skip
        compile_file(compiler, arguments, folder, cache.log_path(folder, key))

    return cache.obtain("tests", key, make, what=SOURCE.name, report=lambda _line: None) / LIBRARY


def _module(library: Path) -> Any:
    spec = importlib.util.spec_from_file_location("ordered_group", library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def standing_in(library: Path, *, blocks: bool = True) -> Iterator[list[dist.ProcessGroup]]:
    """Within it plans attach to such groups, which are in the list. Where waiting for messages does not block, it returns
    at once, as on a device, and what arrives is nobody's."""
    made: list[dist.ProcessGroup] = []

    def make(store: Store, rank: int, workers: int, limit: timedelta) -> dist.ProcessGroup:
        group = dist.ProcessGroup(store, rank, workers)
        backend = _module(library).ordered(dist.ProcessGroupGloo(store, rank, workers, limit), blocks)
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
        made.append(group)
        return group

    ordered.stand_in = make
    try:
        yield made
    finally:
        ordered.stand_in = None
