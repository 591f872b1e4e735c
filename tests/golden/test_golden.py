"""What each shipped spec becomes, as text: the explanation, the kernels' IR, and the schedule of one worker of three.

A change that moves one of these shows in the diff; `--update-golden` rewrites them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxc import pipeline
from relaxc.emit.exchanges import Kernels, native_exchange
from relaxc.emit.fragment import build_fragment
from relaxc.emit.plan import emit
from relaxc.explain import explain
from relaxc.language.source import Source
from relaxc.manifest import BodyPlan
from relaxc.program.paths import PathBody, Paths
from relaxc.program.types import Typed
from relaxc.resources import folder
from relaxc.schedule.actions import Piece
from relaxc.schedule.schedule import Schedule, make_schedule
from relaxc.schedule.transfers import schedule_transfer
from relaxc.topology.topology import from_plain
from relaxc.topology.weights import partners, receivers
from relaxc.wire.parameters import Parameter

HERE = Path(__file__).parent
SPECS = sorted(path.stem for path in folder("specs").glob("*.relax"))
MODEL = [
    Parameter(0, "embed.weight", (300, 64), "f32"), Parameter(1, "block.norm.weight", (64,), "f32"),
    Parameter(2, "block.fc.weight", (2048, 512), "f32"), Parameter(3, "block.fc.bias", (2048,), "f32"),
    Parameter(4, "head.weight", (64, 300), "f16"),
]  # fmt: skip


WORKERS, RANK = 3, 1


def typed_of(name: str) -> Typed:
    return pipeline.to_typed(pipeline.to_spec(Source(name, (folder("specs") / f"{name}.relax").read_text()), {}))


def kernels_text(paths: Paths) -> str:
    """Of f32 parameters: what gradients need while backward runs, then the fragments."""
    parts = []
    for body in paths.bodies:
        kernels = Kernels(("f32",))
        if body.gradient is not None:
            native_exchange(body.gradient.exchange, kernels)
        parts += [str(kernel) for kernel in kernels.found.values()]
        parts += fragments_text(body)
    return "\n\n".join(parts) + "\n" if parts else "nothing is computed\n"


def fragments_text(body: PathBody) -> list[str]:
    return [
        str(build_fragment(f"fragment{number}", body, fragment, "f32").kernel)
        for number, fragment in enumerate(body.fragments)
    ]


def schedule_text(schedule: Schedule) -> str:
    """What leaves while backward runs."""
    lines = [f"bucket {n}: body {b.body} {b.dtype} {list(b.parameters)}" for n, b in enumerate(schedule.buckets)]
    lines += pieces_lines(schedule.pieces)
    return "\n".join([*lines, f"bytes handed over {schedule.sent_bytes}, payload {schedule.wire_bytes}"]) + "\n"


def transfers_text(bodies: tuple[BodyPlan, ...], piece_bytes: int, few_piece_bytes: int, seed: int) -> str:
    """What the exchanges of programs send in round 0."""
    lines = []
    for body in bodies:
        for number, transfer in enumerate(body.program.transfers if body.program else ()):
            targets: tuple[int, ...] = ()
            sources: tuple[int, ...] = ()
            if transfer.exchange.kind == "mix":
                topology = from_plain(transfer.exchange.topology)
                targets = tuple(receivers(topology, WORKERS, 0, seed, RANK))
                sources = tuple(sorted({RANK, *partners(topology, WORKERS, 0, seed, RANK)}))
            made = schedule_transfer(
                transfer, [p for p in MODEL if p.dtype == "f32"], 0, WORKERS, RANK, piece_bytes, targets=targets,
                sources=sources, few_piece_bytes=few_piece_bytes,
            )  # fmt: skip
            lines += [
                f"transfer {number}, leaves {transfer.leaves}, lands {transfer.lands}",
                *pieces_lines(made.pieces),
            ]
            lines += [f"bytes handed over {made.sent_bytes}"]
    return "\n".join(lines) + "\n" if lines else ""


def pieces_lines(pieces: tuple[Piece, ...]) -> list[str]:
    lines = []
    for number, piece in enumerate(pieces):
        lines.append(f"piece {number} of bucket {piece.bucket}, buffers {list(piece.buffers)}")
        for phase in piece.phases:
            lines.append("  phase")
            for a in phase:
                if a.kernel is not None:
                    ranges = " ".join(f"{r.parameter}[{r.first}+{r.elements}]" for r in a.ranges)
                    lines.append(f"    {a.kernel.name} {ranges} {list(a.inputs)} -> {a.buffer}")
                else:
                    lines.append(f"    {a.kind} {a.buffer} {'to' if a.kind == 'send' else 'from'} {a.peer} tag {a.tag}")
    return lines


@pytest.mark.parametrize("name", SPECS)
def test_golden(name: str, update_golden: bool) -> None:
    typed = typed_of(name)
    paths = pipeline.to_paths(typed.program)
    manifest = emit(typed.program, paths, typed.facts, name, None).manifest
    schedule = make_schedule(manifest, MODEL, WORKERS, RANK)
    transfers = transfers_text(manifest.bodies, manifest.piece_bytes, manifest.few_piece_bytes, manifest.seed)
    texts = {
        "explained.txt": explain(typed.program, paths, typed.facts, [1, 2, 4], [4]),
        "kernels.txt": kernels_text(paths),
        "schedule.txt": schedule_text(schedule) + transfers,
    }
    for file, text in texts.items():
        path = HERE / name / file
        if update_golden:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"there is no {file} of {name}: run with --update-golden and read what it wrote"
        assert path.read_text() == text, (
            f"{path.name} differs; if it should, run with --update-golden and read the diff"
        )
