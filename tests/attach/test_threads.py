"""A kernel's call on as many threads as torch gives the thread that makes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from relaxc.build.kernels import build_kernels
from relaxc.build.runtime import build_runtime, load_runtime

pytestmark = pytest.mark.timeout(600)  # the first test may build the runtime
LARGE, SMALL = 1 << 17, 1 << 14
WHO = """
#include <unistd.h>

#include "relaxrt/abi.h"

// Who did each element, by number of its thread in the system, and that it was done once more.
extern "C" void who(const relaxrt_segment* segments, int64_t count, const relaxrt_call*, int64_t from, int64_t to) {
  int64_t before = 0;
  for (int64_t s = 0; s < count; before += segments[s++].elements)
    for (int64_t i = 0; i < segments[s].elements; ++i)
      if (from <= before + i && before + i < to) {
        static_cast<double*>(segments[s].operands[0])[i] = gettid();
        static_cast<double*>(segments[s].operands[1])[i] += 1;
      }
}
"""


COUNTED = """
#include "relaxrt/abi.h"

// How often each segment is done, where a segment is one block.
extern "C" void counted(const relaxrt_segment* segments, int64_t count, const relaxrt_call*, int64_t from, int64_t to) {
  int64_t before = 0;
  for (int64_t s = 0; s < count; before += segments[s++].elements)
    if (from <= before && before < to) ++*static_cast<double*>(segments[s].operands[0]);
}
"""


class Watch:
    def on_wait(self, _seconds: float) -> None: ...

    def on_failure(self, _iteration: int, _bucket: int, _peer: int, what: str) -> None:
        raise RuntimeError(what)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def library() -> Path:
    return build_kernels(WHO)


class Asked:
    """A call of `who` over two segments, by the caller's thread or by the queue's."""

    def __init__(self, library: Path, elements: int) -> None:
        self.runtime = load_runtime()
        self.operations = self.runtime.Operations(self.runtime.Channel(), 0, 1, 0, str(library), Watch())
        self.tids, self.times = (torch.zeros(elements, dtype=torch.float64) for _ in range(2))
        cut = elements // 3
        segments = [self.segment(0, cut), self.segment(cut, elements - cut)]
        self.call = self.operations.call("who", "who", segments)

    def segment(self, first: int, elements: int) -> Any:
        operands = [self.runtime.Operand("buffer", tensor, first) for tensor in (self.tids, self.times)]
        return self.runtime.Segment(0, 0, elements, operands)

    def here(self) -> list[int]:
        self.times.zero_()
        self.call.run(0, [])
        return self.found()

    def by_the_queue(self) -> list[int]:
        self.times.zero_()
        piece = self.runtime.Piece(0, phases=[[self.runtime.Action("run", self.call)]])
        job = self.operations.job([piece])
        self.operations.start(job, 0)
        self.operations.wait(job)
        return self.found()

    def found(self) -> list[int]:
        """Each element was done once; the threads, in the order of the elements."""
        assert (self.times == 1).all()
        return [int(tid) for tid in torch.unique_consecutive(self.tids)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_call_takes_as_many_threads_as_torch_has(count: int, library: Path) -> None:
    torch.set_num_threads(count)
    found = Asked(library, LARGE).here()
    assert len(found) == len(set(found)) == count
    assert threading.get_native_id() in found


def test_a_small_call_stays_on_its_thread(library: Path) -> None:
    torch.set_num_threads(2)
    assert Asked(library, SMALL).here() == [threading.get_native_id()]


@pytest.mark.parametrize("sizes", [(0, 0), (LARGE, 0, LARGE, 0, 0), (0, SMALL), (5, LARGE)])
def test_each_block_is_done_once_those_without_elements_too(sizes: tuple[int, ...]) -> None:
    torch.set_num_threads(3)
    runtime, times = load_runtime(), torch.zeros(len(sizes), dtype=torch.float64)
    made = runtime.Operations(runtime.Channel(), 0, 1, 0, str(build_kernels(COUNTED)), Watch())
    segments = [runtime.Segment(n, 0, size, [runtime.Operand("buffer", times, n)]) for n, size in enumerate(sizes)]
    made.call("counted", "counted", segments).run(0, [])
    assert times.tolist() == [1] * len(sizes)


def test_the_threads_are_those_of_torchs_own_openmp() -> None:
    assert b"libgomp" not in build_runtime().read_bytes()


def test_the_queue_takes_what_torch_has_when_an_exchange_starts(library: Path) -> None:
    asked = Asked(library, LARGE)
    for count in (2, 1, 3, 1):
        torch.set_num_threads(count)
        found = asked.by_the_queue()
        assert len(found) == len(set(found)) == count
        assert threading.get_native_id() not in found


def test_the_queue_changes_nobody_elses_number(library: Path) -> None:
    torch.set_num_threads(1)
    asked = Asked(library, LARGE)
    asked.by_the_queue()
    torch.set_num_threads(2)
    asked.by_the_queue()
    seen: list[int] = []
    other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert (torch.get_num_threads(), seen) == (2, [2])
