"""Codecs of specs/codecs/, most of them, as ir.Codec, written out by hand, so that tests of kernels need no parser."""

from __future__ import annotations

from relaxc.program.ir import (
    Apply,
    Chosen,
    Codec,
    CodecLet,
    Constant,
    Dither,
    Expression,
    Guard,
    Read,
    Reduce,
    Send,
    Transform,
)  # fmt: skip
from relaxc.wire.layout import Field, Layout, WireType

X = Read("x")
F32 = WireType("f32")


def apply(function: str, *arguments: Expression | float) -> Apply:
    return Apply(function, tuple(Constant(float(a)) if isinstance(a, (int, float)) else a for a in arguments))


def cast(kind: str) -> Codec:
    """fp16, bf16, f32, and with `real` the exact codec."""
    return Codec(
        kind, Layout(512, (Field("value", WireType(kind), True),)), (Send(0, "value", X),), Read("value"), False
    )


def rounded(value: Expression, stochastic: bool) -> Expression:
    return Dither(value) if stochastic else apply("round", value)


def minmax(bits: int, block: int = 512, stochastic: bool = False) -> Codec:
    level = rounded(apply("/", apply("-", X, Read("low")), Read("scale")), stochastic)
    fields = (Field("low", F32, False), Field("scale", F32, False), Field("level", WireType("uint", bits), True))
    steps = (
        Send(0, "low", Reduce("min", X)),
        Send(1, "scale", apply("/", apply("-", Reduce("max", X), Read("low")), 2**bits - 1)),
        Send(2, "level", level),
    )
    receive = apply("+", Read("low"), apply("*", Read("level"), Read("scale")))
    return Codec(f"minmax({bits}, {block}, {stochastic})", Layout(block, fields), steps, receive, stochastic)


def absmax(bits: int, block: int = 512, stochastic: bool = False) -> Codec:
    fields = (Field("scale", F32, False), Field("level", WireType("int", bits), True))
    steps = (
        Send(0, "scale", apply("/", Reduce("max", apply("abs", X)), 2 ** (bits - 1) - 1)),
        Send(1, "level", rounded(apply("/", X, Read("scale")), stochastic)),
    )
    receive = apply("*", Read("level"), Read("scale"))
    return Codec(f"absmax({bits}, {block}, {stochastic})", Layout(block, fields), steps, receive, stochastic)


def onebit(block: int = 2048) -> Codec:
    fields = (Field("scale", F32, False), Field("positive", WireType("uint", 1), True))
    steps = (
        CodecLet("scale", Reduce("mean", apply("abs", X))),
        Send(0, "scale", Read("scale")),
        Send(1, "positive", apply("where", apply(">=", X, 0), 1, 0)),
    )
    receive = apply("*", Read("scale"), apply("-", apply("*", 2, Read("positive")), 1))
    return Codec(f"onebit({block})", Layout(block, fields), steps, receive, False)


def qsgd(bits: int, block: int = 512) -> Codec:
    levels = 2.0 ** (bits - 1) - 1
    fields = (Field("size", F32, False), Field("level", WireType("int", bits), True))
    steps = (
        CodecLet("largest", Reduce("max", apply("abs", X))),
        Send(0, "size", apply("*", Read("largest"), Reduce("norm", apply("/", X, Read("largest"))))),
        Send(1, "level", Dither(apply("*", apply("/", X, Read("size")), levels))),
    )
    receive = apply("/", apply("*", Read("size"), Read("level")), levels)
    return Codec(f"qsgd({bits}, {block})", Layout(block, fields), steps, receive, True)


