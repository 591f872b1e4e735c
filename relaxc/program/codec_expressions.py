"""The expressions of a codec: syntax -> IR, arguments put in, constants folded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from relaxc.language import syntax
from relaxc.language.codecs import AUTO
from relaxc.language.diagnostics import Diagnostic, Label
from relaxc.language.functions import ELEMENTWISE, REDUCTIONS, TRANSFORMS
from relaxc.language.source import Span
from relaxc.language.spec import CodecUse
from relaxc.language.vocabulary import CHOSEN
from relaxc.language.words import did_you_mean
from relaxc.program.ir import Apply, Chosen, Constant, Dither, Expression, Read, Reduce, Transform
from relaxc.wire import numbers
from relaxc.wire.cosines import LARGEST_SIDE

ANY_BLOCK = 512
"""Block of a codec without `per`: it changes no byte, only how the work is cut."""

KNOWN_FUNCTIONS = tuple(sorted({*ELEMENTWISE, *REDUCTIONS, *TRANSFORMS, "dither"}))


class Mistake(Exception):
    """What ends the reading of one statement."""

    def __init__(self, code: str, span: Span, message: str, help: str | None = None) -> None:
        self.diagnostic = Diagnostic(code, message, (Label(span),), help=help)


@dataclass
class CodecExpressions:
    """Lowers the expressions of one codec; whoever lowers statements binds names."""

    use: CodecUse
    block: int = ANY_BLOCK
    unit: str = "block"
    has_per: bool = False
    varies: dict[str, bool] = field(default_factory=lambda: {"x": True, "index": True})
    """The names in scope, and whether each differs from element to element."""
    constants: dict[str, Constant] = field(default_factory=dict)
    """The lets that are constants: no step is made of them."""
    dithers: bool = False

    def __post_init__(self) -> None:
        self.arguments = dict(self.use.arguments)

    def constant(self, expression: syntax.Expression) -> float:
        lowered = self.expression(expression)
        if not isinstance(lowered, Constant):
            raise Mistake("RX0232", expression.span, "not a constant", "use numbers and parameters of the codec")
        return lowered.value

    def per_element(self, e: Expression) -> bool:
        match e:
            case Read(name=name):
                return self.varies[name]
            case Apply(arguments=arguments):
                return any(self.per_element(a) for a in arguments)
            case Dither() | Chosen() | Transform():
                return True
        return False

    def expression(self, e: syntax.Expression) -> Expression:
        match e:
            case syntax.Number(value=value):
                return Constant(float(value))
            case syntax.Quantity(value=value, unit="%"):
                return Constant(value / 100)
            case syntax.Quantity(value=value, unit="bit"):
                return Constant(float(value))
            case syntax.Name():
                return self.name(e)
            case syntax.Unary(operator=operator, operand=operand):
                return self.applied("neg" if operator == "-" else operator, (operand,), e.span)
            case syntax.Binary(operator=operator, left=left, right=right):
                return self.applied(operator, (left, right), e.span)
            case syntax.Call():
                return self.call(e)
        raise Mistake("RX0231", e.span, "not allowed in a codec")

    def name(self, e: syntax.Name) -> Expression:
        if e.name in self.constants:
            return self.constants[e.name]
        if e.name in self.varies:
            return Read(e.name, e.span)
        if e.name == CHOSEN:
            return self.chosen(e.span)
        value = self.arguments.get(e.name)
        if value == AUTO:
            return Constant(0.0)
        if isinstance(value, str):
            raise Mistake("RX0231", e.span, f"`{e.name}` is the word {value}, not a number")
        if value is None:
            known = (*self.varies, *self.constants, *self.arguments)
            raise Mistake("RX0231", e.span, f"no name {e.name} in this codec", did_you_mean(e.name, known))
        return Constant(float(value))

    def applied(self, function: str, arguments: Iterable[syntax.Expression], span: Span) -> Expression:
        lowered = tuple(self.expression(a) for a in arguments)
        if function in ("/", "mod", "wrap") and lowered[1] == Constant(0.0):
            raise Mistake("RX0232", span, "division by zero", self.told())
        return fold(function, lowered, span)

    def chosen(self, span: Span) -> Expression:
        if not self.has_per or self.unit != "block":
            raise Mistake("RX0237", span, "one is chosen of each block", "begin with per block(100)")
        return Chosen()

    def transform(self, e: syntax.Call) -> Expression:
        """Of a square block: its rows stand one behind the other."""
        value, side = self.expression(e.arguments[0]), self.constant(e.arguments[1])
        if not side.is_integer() or not 1 <= side <= LARGEST_SIDE:
            help = f"use a whole number from 1 to {LARGEST_SIDE}"
            raise Mistake("RX0238", e.arguments[1].span, f"a matrix with a side of {side:g}", help)
        if not self.has_per or self.unit != "block" or self.block != side**2:
            help = f"begin with per block({int(side) ** 2})"
            raise Mistake("RX0238", e.span, f"{e.function} is of blocks of {side:g} x {side:g} elements", help)
        if not self.per_element(value):
            raise Mistake("RX0238", e.span, f"{e.function} of one number", "it takes a value of each element")
        return Transform(e.function, value, int(side))

    def told(self) -> str | None:
        """The arguments that constants may come from."""
        given = ", ".join(f"{k} = {v}" for k, v in self.arguments.items() if not isinstance(v, str))
        return f"it is so with {given}" if given else None

    def call(self, e: syntax.Call) -> Expression:
        if e.keywords:
            raise Mistake("RX0233", e.keywords[0].span, "functions take no named arguments", "write the value alone")
        count = len(e.arguments)
        if e.function == "round" and count == 2:
            return self.rounded(e.arguments[0], e.arguments[1])
        if e.function == "dither" and count == 1:
            return self.dither(self.expression(e.arguments[0]))
        if e.function in TRANSFORMS and count == 2:
            return self.transform(e)
        if e.function in REDUCTIONS and count == 1:
            return self.reduced(e)
        if ELEMENTWISE.get(e.function) == count:
            return self.applied(e.function, e.arguments, e.span)
        raise self.no_function(e)

    def no_function(self, e: syntax.Call) -> Mistake:
        if e.function not in KNOWN_FUNCTIONS:
            help = did_you_mean(e.function, KNOWN_FUNCTIONS)
            return Mistake("RX0233", e.span, f"no function {e.function} in a codec", help)
        takes = "1" if e.function in (*REDUCTIONS, "dither") else "2" if e.function in TRANSFORMS else ""
        if e.function in ELEMENTWISE and ELEMENTWISE[e.function] != 1:
            takes += (" (over the block) or " if takes else "") + str(ELEMENTWISE[e.function])
        elif e.function == "round":
            takes = "1 or 2"
        plural = "" if takes in ("", "1") else "s"
        return Mistake(
            "RX0233", e.span, f"{len(e.arguments)} arguments for {e.function}",
            f"{e.function} takes {takes or '1'} argument{plural}",
        )  # fmt: skip

    def reduced(self, e: syntax.Call) -> Expression:
        if not self.has_per:
            self.has_per = True  # say it once
            message = f"nothing says what {e.function} reaches over"
            raise Mistake("RX0230", e.span, message, "begin with per block(512), per tensor or per chunk")
        return Reduce(e.function, self.expression(e.arguments[0]), e.span)

    def rounded(self, value: syntax.Expression, mode: syntax.Expression) -> Expression:
        how = self.arguments.get(mode.name, mode.name) if isinstance(mode, syntax.Name) else None
        if how not in ("nearest", "stochastic"):
            raise Mistake("RX0232", mode.span, "not a rounding", "use nearest or stochastic")
        lowered = self.expression(value)
        return self.dither(lowered) if how == "stochastic" else fold("round", (lowered,))

    def dither(self, argument: Expression) -> Expression:
        self.dithers = True
        return Dither(argument)


def fold(function: str, arguments: tuple[Expression, ...], span: Span | None = None) -> Expression:
    """Apply, folded in f64 where all arguments are constants, or the condition of a `where` is."""
    values = [a.value for a in arguments if isinstance(a, Constant)]
    if len(values) == len(arguments):
        return Constant(numbers.evaluate((function, *values), {}))
    if function == "where" and isinstance(arguments[0], Constant):
        return arguments[1] if arguments[0].value else arguments[2]
    return Apply(function, arguments, span)
