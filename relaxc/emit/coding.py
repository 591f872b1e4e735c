"""A codec as values of a section: what a sender computes and stores, what a receiver makes of it."""

from __future__ import annotations

from collections.abc import Callable

from relaxc.emit.arithmetic import Arithmetic
from relaxc.emit.operands import Operands
from relaxc.emit.section import Builder
from relaxc.program.ir import Apply, Chosen, Codec, CodecLet, Constant, Expression, Read, Send, Transform
from relaxc.wire.layout import WireType

LARGEST = 2.0**127
"""A constant up to here is finite in f32, too."""


STATE = "codec."
"""Begins the name of the operand that is a codec's state."""


def encoded(builder: Builder, codec: Codec, real: str, value: int, operands: Operands) -> int:
    """Store the fields of the code of `value`; return what its maker decodes. `real` is the arithmetic's type;
    `operands` of the kernel, for the codec's states."""
    scope = Arithmetic(builder, {"x": value, "index": _index(builder), **_states(builder, codec, operands)})
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
    return _received(builder, codec, near).number(codec.receive)


def _states(builder: Builder, codec: Codec, operands: Operands) -> dict[str, int]:
    return {name: operands.load(builder, STATE + name, "block") for name, _ in codec.states}


def tripped(builder: Builder, codec: Codec, near: Callable[[], int], operands: Operands) -> int:
    """A truth per block: the guard does not hold. Store what states become."""
    if codec.guard is None:
        raise TypeError("a codec without a guard checks nothing")
    scope = _received(builder, codec, near)
    before = _states(builder, codec, operands)
    scope.names |= before
    for let in codec.guard.lets:
        scope.names[let.name] = scope.value(let.value)
        builder.name(scope.names[let.name], let.name)
    held = scope.truth(codec.guard.holds)
    for update in codec.guard.updates:
        value = finite_or(builder, scope.number(update.value), before[update.name])
        scope.names[update.name] = value
        operands.store(builder, STATE + update.name, "block", value)
    return builder.add("not", held)


def _index(builder: Builder) -> int:
    return builder.add("index", per_element=True)


def _received(builder: Builder, codec: Codec, near: Callable[[], int]) -> Arithmetic:
    """What a receiver has."""
    scope = Arithmetic(builder, {"index": _index(builder)})
    for step in codec.steps:
        if isinstance(step, Send):
            per_element = codec.layout.fields[step.field].per_element
            item = builder.add("field", detail=step.field, per_element=per_element)
            builder.name(item, step.name)
            scope.names[step.name] = item
            if codec.layout.fields[step.field].wire.bits:
                scope.known.add(item)
        elif _readable(step.value, scope.names):
            scope.names[step.name] = scope.value(step.value)
        else:
            scope.names.pop(step.name, None)
    if codec.near is not None:
        scope.names[codec.near] = near()
    return scope


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