def natural() -> Codec:
    fields = (Field("negative", WireType("uint", 1), True), Field("exponent", WireType("uint", 8), True))
    size = apply("abs", X)
    above = apply("+", Read("drawn"), 127)
    within = apply("*", Read("size"), apply("^", 2, apply("neg", Read("power"))))
    steps = (
        CodecLet("size", apply("clamp", size, 2.0**-126, 2.0**127)),
        CodecLet("power", apply("logb", Read("size"))),
        CodecLet("drawn", apply("-", apply("+", Read("power"), Dither(within)), 1)),
        CodecLet("known", apply("where", apply("<", size, 2.0**-126), 0, apply("min", above, 254))),
        Send(0, "negative", apply("where", apply("<", X, 0), 1, 0)),
        Send(1, "exponent", apply("where", apply("<", size, float("inf")), Read("known"), 255)),
        CodecLet(
            "sent",
            apply("where", apply("<", Read("exponent"), 255), apply("^", 2, apply("-", Read("exponent"), 127)),
                  float("inf")),
        ),
    )  # fmt: skip
    signed = apply("*", apply("-", 1, apply("*", 2, Read("negative"))), Read("sent"))
    receive = apply("where", apply("==", Read("exponent"), 0), 0, signed)
    return Codec("natural", Layout(512, fields), steps, receive, True)


def ternary(clip: float = 2.5) -> Codec:
    fields = (Field("top", F32, False), Field("level", WireType("int", 2), True))
    squares = apply("^", apply("/", X, Read("largest")), 2)
    bound = apply("*", clip, Read("spread"))
    steps = (
        CodecLet("largest", Reduce("max", apply("abs", X))),
        CodecLet("spread", apply("*", Read("largest"), apply("sqrt", Reduce("mean", squares)))),
        CodecLet("near0", apply("clamp", X, apply("*", -clip, Read("spread")), bound)),
        Send(0, "top", Reduce("max", apply("abs", Read("near0")))),
        Send(1, "level", Dither(apply("/", Read("near0"), Read("top")))),
    )
    receive = apply("*", Read("top"), Read("level"))
    return Codec(f"ternary({clip})", Layout(0, fields, "tensor"), steps, receive, True)


def modulo(bits: int = 8, unit: float = 0.001) -> Codec:
    """Without the library's guard."""
    steps = (
        CodecLet("level", Dither(apply("/", X, unit))),
        CodecLet("turn", apply("floor", apply("/", Read("level"), 2**bits))),
        Send(0, "residue", apply("-", Read("level"), apply("*", 2**bits, Read("turn")))),
    )
    turn = apply("round", apply("/", apply("-", apply("/", Read("y"), unit), Read("residue")), 2**bits))
    receive = apply("*", unit, apply("+", Read("residue"), apply("*", 2**bits, turn)))
    layout = Layout(512, (Field("residue", WireType("uint", bits), True),))
    return Codec(f"modulo({bits}, {unit})", layout, steps, receive, True, "y")


def guarded(bits: int = 8, unit: float = 0.001, block: int = 512) -> Codec:
    """The library's modulo."""
    size, scale, residue, place = map(Read, ("size", "scale", "residue", "place"))
    turn, total, found, again = map(Read, ("turn", "total", "found", "again"))
    where = apply("+", apply("*", 0.7548777, Read("index")), apply("*", 0.5698403, residue))
    drawn = apply("mod", apply("*", 977, apply("^", place, 2)), 1)
    turns = apply("round", apply("/", apply("-", apply("*", Read("y"), scale), residue), 2**bits))
    high = apply("mod", apply("floor", apply("/", total, 256)), 255)
    steps = (
        Send(0, "size", Constant(unit)),
        CodecLet("scale", apply("/", 1, size)),
        CodecLet("level", Dither(apply("*", X, scale))),
        CodecLet("turn", apply("floor", apply("/", Read("level"), 2**bits))),
        Send(1, "residue", apply("-", Read("level"), apply("*", 2**bits, turn))),
        CodecLet("place", apply("mod", where, 1)),
        CodecLet("share", apply("+", 1, apply("*", 2, apply("floor", apply("*", 2**13, drawn))))),
        CodecLet("total", _total(turn)),
        Send(2, "low", apply("mod", total, 256)),
        Send(3, "high", apply("where", apply("<", total, 2**24), high, 255)),
    )
    sent = apply("+", Read("low"), apply("*", 256, Read("high")))
    right = apply("and", apply("<", again, 2**24), apply("==", apply("mod", again, 255 * 256), sent))
    lets = (CodecLet("found", turns), CodecLet("again", _total(found)), CodecLet("right", right))
    byte = WireType("uint", 8)
    fields = (
        Field("size", F32, False), Field("residue", WireType("uint", bits), True), Field("low", byte, False),
        Field("high", byte, False),
    )  # fmt: skip
    receive = apply("*", size, apply("+", residue, apply("*", 2**bits, turns)))
    text = f"modulo({bits}, {unit}, {block})"
    return Codec(text, Layout(block, fields), steps, receive, True, "y", Guard(lets, Read("right")))


