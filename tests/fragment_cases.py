"""Fragments of paths as programs of this field have them, each with its meaning written out in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import codecs_by_hand as codecs
import numpy as np
from codecs_by_hand import apply
from kernel_calls import KEY, SHARED, Array, from_bits, to_bits

from relaxc.program import evaluate
from relaxc.program.ir import Codec, CodecLet, Constant, Exchange, Let, Optimizer, Read, Reduce, Send, State
from relaxc.program.paths import Fragment, Kept, PathBody, Store, Transfer
from relaxc.topology.topology import Topology
from relaxc.wire.dither import parameter_keys
from relaxc.wire.layout import Field, Layout, WireType

W, G = Read("weight"), Read("grad")
WORKERS = 3
WEIGHTS = (0.25, 1 / 3, 5 / 12)


@dataclass
class World:
    """What a fragment finds for one parameter: `memory` in the arithmetic type, what other workers put into their
    messages, and the numbers, in f64."""

    memory: Mapping[str, Array]
    numbers: Mapping[str, float]
    inputs: list[Array]
    codec: Codec | None
    dtype: str
    first: int
    parameter: int

    def __getitem__(self, name: str) -> Array:
        return self.memory[name]

    @property
    def real(self) -> Any:
        return np.float64 if self.dtype == "f64" else np.float32

    def number(self, value: float) -> Any:
        """Rounded once."""
        return self.real(value)

    def code(self, value: Array) -> bytes:
        assert self.codec is not None
        return evaluate.encode(self.codec, value, parameter_keys(KEY, self.parameter), self.first, shared=self.shared)

    @property
    def shared(self) -> tuple[int, int]:
        return parameter_keys(SHARED, self.parameter)

    def decode(self, message: bytes, near: Array | None = None) -> Array:
        assert self.codec is not None
        size = next(iter(self.memory.values())).size
        return evaluate.decode(self.codec, message, size, self.real, near, self.first, self.shared)

    def arrived(self, near: Array | None = None) -> list[Array]:
        assert self.codec is not None
        sent = [evaluate.encode(self.codec, x, first=self.first, shared=self.shared) for x in self.inputs]
        return [self.decode(message, near) for message in sent]

    def stored(self, value: Array) -> Array:
        """What the parameter's own type makes of a value."""
        return from_bits(to_bits(value, self.dtype), self.dtype)


@dataclass
class Outcome:
    """What the stores would write without a state's guard, and the message."""

    stores: dict[str, Array]
    message: bytes = b""


@dataclass(frozen=True)
class Case:
    name: str
    body: PathBody
    fragment: Fragment
    meaning: Callable[[World], Outcome]
    numbers: Mapping[str, float] = field(default_factory=dict)
    libm: bool = False
    """It calls functions that C libraries round differently in f64."""

    @property
    def transfer(self) -> Transfer | None:
        number = self.fragment.sends if self.fragment.sends is not None else self.fragment.receives
        return None if number is None else self.body.transfers[number]


def body(fragment: Fragment, states: str = "", cells: str = "", transfer: Transfer | None = None, kept: int = 0) -> Any:
    made = [State(name, Constant(0.0), "tensor") for name in states.split()]
    made += [State(name, Constant(0.0), "cell") for name in cells.split()]
    transfers = () if transfer is None else (transfer,)
    return PathBody(None, None, tuple(made), (), transfers, (Kept("tensor", 1),) * kept, (fragment,), (), ())


def transfer(kind: str, codec: Codec, feedback: str = "none", coded: bool = False) -> Transfer:
    topology = Topology("ring") if kind == "mix" else None
    exchange = Exchange(kind, Read("x"), codec, feedback, "all", topology, 0)
    return Transfer(exchange, coded, "code", "code", 0, 1)


def finite(value: Array, old: Array) -> Array:
    return np.where(np.isfinite(value), value, old)


