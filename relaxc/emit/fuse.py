"""A local computation of a route and a codec -> one fused kernel."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxc.emit.coding import decoded, encoded, remembered, tripped
from relaxc.emit.gather import gathered
from relaxc.emit.kernel import BlockKernel, Section, real_of
from relaxc.emit.operands import Operands
from relaxc.emit.section import Builder
from relaxc.program.codec import EXACT
from relaxc.program.ir import Codec
from relaxc.wire.layout import Layout
from relaxc.wire.routes import Kernel

VALUE, RESIDUAL, SUM = "value", "residual", "sum"


def build_kernel(symbol: str, codec: Codec, kernel: Kernel, dtype: str) -> BlockKernel:
    """`dtype` (f32, f16, bf16, f64) is the operand `value`'s; `symbol` the name of the generated function."""
    return _Fusing(EXACT if kernel.exact else codec, kernel, dtype).kernel_of(symbol)


def block_of(layout: Layout) -> int | None:
    """In elements; None where a segment is a block: a whole parameter, or an owner's chunk of one."""
    return layout.block if layout.unit == "block" else None


@dataclass
class _Fusing:
    codec: Codec
    kernel: Kernel
    dtype: str
    operands: Operands = field(default_factory=Operands)
    builder: Builder = field(default_factory=Builder)

    def kernel_of(self, symbol: str) -> BlockKernel:
        many = self.kernel.inputs == "many"
        if self.kernel.tensor or self.kernel.decodes or self.kernel.checks:
            self.operands.number(VALUE, "tensor")
        gather = gathered(self.codec, self.kernel.weighted, self.near_one) if many else None
        main, layout = self.main(), self.codec.layout
        return BlockKernel(
            symbol, self.codec.text, self.dtype, block_of(layout), layout.fields, self.operands.all, self.inputs,
            gather, main,
        )  # fmt: skip

    @property
    def inputs(self) -> str:
        return "none" if self.kernel.reads_sum else self.kernel.inputs

    def near(self, builder: Builder) -> int:
        return self.operands.load(builder, VALUE, "tensor")

    def near_one(self, builder: Builder) -> int:
        """Of several inputs each may be near something else, where there is a guard."""
        if self.codec.guard is None:
            return self.near(builder)
        if self.dtype != real_of(self.dtype):
            raise TypeError("what is decoded near values of another worker is in the type of arithmetic")
        return builder.add("near", detail=self.operands.number(VALUE, "tensor"), per_element=True)

    def main(self) -> Section:
        if self.kernel.checks:
            found = tripped(self.builder, self.codec, lambda: self.near(self.builder), self.operands)
            self.builder.store("trip", found, per_element=False)
            return self.builder.section()
        value = self.input()
        if self.kernel.decodes:
            self.operands.store(self.builder, VALUE, "tensor", value)
            return self.builder.section()
        code = encoded(self.builder, self.codec, real_of(self.dtype), value, self.operands)
        if self.kernel.residual:
            kept = remembered(self.builder, value, code, self.load(RESIDUAL))
            self.operands.store(self.builder, RESIDUAL, "real", kept)
            if self.codec.near is not None:  # what is received will be decoded next to what was put into the code
                self.operands.store(self.builder, VALUE, "tensor", value)
        return self.builder.section()

    def load(self, name: str) -> int:
        return self.operands.load(self.builder, name, "real" if name == RESIDUAL else "tensor")

    def input(self) -> int:
        add = self.builder.add
        values = [add("total")] if self.kernel.inputs == "many" else []
        if self.kernel.reads_sum:
            values.append(self.operands.load(self.builder, SUM, "real"))
        elif self.kernel.inputs == "one":
            values.append(decoded(self.builder, self.codec, lambda: self.near(self.builder)))
        values += [self.load(VALUE)] if self.kernel.tensor else []
        value = values[0] if len(values) == 1 else add("add", *values)
        if self.kernel.averages:
            value = add("mul", value, add("average"))
        return add("add", value, self.load(RESIDUAL)) if self.kernel.residual else value
