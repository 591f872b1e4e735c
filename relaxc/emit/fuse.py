"""A local computation of a route and a codec -> one fused kernel."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxc.emit.arithmetic import Arithmetic
from relaxc.emit.keep import keep
from relaxc.emit.kernel import BlockKernel, Section
from relaxc.emit.section import Builder
from relaxc.program.ir import Apply, Codec, CodecLet, Constant, Expression, Read, Send
from relaxc.wire.layout import WireType
from relaxc.wire.routes import Kernel


def build_kernel(symbol: str, codec: Codec, kernel: Kernel, dtype: str) -> BlockKernel:
    """`dtype` (f32, f16, bf16, f64) is the tensor's; `symbol` the name of the function in the generated code."""
    gather = _gather(codec) if kernel.inputs == "many" else None
    main = _Main(codec, kernel, "f64" if dtype == "f64" else "f32").section()
    return BlockKernel(symbol, codec.text, codec.layout, dtype, kernel.inputs, gather, keep(main))


def _gather(codec: Codec) -> Section:
    builder = Builder()
    builder.store("total", builder.add("add", builder.add("total"), received(builder, codec)), per_element=True)
    return builder.section()


def received(builder: Builder, codec: Codec) -> int:
    """The decoded value of a message, from its fields and the lets that the receiver can evaluate too."""
    scope = Arithmetic(builder, {})
    for step in codec.steps:
        if isinstance(step, Send):
            per_element = codec.layout.fields[step.field].per_element
            scope.names[step.name] = builder.add("field", detail=step.field, per_element=per_element)
            builder.name(scope.names[step.name], step.name)
        elif _readable(step.value, scope.names):
            scope.names[step.name] = scope.value(step.value)
        else:
            scope.names.pop(step.name, None)
    return scope.number(codec.receive)


def _readable(e: Expression, names: dict[str, int]) -> bool:
    match e:
        case Constant():
            return True
        case Read(name=name):
            return name in names
        case Apply(arguments=arguments):
            return all(_readable(a, names) for a in arguments)
    return False


@dataclass
class _Main:
    codec: Codec
    kernel: Kernel
    real: str
    builder: Builder = field(default_factory=Builder)

    def section(self) -> Section:
        value = self.input()
        if self.kernel.decodes:
            self.builder.store("tensor", value, per_element=True)
            return self.builder.section()
        decoded = self.encode(value)
        if self.kernel.residual:
            self.builder.store_last("residual", self.lost(value, decoded))
        return self.builder.section()

    def input(self) -> int:
        add = self.builder.add
        values = [add("total")] if self.kernel.inputs == "many" else []
        values += [received(self.builder, self.codec)] if self.kernel.inputs == "one" else []
        values += [add("tensor")] if self.kernel.tensor else []
        value = values[0] if len(values) == 1 else add("add", *values)
        if self.kernel.averages:
            value = add("mul", value, add("average"))
        return add("add", value, add("residual")) if self.kernel.residual else value

    def encode(self, value: int) -> int:
        """Store the fields; return what the receiver will decode."""
        scope = Arithmetic(self.builder, {"x": value})
        for step in self.codec.steps:
            if isinstance(step, CodecLet):
                scope.names[step.name] = scope.value(step.value)
            else:
                scope.names[step.name] = self.send(step, scope.number(step.value))
            self.builder.name(scope.names[step.name], step.name)
        return scope.number(self.codec.receive)

    def send(self, step: Send, value: int) -> int:
        """The value that the receiver has."""
        item = self.codec.layout.fields[step.field]
        sent = self.sent(value, item.wire, step.field)
        self.builder.store("field", sent if item.wire.bits else value, item.per_element, step.field)
        return sent

    def sent(self, value: int, wire: WireType, number: int) -> int:
        if wire.bits:
            return self.builder.add("level", value, detail=number)
        return value if wire.kind in ("real", self.real) else self.builder.add("narrow", value, detail=number)

    def lost(self, value: int, decoded: int) -> int:
        add = self.builder.add
        difference = add("sub", value, decoded)
        return add("where", add("finite", difference), difference, add("residual"))
