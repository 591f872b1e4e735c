"""What an exchange costs a worker: seconds of encoding, of its link and of decoding, as a line over the parameters of a
bucket. Bytes are those of the layouts; how many messages and kernels there are is counted in the route's own moves.

Workers are alike in all routes, so a worker's share is everyone's divided by their number: an owner of a little more
than others is not seen. Links are full duplex and messages of one phase leave together, so a phase costs its longest
latency once. Workers of a machine send at the same time and share its link. What a mean of low rank multiplies, and
what a guard sends again, is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from relaxc.manifest import CodecPlan, ExchangePlan, TransferPlan
from relaxc.schedule.cost_links import Links, code_bytes, links_of, reduce_line
from relaxc.schedule.cost_work import work_of
from relaxc.schedule.network import Coding, Line, Network
from relaxc.schedule.routed import layout_of
from relaxc.schedule.transfers import dense_elements, members_of
from relaxc.wire.layout import EXACT, Layout
from relaxc.wire.parameters import ITEM_BYTES, Parameter

PACE = 4e9
"""Bytes a second that a kernel reads and writes where nothing was measured: an estimate, about what a core copies."""
CALL = 2e-6
"""Seconds for each call of such a kernel."""
PLAIN = "exact"
"""The codec of plain numbers, in Network.codings."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds that a bucket keeps a worker's encoder, link and decoder busy."""

    encode: float = 0.0
    link: float = 0.0
    decode: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.encode + other.encode, self.link + other.link, self.decode + other.decode)

    @property
    def alone(self) -> float:
        """From its start to its end where nothing is in its way."""
        return self.encode + self.link + self.decode


NOTHING = Cost()


def total(costs: Iterable[Cost]) -> Cost:
    return sum(costs, NOTHING)


def exchange_cost(exchange: ExchangePlan, members: Sequence[Parameter], workers: int, network: Network) -> Cost:
    """Of one exchange of these parameters: what it costs at all and what each of them adds."""
    return price_of(exchange, workers, network).of(members)


def transfer_cost(transfer: TransferPlan, members: Sequence[Parameter], workers: int, network: Network) -> Cost:
    """The same of what a program exchanges of them."""
    return price_of(transfer.exchange, workers, network).of(slotted(transfer, members))


def slotted(transfer: TransferPlan, members: Sequence[Parameter]) -> Sequence[Parameter]:
    """What a program sends of parameters, in the type of arithmetic."""
    return [replace(p, dtype=REAL[p.real_bytes]) for p in members_of(transfer, members)]


REAL = {4: "f32", 8: "f64"}


@dataclass(frozen=True, slots=True)
class Price:
    """What an exchange costs: `fixed` for each bucket, and what a parameter adds."""

    exchange: ExchangePlan
    workers: int
    links: Links
    encode: float = 0.0
    decode: float = 0.0
    """Seconds for each element."""
    fixed: Cost = NOTHING

    def of(self, members: Sequence[Parameter]) -> Cost:
        return self.fixed + total(map(self.added, members))

    def added(self, parameter: Parameter) -> Cost:
        exchange, elements = self.exchange, parameter.elements
        if exchange.codec is None:
            size = dense_elements(exchange, parameter) * ITEM_BYTES[parameter.dtype]
            return Cost(link=self.links.exact * size)
        coded, exact = code_bytes(exchange, parameter, self.workers), EXACT.bytes_of(elements, parameter.real_bytes)
        link = self.links.coded * coded + self.links.exact * exact
        return Cost(self.encode * elements, link, self.decode * elements)


def price_of(exchange: ExchangePlan, workers: int, network: Network) -> Price:
    """Raise KeyError for a route that is none."""
    if exchange.codec is None:
        line = reduce_line(network, workers)
        latencies = line.fixed * (2 if exchange.rank else 1)
        return Price(exchange, workers, Links(latencies, 0.0, line.each), fixed=Cost(link=latencies))
    work, links = work_of(exchange, workers), links_of(exchange, workers, network)
    coding, plain = coding_of(exchange.codec, network), _plain(network)
    return Price(
        exchange, workers, links,
        work.encodes.share * coding.encode.each + work.makes.share * plain.encode.each,
        work.decodes.share * coding.decode.each + work.takes.share * plain.decode.each,
        Cost(
            work.encodes.calls * coding.encode.fixed + work.makes.calls * plain.encode.fixed, links.fixed,
            work.decodes.calls * coding.decode.fixed + work.takes.calls * plain.decode.fixed,
        ),
    )  # fmt: skip


# --- codecs


def coding_of(codec: CodecPlan, network: Network) -> Coding:
    """Measured where the network has it, else an estimate by the bytes that are read and written."""
    return network.codings.get(codec.text) or _estimated(layout_of(codec))


def _plain(network: Network) -> Coding:
    return network.codings.get(PLAIN) or _estimated(EXACT)


@cache
def _estimated(layout: Layout) -> Coding:
    many = 1 << 16
    line = Line(CALL, (4 + layout.bytes_of(many) / many) / PACE)
    return Coding(line, line)
