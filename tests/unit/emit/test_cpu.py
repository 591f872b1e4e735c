from __future__ import annotations

import codecs_by_hand as codecs
import jinja2
import pytest

from relaxc.emit import spelling
from relaxc.emit.cpu import emit_kernels
from relaxc.emit.fuse import build_kernel
from relaxc.emit.spelling import literal
from relaxc.wire.routes import Kernel

KEEP = Kernel("contribute", "none", tensor=True, averages=False, residual=True, owner=False)


@pytest.mark.parametrize(
    ("number", "real", "text"),
    [
        (0.1, "f64", "0.1"),
        (0.1, "f32", "0.10000000149011612f"),
        (255.0, "f32", "255.0f"),
        (1e300, "f32", "relaxrt::infinity<float>()"),
        (-1e300, "f32", "-relaxrt::infinity<float>()"),
        (-1e300, "f64", "-1e+300"),
        (float("nan"), "f64", "relaxrt::nan<double>()"),
    ],
)
def test_a_constant_is_rounded_once(number, real, text):
    assert literal(number, real) == text


def test_the_text_depends_on_its_kernels_alone():
    kernels = [build_kernel(f"k_{d}", codecs.everything(), KEEP, d) for d in ("f32", "f16", "bf16", "f64")]
    assert emit_kernels(kernels) == emit_kernels(kernels)
    assert emit_kernels([]).count("#include") == 1


def test_every_line_of_code_is_readable():
    source = emit_kernels([build_kernel("k", codecs.everything(), KEEP, "f16")])
    assert max(map(len, source.splitlines())) <= 130
    assert "\t" not in source and "\n\n\n" not in source


def test_large_scratch_is_not_on_the_stack():
    assert "relaxrt::opened" in emit_kernels([build_kernel("k", codecs.absmax(4, 70000), KEEP, "f32")])
    assert "relaxrt::opened" not in emit_kernels([build_kernel("k", codecs.absmax(4, 512), KEEP, "f32")])


def test_an_operation_that_the_template_cannot_spell_is_an_error(monkeypatch):
    kernel = build_kernel("k", codecs.minmax(8), KEEP, "f32")
    object.__setattr__(kernel.main.values[-1], "op", "magic")
    with pytest.raises(jinja2.UndefinedError):
        emit_kernels([kernel])
    assert spelling.template("kernels.cpp.j2") is spelling.template("kernels.cpp.j2")
