"""The actions of one worker for one piece: a route's moves, bound to buffers, bytes and tags."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from relaxc.schedule.pieces import Chunk, Range, chunk_bytes
from relaxc.wire.layout import EXACT, Layout
from relaxc.wire.routes import VALUES_LEG, Kernel, Message, Move, Phase, Receive, Run, Send


@dataclass(frozen=True, slots=True)
class Action:
    """`kind` is run, send or receive. Buffers are numbered within the piece; -1 stands for none.

    Of a codec with a guard: `check` runs a kernel that finds which blocks of a message have tripped, and expects their
    values from `peer`; `resend` sends `peer` the values of those that `buffer` tells of; `values` waits for those that
    `buffer` tells of. `near` has for each input the buffer that tells of it; `settle` makes what each input is decoded
    near to for a kernel that someone else runs. `block` is the block in elements, 0 where each range is one. `own` is
    which input is this worker's own message; -1 for none."""

    kind: str
    kernel: Kernel | None = None
    ranges: tuple[Range, ...] = ()
    inputs: tuple[int, ...] = ()
    buffer: int = -1
    peer: int = -1
    tag: int = 0
    near: tuple[int, ...] = ()
    block: int = 0
    own: int = -1


@dataclass(frozen=True, slots=True)
class Piece:
    """`buffers` are sizes in bytes."""

    bucket: int
    buffers: tuple[int, ...]
    phases: tuple[tuple[Action, ...], ...]

    @property
    def sent(self) -> int:
        return sum(self.buffers[a.buffer] for phase in self.phases for a in phase if a.kind == "send")


@dataclass(frozen=True, slots=True)
class Chunks:
    """What a piece is cut into: elements and bytes by chunk. `real_bytes` is the size of the arithmetic type."""

    chunks: Sequence[Chunk]
    layout: Layout
    real_bytes: int

    def blocks(self) -> list[int]:
        return [sum(-(-r.elements // self.layout.block_of(r.elements)) for r in chunk) for chunk in self.chunks]

    def bytes(self, exact: bool = False) -> list[int]:
        """As codes, or as plain numbers."""
        layout = EXACT if exact else self.layout
        return [chunk_bytes(chunk, layout, self.real_bytes) for chunk in self.chunks]


def bind(
    phases: Sequence[Phase], kernels: Sequence[Kernel], cut: Chunks, rank: int, first_tag: int, bucket: int,
    elsewhere: Collection[str] = (),
) -> tuple[Piece, tuple[Action, ...]]:  # fmt: skip
    """Bind a route's phases for this rank. Moves on an empty chunk fall away, on all workers alike; the phase stays,
    since the queue's order counts phases, and needs the same count on all workers.

    Runs of kernels named in `elsewhere` are no part of the piece: someone else does them, and they come second. What of
    their inputs has tripped is settled in their place."""
    binding = _Binding({k.name: k for k in kernels}, cut, (cut.bytes(), cut.bytes(exact=True)), rank, first_tag)
    bound = [[binding.action(m) for m in phase if binding.counts(m)] for phase in phases]
    left = [[b for a in phase if (b := binding.left(a, elsewhere)) is not None] for phase in bound]
    taken = [a for phase in bound for a in phase if _is_taken(a, elsewhere)]
    return Piece(bucket, tuple(binding.sizes), tuple(map(tuple, left))), tuple(taken)


def _is_taken(action: Action, elsewhere: Collection[str]) -> bool:
    return action.kernel is not None and action.kernel.name in elsewhere


def census(parameters: int, workers: int, rank: int, tag: int, bucket: int) -> Piece:
    """Every worker tells every other, a byte per parameter, for which it had a gradient. Buffer w is worker w's:
    messages to each peer take one hop and travel behind the last contributions, where an all-reduce of so little
    would wait for six."""
    peers = [(rank + d) % workers for d in range(1, workers)]
    sends = tuple(Action("send", buffer=rank, peer=peer, tag=tag) for peer in peers)
    receives = tuple(Action("receive", buffer=peer, peer=peer, tag=tag) for peer in peers)
    return Piece(bucket, (parameters,) * workers, (sends, receives))


@dataclass
class _Binding:
    kernels: dict[str, Kernel]
    cut: Chunks
    bytes: tuple[Sequence[int], Sequence[int]]
    """Of each chunk as a code and as plain numbers."""
    rank: int
    first_tag: int
    sizes: list[int] = field(default_factory=list)
    held: dict[tuple[int, Message], int] = field(default_factory=dict)

    def counts(self, move: Move) -> bool:
        return self.bytes[False][move.chunk if isinstance(move, Run) else move.message.chunk] > 0

    def buffer(self, made_by: int, message: Message) -> int:
        key = (made_by, message)
        if key not in self.held:
            self.held[key] = len(self.sizes)
            sizes = self.cut.blocks() if message.what == "trips" else self.bytes[message.exact]
            self.sizes.append(sizes[message.chunk])
        return self.held[key]

    def telling(self, values: tuple[int, Message] | None) -> int:
        """The buffer that tells which blocks these values are of."""
        if values is None:
            return -1
        maker, message = values
        return self.buffer(message.stage, Message(maker, message.chunk, "trips"))

    def action(self, move: Move) -> Action:
        match move:
            case Run(kernel=kernel, chunk=chunk, inputs=inputs, output=output, near=near):
                taken = tuple(self.buffer(*key) for key in inputs)
                made = -1 if output is None else self.buffer(self.rank, output)
                own = next((n for n, (maker, _) in enumerate(inputs) if maker == self.rank), -1)
                done = Action("run", self.kernels[kernel], self.cut.chunks[chunk], taken, made, own=own)
                if done.kernel is not None and done.kernel.checks:
                    peer, tag = inputs[0][0], self.first_tag + VALUES_LEG
                    return replace(done, kind="check", peer=peer, tag=tag, block=self.block)
                return replace(done, near=tuple(map(self.telling, near)), block=self.block) if near else done
            case Send(message=Message(what="values") as message, made_by=made_by, peer=peer, leg=leg):
                return Action(
                    "resend", self.kernels["check"], self.cut.chunks[message.chunk],
                    buffer=self.telling((made_by, message)), peer=peer, tag=self.first_tag + leg, block=self.block,
                )  # fmt: skip
            case Receive(message=Message(what="values") as message, made_by=made_by, peer=peer):
                return Action("values", buffer=self.telling((made_by, message)), peer=peer)
            case Send(message=message, made_by=made_by, peer=peer, leg=leg):
                return Action("send", buffer=self.buffer(made_by, message), peer=peer, tag=self.first_tag + leg)
            case Receive(message=message, made_by=made_by, peer=peer, leg=leg):
                return Action("receive", buffer=self.buffer(made_by, message), peer=peer, tag=self.first_tag + leg)

    def left(self, action: Action, elsewhere: Collection[str]) -> Action | None:
        """What of an action the piece itself does."""
        if not _is_taken(action, elsewhere):
            return action
        if all(buffer < 0 for buffer in action.near):
            return None
        return Action("settle", self.kernels["check"], action.ranges, near=action.near, block=self.block)

    @property
    def block(self) -> int:
        layout = self.cut.layout
        return layout.block if layout.unit == "block" else 0