def _total(turns: Expression) -> Expression:
    checked = apply("mod", apply("*", apply("mod", turns, 2**10), Read("share")), 2**14)
    signs = apply("where", apply("<", turns, 0), apply("floor", apply("/", Read("share"), 4)), 0)
    return Reduce("sum", apply("+", apply("+", checked, apply("abs", turns)), signs))


def topk(part: float = 0.01, block: int | None = None) -> Codec:
    """Per tensor, or of blocks."""
    fields = (Field("kept", WireType("top", part=part), True),)
    layout = Layout(0, fields, "tensor") if block is None else Layout(block, fields)
    return Codec(f"topk({part}, {block})", layout, (Send(0, "kept", X),), Read("kept"), False)


def randomk(block: int = 100) -> Codec:
    chosen = apply("where", Chosen(), X, 0)
    layout = Layout(block, (Field("value", WireType("real"), False),))
    receive = apply("where", Chosen(), Read("value"), 0)
    return Codec(f"randomk(1/{block})", layout, (Send(0, "value", Reduce("sum", chosen)),), receive, False)


def dct(side: int = 8, keep: float = 4) -> Codec:
    layout = Layout(side**2, (Field("kept", WireType("top", part=keep), True),))
    receive = Transform("idct", Read("kept"), side)
    return Codec(f"dct({side}, {keep})", layout, (Send(0, "kept", Transform("dct", X, side)),), receive, False)


def signs() -> Codec:
    layout = Layout(512, (Field("positive", WireType("uint", 1), True),))
    steps = (Send(0, "positive", apply("where", apply(">=", X, 0), 1, 0)),)
    return Codec("signs", layout, steps, apply("-", apply("*", 2, Read("positive")), 1), False)


def everything(block: int = 37) -> Codec:
    """A codec that no one would use and that has what the others have not: two reductions one after the other, a field of
    7 bits, an f16 and a bf16 per element, a bit per block, lets on both sides, and most functions."""
    fields = (
        Field("centre", WireType("bf16"), False),
        Field("wide", WireType("uint", 1), False),
        Field("level", WireType("uint", 7), True),
        Field("left", WireType("f16"), True),
        Field("sign", WireType("int", 3), True),
    )
    spread = apply("sqrt", Reduce("sum", apply("^", Read("about"), 2)))
    bent = apply("clamp", apply("/", Read("about"), Read("spread")), -1.5, apply("max", Read("spread"), 0.25))
    steps = (
        Send(0, "centre", Reduce("mean", X)),
        CodecLet("about", apply("-", X, Read("centre"))),
        CodecLet("spread", spread),
        Send(1, "wide", apply(">", Read("spread"), 1)),
        CodecLet("room", apply("where", Read("wide"), 96, 100.5)),
        Send(2, "level", apply("+", apply("floor", apply("*", bent, 31)), 64)),
        Send(3, "left", apply("min", apply("neg", Read("about")), apply("^", Read("about"), -3))),
        Send(
            4,
            "sign",
            apply("*", apply("sign", Read("about")), apply("and", apply("!=", X, 1), apply("not", Read("wide")))),
        ),
    )
    receive = apply("+", apply("*", Read("room"), Read("level")), apply("-", Read("left"), Read("sign")))
    return Codec(f"everything({block})", Layout(block, fields), steps, receive, False)
