"""A fragment of a path -> one fused kernel: all that is computed between two exchanges, in one pass over memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxc.emit.coding import decoded, encoded, finite_or, remembered
from relaxc.emit.fuse import RESIDUAL, block_of
from relaxc.emit.gather import gathered
from relaxc.emit.kernel import BlockKernel, Section, real_of
from relaxc.emit.local import Local, Scope, types_of
from relaxc.emit.numbers import Number
from relaxc.emit.section import Builder
from relaxc.program.ir import Codec, Exchange, Read
from relaxc.program.paths import Fragment, PathBody, Store
from relaxc.wire.layout import Field
from relaxc.wire.routes import WEIGHTED, gathers

BLOCK = 512
"""Of a fragment without a codec: no byte depends on it."""


@dataclass(frozen=True)
class FusedFragment:
    """`numbers` are what the kernel is given, in order."""

    kernel: BlockKernel
    numbers: tuple[Number, ...]

    @property
    def own_type(self) -> bool:
        """Whether it touches tensors of the parameter's own type; else it depends on the type of arithmetic alone."""
        return any(operand.type == "tensor" for operand in self.kernel.operands)


def build_fragment(symbol: str, body: PathBody, fragment: Fragment, dtype: str) -> FusedFragment:
    """`dtype` (f32, f16, bf16, f64) is the parameter's. Raise TypeError for a fragment that can't be one kernel."""
    return _Fusing(body, fragment, dtype).fused(symbol)


@dataclass
class _Fusing:
    body: PathBody
    fragment: Fragment
    dtype: str
    builder: Builder = field(default_factory=Builder)
    code: int | None = None
    put: int | None = None
    """What was encoded: the value and the residual."""

    def __post_init__(self) -> None:
        self.scope = Scope(self.dtype, types_of(self.body), {let.name: let.value for let in self.fragment.lets})
        self.local = Local(self.builder, {}, scope=self.scope, special=self.special)
        self.states = {s.name for s in self.body.states}
        places = [n for n in (self.fragment.sends, self.fragment.receives) if n is not None]
        self.transfer = self.body.transfers[places[0]] if places else None

    def fused(self, symbol: str) -> FusedFragment:
        if self.fragment.sends is not None:
            self.coded()
        for store in self.fragment.stores:
            self.store(store)
        main = self.builder.section()
        block, fields, inputs = self.messages()
        gather = self.gather() if inputs == "many" else None
        kernel = BlockKernel(
            symbol, self.text(), self.dtype, block, fields, self.scope.operands.all, inputs, gather, main
        )  # fmt: skip
        return FusedFragment(kernel, tuple(self.scope.given.found))

    def text(self) -> str:
        if self.transfer is None:
            return "between exchanges"
        return f"{'before' if self.fragment.sends is not None else 'after'} {self.codec.text}"

    @property
    def codec(self) -> Codec:
        codec = self.transfer.exchange.codec if self.transfer else None
        if codec is None:
            raise TypeError("a fragment's messages have no codec")
        return codec

    # --- what is stored

    def store(self, store: Store) -> None:
        type = self.scope.types[store.target]
        value = self.local.number(store.value)
        if self.put is not None and store.target == f"slot.{self.fragment.sends}":
            value = self.put  # a near codec: what is received will be decoded next to it
        if store.target in self.states:
            value = finite_or(self.builder, value, self.scope.operands.load(self.builder, store.target, type))
        if type == "cell" and self.builder.values[value].per_element:
            raise TypeError(f"{store.target} is one number, and is given a tensor")
        self.scope.operands.store(self.builder, store.target, type, value)

    # --- what is sent and received

    def special(self, name: str) -> int:
        made = {"coded": self.coded, "arrived": self.arrived, "own_coded": self.own_coded}
        return made[name]()

    def coded(self) -> int:
        """Encode, once; what a receiver will make of it."""
        if self.code is None:
            self.code = self.encode()
        return self.code

    def encode(self) -> int:
        if self.fragment.value is None or self.transfer is None:
            raise TypeError("a fragment that reads `coded` sends nothing")
        value = self.local.number(self.fragment.value)
        if self.transfer.exchange.feedback == "none":
            return encoded(self.builder, self.codec, real_of(self.dtype), value, self.scope.operands)
        before = self.scope.operands.load(self.builder, RESIDUAL, "real")
        self.put = value = self.builder.add("add", value, before)
        code = encoded(self.builder, self.codec, real_of(self.dtype), value, self.scope.operands)
        self.scope.operands.store(self.builder, RESIDUAL, "real", remembered(self.builder, value, code, before))
        return code

    def arrived(self) -> int:
        """The decoded result: of the one message of an owner, or the sum of those of all neighbours."""
        add = self.builder.add
        if not self.many():
            return decoded(self.builder, self.codec, lambda: self.near(self.builder))
        total = add("total")
        return add("mul", total, add("average")) if self.exchange.kind == "mean" else total

    def own_coded(self) -> int:
        """Of all messages that arrive, what this worker's own is decoded to."""
        if not self.many():
            raise TypeError("a fragment that reads `own_coded` does not receive its own code")
        return decoded(self.builder, self.codec, lambda: self.near(self.builder))

    @property
    def exchange(self) -> Exchange:
        if self.transfer is None:
            raise TypeError("a fragment that reads `arrived` receives nothing")
        return self.transfer.exchange

    def many(self) -> bool:
        return self.transfer is not None and gathers(self.exchange.kind, self.transfer.coded, self.exchange.route)

    def gather(self) -> Section:
        return gathered(self.codec, self.exchange.kind in WEIGHTED, self.near_one)

    def near(self, builder: Builder) -> int:
        """What this worker put into its own code."""
        if self.fragment.near is None:
            raise TypeError("a fragment decodes near something, and is not told near what")
        return Local(builder, {}, scope=self.scope, special=self.special).number(self.fragment.near)

    def near_one(self, builder: Builder) -> int:
        """Where there is a guard, each input may be near something else."""
        if self.codec.guard is None:
            return self.near(builder)
        if not isinstance(self.fragment.near, Read) or self.scope.types[self.fragment.near.name] != "real":
            raise TypeError("what is decoded near values of another worker is in the type of arithmetic")
        return builder.add("near", detail=self.scope.operands.number(self.fragment.near.name, "real"), per_element=True)

    def messages(self) -> tuple[int | None, tuple[Field, ...], str]:
        """The block, the fields and the inputs of the kernel."""
        whole = self.scope.measures or any(self.scope.types[s.target] == "cell" for s in self.fragment.stores)
        if self.transfer is None:
            return None if whole else BLOCK, (), "none"
        if whole:
            raise TypeError("a fragment with messages measures a whole parameter")
        layout = self.codec.layout
        inputs = "none" if self.fragment.sends is not None else "many" if self.many() else "one"
        return block_of(layout), layout.fields, inputs
