"""The actions of one worker for one piece: its route's moves, bound to buffers, bytes and tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from relaxc.schedule.pieces import Chunk, Range, chunk_bytes
from relaxc.wire.layout import Layout
from relaxc.wire.routes import Kernel, Message, Move, Receive, Route, Run, Send


@dataclass(frozen=True, slots=True)
class Action:
    """`kind` is run, send or receive. Buffers are numbered within the piece; -1 stands for none."""

    kind: str
    kernel: Kernel | None = None
    ranges: tuple[Range, ...] = ()
    inputs: tuple[int, ...] = ()
    buffer: int = -1
    peer: int = -1
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """`buffers` are sizes in bytes."""

    bucket: int
    buffers: tuple[int, ...]
    phases: tuple[tuple[Action, ...], ...]

    @property
    def sent(self) -> int:
        return sum(self.buffers[a.buffer] for phase in self.phases for a in phase if a.kind == "send")


def bind(
    route: Route, kernels: Sequence[Kernel], chunks: Sequence[Chunk], layout: Layout, real_bytes: int,
    rank: int, first_tag: int, bucket: int,
) -> Piece:  # fmt: skip
    """Bind `route`'s phases for this rank. Moves on an empty chunk fall away, on all workers alike; the phase stays,
    since the queue's order counts phases, and needs the same count on all workers."""
    binding = _Binding({k.name: k for k in kernels}, chunks, layout, real_bytes, rank, first_tag)
    moves = [[m for m in phase if binding.counts(m)] for phase in route.phases(rank, len(chunks))]
    phases = tuple(
        tuple(binding.action(m) for m in phase) for phase in moves
    )  # which is when buffers get their numbers
    return Piece(bucket, tuple(binding.sizes), phases)


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
    chunks: Sequence[Chunk]
    layout: Layout
    real_bytes: int
    rank: int
    first_tag: int
    sizes: list[int] = field(default_factory=list)
    held: dict[tuple[int, Message], int] = field(default_factory=dict)

    def bytes_of(self, chunk: int) -> int:
        return chunk_bytes(self.chunks[chunk], self.layout, self.real_bytes)

    def counts(self, move: Move) -> bool:
        return self.bytes_of(move.chunk if isinstance(move, Run) else move.message.chunk) > 0

    def buffer(self, made_by: int, message: Message) -> int:
        key = (made_by, message)
        if key not in self.held:
            self.held[key] = len(self.sizes)
            self.sizes.append(self.bytes_of(message.chunk))
        return self.held[key]

    def action(self, move: Move) -> Action:
        match move:
            case Run(kernel=kernel, chunk=chunk, inputs=inputs, output=output):
                taken = tuple(self.buffer(*key) for key in inputs)
                made = -1 if output is None else self.buffer(self.rank, output)
                return Action("run", self.kernels[kernel], self.chunks[chunk], taken, made)
            case Send(message=message, made_by=made_by, peer=peer, leg=leg):
                return Action("send", buffer=self.buffer(made_by, message), peer=peer, tag=self.first_tag + leg)
            case Receive(message=message, made_by=made_by, peer=peer, leg=leg):
                return Action("receive", buffer=self.buffer(made_by, message), peer=peer, tag=self.first_tag + leg)
