"""What each shipped spec becomes, as text: the explanation, the kernels' IR, and the schedule of one worker of three.

A change that moves one of these shows in the diff; `--update-golden` rewrites them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxc import pipeline
from relaxc.emit.fuse import build_kernel
from relaxc.emit.plan import emit
from relaxc.explain import explain
from relaxc.language.source import Source
from relaxc.program.ir import Carried, Program
from relaxc.resources import folder
from relaxc.schedule.schedule import Schedule, make_schedule
from relaxc.wire.parameters import Parameter

HERE = Path(__file__).parent
SPECS = sorted(path.stem for path in folder("specs").glob("*.relax"))
MODEL = [
    Parameter(0, "embed.weight", (300, 64), "f32"), Parameter(1, "block.norm.weight", (64,), "f32"),
    Parameter(2, "block.fc.weight", (2048, 512), "f32"), Parameter(3, "block.fc.bias", (2048,), "f32"),
    Parameter(4, "head.weight", (64, 300), "f16"),
]  # fmt: skip


def program_of(name: str) -> Program:
    return pipeline.to_program(pipeline.to_spec(Source(name, (folder("specs") / f"{name}.relax").read_text()), {}))


def kernels_text(program: Program) -> str:
    parts = []
    for number, body in enumerate(pipeline.to_messages(program).bodies):
        exchange = getattr(body.statements[0], "value", None)
        if isinstance(exchange, Carried):
            parts += [str(build_kernel(f"body{number}_{k.name}", exchange.codec, k, "f32")) for k in exchange.kernels]
    return "\n\n".join(parts) + "\n" if parts else "nothing is coded\n"


def schedule_text(schedule: Schedule) -> str:
    lines = [f"bucket {n}: body {b.body} {b.dtype} {list(b.parameters)}" for n, b in enumerate(schedule.buckets)]
    for number, piece in enumerate(schedule.pieces):
        lines.append(f"piece {number} of bucket {piece.bucket}, buffers {list(piece.buffers)}")
        for phase in piece.phases:
            lines.append("  phase")
            for a in phase:
                if a.kernel is not None:
                    ranges = " ".join(f"{r.parameter}[{r.first}+{r.elements}]" for r in a.ranges)
                    lines.append(f"    {a.kernel.name} {ranges} {list(a.inputs)} -> {a.buffer}")
                else:
                    lines.append(f"    {a.kind} {a.buffer} {'to' if a.kind == 'send' else 'from'} {a.peer} tag {a.tag}")
    return "\n".join([*lines, f"bytes handed over {schedule.sent_bytes}, payload {schedule.wire_bytes}"]) + "\n"


@pytest.mark.parametrize("name", SPECS)
def test_golden(name: str, update_golden: bool) -> None:
    program = program_of(name)
    manifest = emit(pipeline.to_messages(program), name, None).manifest
    texts = {
        "explained.txt": explain(program, [1, 2, 4]),
        "kernels.txt": kernels_text(program),
        "schedule.txt": schedule_text(make_schedule(manifest, MODEL, 3, 1)),
    }
    for file, text in texts.items():
        path = HERE / name / file
        if update_golden:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.read_text() == text, (
            f"{path.name} differs; if it should, run with --update-golden and read the diff"
        )