def total(parts: list[Array]) -> Array:
    """From -0, in order."""
    out = np.full_like(parts[0], -0.0)
    for part in parts:
        out = out + part
    return out


def lanes(x: Array) -> Any:
    """wire/sums.py, element by element."""
    sums = np.zeros(32, x.dtype)
    for i, v in enumerate(x):
        sums[i % 32] += v
    while sums.size > 1:
        sums = sums[: sums.size // 2] + sums[sums.size // 2 :]
    return sums[0]


# --- updates without messages


def _adam() -> Case:
    """one_bit_adam's own update; `m` and `v` are read after they were assigned."""
    m = apply("+", apply("*", 0.9, Read("m")), apply("*", apply("-", 1, 0.9), G))
    v = apply("+", apply("*", 0.999, Read("v")), apply("*", 0.001, apply("^", G, 2)))
    lets = (Let("m.1", apply("finite", m, Read("m"))), Let("v.1", apply("finite", v, Read("v"))))
    rate = apply("/", Read("lr"), apply("-", 1, apply("^", 0.9, apply("+", Read("t"), 1))))
    step = apply("/", apply("*", rate, Read("m.1")), apply("+", apply("sqrt", Read("v.1")), 1e-8))
    stores = (Store("m", Read("m.1")), Store("v", Read("v.1")), Store("weight", apply("-", W, step)))
    fragment = Fragment(lets, stores)

    def meaning(w: World) -> Outcome:
        m = finite(w.number(0.9) * w["m"] + w.number(1 - 0.9) * w["grad"], w["m"])
        v = finite(w.number(0.999) * w["v"] + w.number(0.001) * (w["grad"] * w["grad"]), w["v"])
        rate = w.number(w.numbers["lr"] / (1 - 0.9 ** (w.numbers["t"] + 1)))
        return Outcome({"m": m, "v": v, "weight": w["weight"] - rate * m / (np.sqrt(v) + w.number(1e-8))})

    return Case("adam", body(fragment, "m v"), fragment, meaning, {"lr": 0.01, "t": 4.0})


def _swap() -> Case:
    """All reads see what memory held before."""
    fragment = Fragment((), (Store("a", Read("b")), Store("b", Read("a")), Store("grad", W), Store("weight", G)))
    return Case(
        "swap",
        body(fragment, "a b"),
        fragment,
        lambda w: Outcome({"a": w["b"], "b": w["a"], "grad": w["weight"], "weight": w["grad"]}),
    )


def _rounded_between() -> Case:
    """A weight that is read after it was assigned is what its type holds."""
    lets = (Let("w", apply("stored", apply("*", W, apply("/", 1, 3)))),)
    fragment = Fragment(lets, (Store("weight", Read("w")), Store("a", apply("-", Read("w"), G)), Store("kept.0", W)))

    def meaning(w: World) -> Outcome:
        third = w.stored(w["weight"] * w.number(1 / 3))
        return Outcome({"weight": third, "a": third - w["grad"], "kept.0": w["weight"]})

    return Case("rounded between", body(fragment, "a", kept=1), fragment, meaning)


def _everything() -> Case:
    """Each function, division by zero, numbers that choose, a state of the user's optimiser."""
    x, y = Read("a"), Read("b")
    pick = apply("where", apply("and", apply(">", x, y), apply(">=", Read("t"), 3)), apply("exp", y), apply("sign", x))
    bent = apply("clamp", apply("mod", x, 0.25), -0.1, apply("max", apply("wrap", y, Read("lr")), apply("min", x, y)))
    roots = apply("*", apply("log", apply("abs", x)), apply("log2", apply("+", apply("abs", y), 1)))
    powers = apply("*", apply("^", x, -3), apply("^", apply("abs", y), 0.3))
    rest = apply("+", apply("round", x), apply("*", apply("floor", y), apply("not", apply("==", x, 0))))
    stores = (
        Store("a", pick), Store("b", bent), Store("kept.0", apply("/", roots, x)), Store("kept.1", powers),
        Store("grad", apply("*", rest, Optimizer("exp_avg", True))), Store("weight", Read("lr")),
    )  # fmt: skip
    fragment = Fragment((), stores)

    def meaning(w: World) -> Outcome:
        x, y, lr = w["a"], w["b"], w.number(w.numbers["lr"])

        def precise(f: Any, *of: Array) -> Array:
            return np.asarray(f(*(np.float64(v) for v in of))).astype(w.real)

        def least(a: Any, b: Any) -> Array:
            return np.where((a < b) | np.isnan(a), a, b)

        def greatest(a: Any, b: Any) -> Array:
            return np.where((a > b) | np.isnan(a), a, b)

        wrapped = y - lr * np.rint(y / lr)
        modulo = x - w.number(0.25) * np.floor(x / w.number(0.25))
        roots = precise(np.log, np.abs(x)) * precise(np.log2, np.abs(y) + w.number(1))
        rest = np.rint(x) + np.floor(y) * (x != 0).astype(w.real)
        return Outcome(
            {
                "a": np.where(x > y, precise(np.exp, y), np.sign(x)),
                "b": least(greatest(modulo, w.number(-0.1)), greatest(wrapped, least(x, y))),
                "kept.0": roots / x,
                "kept.1": w.number(1) / (x * x * x) * precise(np.power, np.abs(y), np.full_like(y, 0.3)),
                "grad": rest * w["optimizer.exp_avg"],
                "weight": np.full_like(x, lr),
            }
        )

    return Case("everything", body(fragment, "a b", kept=2), fragment, meaning, {"lr": 0.7, "t": 3.0}, libm=True)


def _powers_of_two() -> Case:
    """Exact in every type: an exponent, 2 to it and to its opposite, and 2 to whole numbers beyond both ends."""
    x, exponent = Read("a"), apply("logb", Read("a"))
    far = apply("round", apply("*", Read("b"), 700))
    stores = (
        Store("kept.0", exponent), Store("kept.1", apply("^", 2, far)), Store("a", apply("^", 2, exponent)),
        Store("b", apply("*", x, apply("^", 2, apply("neg", exponent)))),
    )  # fmt: skip
    fragment = Fragment((), stores)

    def meaning(w: World) -> Outcome:
        x = w["a"]
        exponent = np.array([_exponent(float(v)) for v in x], w.real)

        def two_to(v: Array) -> Array:
            return np.array([2.0 ** min(max(float(n), -1100), 1023) if n < 1024 else n * np.inf for n in v], w.real)

        far = np.rint(w["b"] * w.number(700))
        return Outcome({"kept.0": exponent, "kept.1": two_to(far), "a": two_to(exponent), "b": x * two_to(-exponent)})

    return Case("powers of two", body(fragment, "a b", kept=2), fragment, meaning)


def _exponent(x: float) -> float:
    if not 0 < abs(x) < np.inf:
        return -np.inf if x == 0 else abs(x)
    significand, _, power = abs(x).hex().partition("p")
    leading = int(significand.replace(".", ""), 16)
    return float(int(power) + leading.bit_length() - 53)


# --- cells


def _norms() -> Case:
    inside = apply("sqrt", Reduce("norm", apply("-", W, G)))
    fragment = Fragment((), (Store("size", Reduce("norm", G)), Store("apart", apply("+", inside, Read("size")))))
    fragment = replace(fragment, measures=True)

    def meaning(w: World) -> Outcome:
        difference = w["weight"] - w["grad"]
        size = np.sqrt(lanes(w["grad"] * w["grad"]))
        apart = np.sqrt(np.sqrt(lanes(difference * difference))) + w["size"]
        return Outcome({"size": np.full(1, size), "apart": np.full(1, apart)})

    return Case("norms", body(fragment, cells="size apart"), fragment, meaning)


def _clipped() -> Case:
    fragment = Fragment((), (Store("grad", apply("*", G, apply("min", 1, apply("/", 3, Read("size"))))),))

    def meaning(w: World) -> Outcome:
        scale = w.number(3) / w["size"]
        return Outcome({"grad": w["grad"] * np.where(scale > 1, w.number(1), scale)})

    return Case("clipped", body(fragment, cells="size"), fragment, meaning)


# --- with messages


def _choco_sends(codec: Codec) -> Case:
    stores = (Store("seen", apply("+", Read("seen"), Read("coded"))),)
    fragment = Fragment((), stores, sends=0, value=apply("-", W, Read("seen")))

    def meaning(w: World) -> Outcome:
        message = w.code(w["weight"] - w["seen"])
        return Outcome({"seen": w["seen"] + w.decode(message)}, message)

    return Case(
        f"choco sends {codec.text}",
        body(fragment, "seen", transfer=transfer("mix", codec, coded=True)),
        fragment,
        meaning,
    )


def _choco_receives(codec: Codec) -> Case:
    lets = (Let("around.1", apply("finite", apply("+", Read("around"), Read("arrived")), Read("around"))),)
    weight = apply("+", W, apply("*", 0.4, apply("-", Read("around.1"), Read("seen"))))
    fragment = Fragment(lets, (Store("around", Read("around.1")), Store("weight", weight)), receives=0)

    def meaning(w: World) -> Outcome:
        mixed = total([x * w.number(k) for x, k in zip(w.arrived(), WEIGHTS, strict=True)])
        around = finite(w["around"] + mixed, w["around"])
        return Outcome({"around": around, "weight": w["weight"] + w.number(0.4) * (around - w["seen"])})

    made = body(fragment, "around seen", transfer=transfer("mix", codec, coded=True))
    return Case(f"choco receives {codec.text}", made, fragment, meaning)


def _momentum_sends(codec: Codec) -> Case:
    """With feedback: the residual is added before, and kept after."""
    value = apply("+", apply("*", 0.9, Read("m")), apply("*", Read("share"), G))
    fragment = Fragment((), (Store("kept.0", G),), sends=0, value=value)

    def meaning(w: World) -> Outcome:
        put = w.number(0.9) * w["m"] + w.number(w.numbers["share"]) * w["grad"] + w["residual"]
        message = w.code(put)
        residual = finite(put - w.decode(message), w["residual"])
        return Outcome({"kept.0": w["grad"], "residual": residual}, message)

    made = body(fragment, "m", transfer=transfer("mean", codec, "both"), kept=1)
    return Case(f"momentum sends {codec.text}", made, fragment, meaning, {"share": 0.1})


def _momentum_receives(codec: Codec) -> Case:
    """One message, an owner's; the update fused behind it."""
    lets = (Let("m.1", apply("finite", Read("arrived"), Read("m"))),)
    step = apply("/", apply("*", Read("lr"), Read("m.1")), apply("+", apply("sqrt", Read("v")), 1e-8))
    fragment = Fragment(lets, (Store("m", Read("m.1")), Store("weight", apply("-", W, step))), receives=0)

    def meaning(w: World) -> Outcome:
        (arrived,) = w.arrived()
        m = finite(arrived, w["m"])
        return Outcome({"m": m, "weight": w["weight"] - w.number(0.01) * m / (np.sqrt(w["v"]) + w.number(1e-8))})

    made = body(fragment, "m v", transfer=transfer("mean", codec, "both"))
    return Case(f"momentum receives {codec.text}", made, fragment, meaning, {"lr": 0.01})


def _mean_of_codes(codec: Codec) -> Case:
    fragment = Fragment((), (Store("grad", Read("arrived")),), receives=0)

    def meaning(w: World) -> Outcome:
        return Outcome({"grad": total(w.arrived()) * (w.real(1) / w.real(WORKERS))})

    return Case(
        f"mean of {codec.text}", body(fragment, transfer=transfer("mean", codec, coded=True)), fragment, meaning
    )


def modulo(bits: int) -> Codec:
    """Levels of a unit, modulo 2^bits: decoded next to what the receiver has (Moniqua, swarm)."""
    unit = 2.0**-4
    fields = (Field("residue", WireType("uint", bits), True),)
    steps = (
        CodecLet("wide", Constant(2.0**bits)),
        Send(0, "residue", apply("mod", apply("round", apply("/", Read("x"), unit)), Read("wide"))),
    )
    off = apply("wrap", apply("-", Read("residue"), apply("/", Read("y"), unit)), 2.0**bits)
    receive = apply("+", Read("y"), apply("*", unit, off))
    return Codec(f"modulo({bits})", Layout(512, fields), steps, receive, False, "y")


def _swarm_sends(codec: Codec) -> Case:
    stores = (Store("weight", apply("-", W, Read("coded"))), Store("kept.0", W))
    fragment = Fragment((), stores, sends=0, value=W)

    def meaning(w: World) -> Outcome:
        message = w.code(w["weight"])
        return Outcome({"weight": w["weight"] - w.decode(message, w["weight"]), "kept.0": w["weight"]}, message)

    made = body(fragment, transfer=transfer("mix", codec, coded=True), kept=1)
    return Case(f"swarm sends {codec.text}", made, fragment, meaning)


def _nearby_sends_with_feedback(codec: Codec) -> Case:
    """The slot keeps what was put into the code, with the residual."""
    fragment = Fragment((), (Store("slot.0", W),), sends=0, value=W)

    def meaning(w: World) -> Outcome:
        put = w["weight"] + w["residual"]
        message = w.code(put)
        residual = finite(put - w.decode(message, put), w["residual"])
        return Outcome({"slot.0": put, "residual": residual}, message)

    made = body(fragment, transfer=replace(transfer("mix", codec, "worker"), lands="slot"))
    return Case(f"nearby sends {codec.text}", made, fragment, meaning)


def _swarm_receives(codec: Codec) -> Case:
    stores = (Store("weight", apply("+", W, Read("arrived"))),)
    fragment = Fragment((), stores, receives=0, near=apply("*", Read("kept.0"), 2))

    def meaning(w: World) -> Outcome:
        parts = w.arrived(near=w["kept.0"] * w.number(2))
        return Outcome({"weight": w["weight"] + total([x * w.number(k) for x, k in zip(parts, WEIGHTS, strict=True)])})

    made = body(fragment, transfer=transfer("mix", codec, coded=True), kept=1)
    return Case(f"swarm receives {codec.text}", made, fragment, meaning)


def per_tensor(codec: Codec) -> Codec:
    return replace(codec, text=f"{codec.text} per tensor", layout=replace(codec.layout, block=0, unit="tensor"))


CASES = [
    _adam(),
    _swap(),
    _rounded_between(),
    _everything(),
    _powers_of_two(),
    _norms(),
    _clipped(),
    *(_choco_sends(c) for c in (codecs.onebit(512), per_tensor(codecs.onebit()), codecs.cast("real"))),
    *(_choco_receives(c) for c in (codecs.onebit(512), per_tensor(codecs.minmax(4)), codecs.cast("f16"))),
    *(make(c) for make in (_choco_sends, _choco_receives) for c in (codecs.topk(0.1), codecs.randomk(9), codecs.dct())),
    *(_momentum_sends(c) for c in (codecs.onebit(512), codecs.minmax(8, 512, True), per_tensor(codecs.everything()))),
    *(_momentum_receives(c) for c in (codecs.onebit(512), per_tensor(codecs.absmax(3)))),
    *(_mean_of_codes(c) for c in (codecs.minmax(8), codecs.everything())),
    *(_swarm_sends(c) for c in (modulo(8), per_tensor(modulo(3)))),
    _nearby_sends_with_feedback(modulo(8)),
    *(_swarm_receives(c) for c in (modulo(8), per_tensor(modulo(5)))),
]
