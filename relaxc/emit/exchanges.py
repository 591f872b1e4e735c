"""Exchanges of a plan: the kernels that they run, and their codecs as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from relaxc.emit.fuse import build_kernel
from relaxc.emit.kernel import BlockKernel, real_of
from relaxc.manifest import CodecPlan, ExchangePlan, FieldPlan, KernelPlan
from relaxc.program.ir import Codec, Exchange
from relaxc.program.paths import Transfer
from relaxc.topology.topology import to_plain
from relaxc.wire.routes import Kernel, done_by_fragments, kernels_of


@dataclass
class Kernels:
    """The kernels of a plan, for parameters of `dtypes`; those that do the same are one."""

    dtypes: Sequence[str]
    found: dict[str, BlockKernel] = field(default_factory=dict)

    def plan(self, name: str, dtype: str, kernel: BlockKernel) -> KernelPlan:
        """`dtype` is the parameter's. The function is named after what it does."""
        symbol = f"relaxc_{kernel.digest}_{name}_{kernel.dtype}"
        self.found.setdefault(symbol, replace(kernel, symbol=symbol))
        return KernelPlan(symbol, name, dtype, tuple(o.name for o in kernel.operands))


def native_exchange(exchange: Exchange, kernels: Kernels) -> ExchangePlan:
    """Of gradients, in their own types."""
    return _exchange(exchange, False, _kernels(exchange, False), {d: d for d in kernels.dtypes}, kernels)


def slot_exchange(transfer: Transfer, kernels: Kernels) -> ExchangePlan:
    """Of slots, in the type of arithmetic; without what fragments do themselves."""
    exchange = transfer.exchange
    done = done_by_fragments(transfer.leaves, transfer.lands)
    needed = tuple(k for k in _kernels(exchange, transfer.coded) if k.name not in done)
    return _exchange(exchange, transfer.coded, needed, {d: real_of(d) for d in kernels.dtypes}, kernels)


def _kernels(exchange: Exchange, coded: bool) -> tuple[Kernel, ...]:
    if exchange.codec is None:
        return ()
    return kernels_of(exchange.kind, exchange.route, exchange.feedback, coded, exchange.codec.guard is not None)


def _exchange(
    exchange: Exchange, coded: bool, needed: Sequence[Kernel], types: dict[str, str], kernels: Kernels
) -> ExchangePlan:
    """`types` says for each dtype of parameters what type the operand `value` has."""
    codec, topology = exchange.codec, exchange.topology
    plans = [
        kernels.plan(kernel.name, dtype, build_kernel("", codec, kernel, _kernel_type(kernel, type)))
        for kernel in needed
        if codec is not None
        for dtype, type in types.items()
    ]
    return ExchangePlan(
        exchange.kind, exchange.place, exchange.route, None if topology is None else to_plain(topology),
        exchange.feedback, None if codec is None else _codec(codec), coded, tuple(plans), exchange.rank,
    )  # fmt: skip


def _kernel_type(kernel: Kernel, dtype: str) -> str:
    """A kernel that touches no tensor depends on the arithmetic type alone."""
    return dtype if kernel.tensor or kernel.decodes or kernel.checks else real_of(dtype)


def _codec(codec: Codec) -> CodecPlan:
    layout = codec.layout
    fields = tuple(FieldPlan(f.name, f.wire.kind, f.wire.bits, f.per_element, f.wire.part) for f in layout.fields)
    return CodecPlan(codec.text, layout.unit, layout.block, fields, codec.guard is not None, codec.states)
