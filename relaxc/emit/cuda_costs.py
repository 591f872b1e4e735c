"""What things cost a GPU: which values per element it computes again, and with how many threads a block is worked on.

Memory is what a kernel waits for, so that nothing is read from it twice: what a later stage needs of it is kept on
chip. A number that is kept costs a store and a load there. What is added up in order is always kept: one warp adds it
up alone.
"""

from __future__ import annotations

from relaxc.emit import keeping
from relaxc.emit.kernel import BLOCKWISE, REDUCTIONS, BlockKernel, Section

READ = dict.fromkeys(("operand", "near", "field"), 10)
DEAR = {"divide": 8, "over": 8, "sqrt": 8, "dither": 20, "exp": 50, "log": 50, "log2": 50, "power": 80}
GATHERED = 1000
"""A total that is made of many messages where it is needed."""
AGAIN = 3
FEW = 1024
"""Elements of a block for which 2048 bins are too many."""
WARP = 32
MOST_THREADS = 256
WHOLE_THREADS = 512
"""Where a segment is a block, as large as it comes."""
ON_CHIP_BYTES = 48 << 10
"""What a thread block may have without asking for more; scratch beyond it is in global memory."""


def scratch(section: Section, flat: bool = False) -> frozenset[int]:
    """`flat`: a total is in registers, not in scratch."""
    costs = {"constant": 0, "total": GATHERED if flat else 0, **READ, **DEAR}
    return keeping.kept(section, keeping.Costs(costs, AGAIN), sums=True)


def flat(kernel: BlockKernel) -> bool:
    """Whether many messages are decoded element by element where their total is needed: no message has to be seen as a
    whole, so the total is never stored."""
    if kernel.gather is None or any(f.wire.kind == "top" for f in kernel.fields):
        return False
    return kernel.gather.stages == 1 and not any(v.op in REDUCTIONS | BLOCKWISE for v in kernel.gather.values)


def run(kernel: BlockKernel) -> int:
    """How many neighbours a thread takes at once: 16 bytes of the tensor, or 4 elements."""
    small = kernel.dtype in ("f16", "bf16") and (kernel.block is None or kernel.block >= MOST_THREADS)
    return 8 if small else 4


def digit(kernel: BlockKernel) -> int:
    """How many bits of a magnitude a top counts at once (relaxrt/cuda_top.h): 3 passes over an f32, or 4 with an eighth
    of the bins."""
    return 8 if kernel.block is not None and kernel.block <= FEW else 11


def threads(kernel: BlockKernel) -> int:
    """Of a thread block: whole warps, each thread with one run where that is enough."""
    if kernel.block is None:
        return WHOLE_THREADS
    runs = -(-kernel.block // run(kernel))
    return min(MOST_THREADS, -(-runs // WARP) * WARP)
