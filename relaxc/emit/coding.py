"""A codec as values of a section: what a sender computes and stores, what a receiver makes of it."""

from __future__ import annotations

from collections.abc import Callable

from relaxc.emit.arithmetic import Arithmetic
from relaxc.emit.section import Builder
from relaxc.program.ir import Apply, Chosen, Codec, CodecLet, Constant, Expression, Read, Send, Transform
from relaxc.wire.layout import WireType

LARGEST = 2.0**127
"""A constant up to here is finite in f32, too."""


def encoded(builder: Builder, codec: Codec, real: str, value: int) -> int:
    """Store the fields of the code of `value`; return what its maker decodes. `real` is the arithmetic's type."""
    scope = Arithmetic(builder, {"x": value})
    for step in codec.steps:
        if isinstance(step, CodecLet):
            scope.names[step.name] = scope.value(step.value)
        else:
            scope.names[step.name] = _send(builder, codec, real, step, scope.number(step.value))
        builder.name(scope.names[step.name], step.name)
    if codec.near is not None:
        scope.names[codec.near] = value
    return scope.number(codec.receive)


def _send(builder: Builder, codec: Codec, real: str, step: Send, value: int) -> int:
    """The value that the receiver has."""
    item = codec.layout.fields[step.field]
    sent = _sent(builder, item.wire, real, value, step.field)
    made = item.wire.bits or item.wire.kind == "top"
    builder.store("field", sent if made else value, item.per_element, step.field)
    return sent


def _sent(builder: Builder, wire: WireType, real: str, value: int, number: int) -> int:
    if wire.bits or wire.kind == "top":
        return builder.add("level" if wire.bits else "top", value, detail=number)
    return value if wire.kind in ("real", real) else builder.add("narrow", value, detail=number)


def decoded(builder: Builder, codec: Codec, near: Callable[[], int]) -> int:
    """The value of a message, from its fields and the lets that the receiver can evaluate too; `near` gives the
    receiver's own value, for a codec that reads it."""
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
    if codec.near is not None:
        scope.names[codec.near] = near()
    return scope.number(codec.receive)


def _readable(e: Expression, names: dict[str, int]) -> bool:
    match e:
        case Constant() | Chosen():
            return True
        case Read(name=name):
            return name in names
        case Apply(arguments=arguments):
            return all(_readable(a, names) for a in arguments)
        case Transform(argument=argument):
            return _readable(argument, names)
    return False


def remembered(builder: Builder, value: int, code: int, before: int) -> int:
    """The residual after a value was sent as a code: what is lost, where that is finite."""
    return finite_or(builder, builder.add("sub", value, code), before)


def finite_or(builder: Builder, value: int, before: int) -> int:
    """`value` where it is finite, else `before`; what is made so already stays as it is."""
    made = builder.values[value]
    if made.op == "where" and made.arguments == (builder.add("finite", made.arguments[1]), made.arguments[1], before):
        return value
    if made.op == "constant" and abs(made.detail or 0.0) <= LARGEST:
        return value
    return builder.add("where", builder.add("finite", value), value, before)
