"""What a kernel costs this worker: lines over elements, measured ones where the network has them."""

from __future__ import annotations

from dataclasses import dataclass

from relaxc.manifest import CodecPlan
from relaxc.schedule.cost import CALL, PACE, PLAIN, coding_of
from relaxc.schedule.network import Coding, Line, Network
from relaxc.wire.moves import Kernel


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds in the lanes of a kernel that decodes, then encodes."""

    decode: float
    encode: float


@dataclass(frozen=True)
class Costs:
    network: Network

    def coding(self, codec: CodecPlan) -> Coding:
        return coding_of(codec, self.network)

    def kernel(self, kernel: Kernel, codec: CodecPlan, elements: int, inputs: int) -> Cost:
        """Of a route: what it decodes it adds up, and what it makes of that it encodes."""
        coding = self.coding(codec)
        decoding = (1 if kernel.reads_sum or kernel.checks else inputs) * coding.decode.at(elements)
        encodes = not (kernel.decodes or kernel.checks)
        extra = self.local(elements, 2) if kernel.residual else 0.0
        return Cost(decoding if inputs else 0.0, coding.encode.at(elements) + extra if encodes else 0.0)

    def local(self, elements: int, operands: int, real_bytes: int = 4) -> float:
        """Elementwise work, which is bound by memory: each operand is read or written once. To encode plain numbers is
        to read and to write 4 bytes for each, so that tells what memory costs."""
        line = self.network.codings.get(PLAIN, PLAIN_ESTIMATE).encode
        return line.fixed + elements * operands * real_bytes * line.each / 8


PLAIN_ESTIMATE = Coding(Line(CALL, 8 / PACE), Line(CALL, 8 / PACE))
