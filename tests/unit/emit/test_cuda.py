from __future__ import annotations

import re
from dataclasses import replace

import codecs_by_hand as codecs
import jinja2
import pytest
from cuda_cases import FRAGMENTS, MEAN, MIX, PLAIN, ROUTES, SELECTING, by_routes, of_specs

from relaxc.emit import cuda_costs
from relaxc.emit.cuda import Launch, emit_cuda
from relaxc.emit.fragment import build_fragment
from relaxc.emit.fuse import build_kernel
from relaxc.emit.kernel import BlockKernel
from relaxc.manifest import SCRATCH_ROUNDED
from relaxc.program.ir import Codec
from relaxc.resources import folder
from relaxc.wire.layout import Layout

KEEP, COMBINE, _, SPREAD = ROUTES[:4]


def kernel(codec: Codec, route=KEEP, dtype: str = "f32") -> BlockKernel:
    return build_kernel("k", codec, route, dtype)


def launch(made: BlockKernel) -> Launch:
    return emit_cuda([made])[1][0]


def source(made: BlockKernel) -> str:
    return emit_cuda([made])[0]


# --- the text


def test_the_text_depends_on_its_kernels_alone():
    kernels = by_routes()
    assert emit_cuda(kernels) == emit_cuda(kernels)
    assert emit_cuda([]) == (emit_cuda([])[0], ())
    assert emit_cuda([])[0].count("#include") == 1


def test_every_line_of_code_is_readable():
    text, launches = emit_cuda(of_specs())
    assert max(map(len, text.splitlines())) <= 130
    assert "\t" not in text
    assert "\n\n\n" not in text
    assert not re.search(r"[{;]\n\n", text)
    assert [one.symbol for one in launches] == re.findall(r"(\w+)\(relaxrt_cuda_call call\) \{", text)


def test_generated_code_includes_relaxrt_only_and_nvrtc_needs_no_header():
    assert re.findall(r"#include (.*)", source(kernel(codecs.everything()))) == ['"relaxrt/cuda.h"']
    waiting, seen = ["cuda.h"], set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        text = (folder("runtime") / "relaxrt" / name).read_text()
        found = re.findall(r'#include (["<].*[">])', text)
        assert {i for i in found if i[0] == "<"} <= {"<cstdint>"}
        assert ("<cstdint>" in found) == (name == "integers.h")
        waiting += {i[1:-1] for i in found if i[0] == '"'} - seen
    assert not {"pack.h", "scratch.h", "top.h", "ahead.h"} & seen  # those of the CPU


def test_an_operation_that_the_template_cannot_spell_is_an_error():
    made = kernel(codecs.minmax(8))
    object.__setattr__(made.main.values[-1], "op", "magic")
    with pytest.raises(jinja2.UndefinedError):
        emit_cuda([made])


def test_nothing_contracts_and_nothing_waits_for_the_host():
    text = emit_cuda(of_specs(("f32",)))[0]
    assert "fma" not in text
    assert "cudaDevice" not in text


# --- one pass over memory


def reads(text: str, name: str) -> int:
    return len(re.findall(rf"(?:read_run<\w+>\({name}|receive_\w+(?:<\d>)?\({name})", text))


@pytest.mark.parametrize("codec", [codecs.minmax(8), codecs.absmax(4), codecs.onebit(512), codecs.modulo(8)])
def test_an_encoder_reads_each_operand_once(codec):
    text = source(kernel(codec))
    assert reads(text, "value_p0") == 1
    assert reads(text, "residual_p1") == 1


def test_a_total_of_many_messages_is_never_stored():
    text = source(kernel(codecs.minmax(8), COMBINE))
    assert reads(text, "in2") == 1
    assert "total_here[j] = " in text
    assert " total[" not in text


def test_a_message_that_is_seen_as_a_whole_is_added_to_a_total_in_scratch():
    assert "relaxrt::write_whole(total + base, total_here)" in source(kernel(codecs.topk(0.1, 512), COMBINE))
    assert not cuda_costs.flat(kernel(codecs.topk(0.1, 512), COMBINE))
    assert not cuda_costs.flat(kernel(codecs.dct(), MEAN))
    assert not cuda_costs.flat(kernel(codecs.minmax(8), KEEP))
    assert cuda_costs.flat(kernel(codecs.minmax(8), MIX))


def test_threads_that_never_meet_have_no_barrier():
    assert "__syncthreads" not in source(kernel(codecs.minmax(8), SPREAD))
    assert "__shared__" not in source(kernel(codecs.minmax(8), SPREAD))
    assert "__syncthreads" in source(kernel(codecs.minmax(8), KEEP))


# --- how it is launched


@pytest.mark.parametrize(
    ("block", "dtype", "threads", "run"),
    [
        (512, "f32", 128, 4), (512, "bf16", 64, 8), (4096, "f32", 256, 4), (7, "f16", 32, 4), (1, "f64", 32, 4),
        (1000, "f32", 256, 4), (96, "bf16", 32, 4),
    ],
)  # fmt: skip
def test_a_thread_has_one_run_where_that_is_enough(block, dtype, threads, run):
    made = kernel(codecs.minmax(8, block), KEEP, dtype)
    assert (cuda_costs.threads(made), cuda_costs.run(made)) == (threads, run)
    assert f"THREADS = {threads}, RUN = {run};" in source(made)
    assert launch(made).threads == threads


@pytest.mark.parametrize("codec", [*PLAIN, *SELECTING], ids=lambda c: c.text)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_bytes_of_a_segment_are_those_of_the_layout(codec, dtype):
    made, real = launch(kernel(codec, KEEP, dtype)), 8 if dtype == "f64" else 4
    for elements in (0, 1, 7, 511, 512, 513, 4099, 70001):
        assert made.bytes_of(elements) == codec.layout.bytes_of(elements, real)
        block = codec.layout.block_of(elements)
        assert made.blocks_of(elements) == -(-elements // block)


def test_an_empty_segment_is_a_block_where_a_cell_comes_of_it():
    norms, clipped = (next(c for c in FRAGMENTS if c.name == name) for name in ("norms", "clipped"))
    assert launch(build_fragment("k", norms.body, norms.fragment, "f32").kernel).blocks_of(0) == 1
    assert launch(build_fragment("k", clipped.body, clipped.fragment, "f32").kernel).blocks_of(0) == 0
    assert launch(kernel(codecs.topk(0.1))).blocks_of(0) == 0
    assert launch(kernel(codecs.topk(0.1))).blocks_of(5) == 1


def test_scratch_is_on_chip_until_it_is_too_large():
    assert launch(kernel(codecs.minmax(8, 4096))).scratch_per_element == 0
    assert launch(kernel(codecs.minmax(8, 4096), KEEP, "f64")).scratch_per_element == 2 * 8
    whole = launch(kernel(replace(codecs.minmax(4), layout=Layout(0, codecs.minmax(4).layout.fields, "tensor"))))
    assert whole.scratch_per_element == 3 * 4  # what is encoded, the residual, the levels
    assert whole.scratch_bytes(17) == 12 * 2 * SCRATCH_ROUNDED
    assert whole.scratch_bytes(0) == 0
    assert launch(kernel(codecs.minmax(8), SPREAD)).scratch_bytes(512) == 0


def test_a_top_of_few_elements_has_few_bins():
    assert "top_room<8> selecting" in source(kernel(codecs.topk(0.1, 512)))
    assert "top_room<11> selecting" in source(kernel(codecs.topk(0.1, 4096)))
    assert "top_room<11> selecting" in source(kernel(codecs.topk(0.1)))
