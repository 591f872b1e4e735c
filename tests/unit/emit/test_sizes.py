"""What sizes and constants become in kernels: bytes in 64 bits, and divisors that f32 can't hold."""

from __future__ import annotations

import re

import pytest

from relaxc import pipeline
from relaxc.emit.plan import emit
from relaxc.language.source import Source


def sources(text: str) -> tuple[str, str]:
    typed = pipeline.to_typed(pipeline.to_spec(Source("t.relax", text), {}))
    made = emit(typed.program, pipeline.to_paths(typed.program), typed.facts, "t", None)
    return made.kernels, made.cuda


@pytest.mark.parametrize("kind", ["f32", "bf16", "real"])
def test_where_a_field_of_a_whole_tensor_ends_is_counted_in_64_bits(kind: str) -> None:
    """A tensor of 2^29 elements has a field of 2^31 bytes."""
    codec = f"codec two() {{ per tensor send v: {kind} = x send up: uint(1) = where(x >= 0, 1, 0) receive = v * up }}\n"
    for source in sources(codec + "relax gradients { compress = two }"):
        sizes = re.findall(r"= (?:in|out)0 \+ (.*);", source)
        assert sizes and all(re.fullmatch(r"\dLL \* n", size) for size in sizes), sizes


def test_a_divisor_that_f32_has_no_number_for_is_zero() -> None:
    """x / 0 is 0 in a codec: never the plain operator."""
    codec = "codec tiny() {{ send level: uint(8) = x / {} receive = level }}\nrelax gradients {{ compress = tiny }}"
    for source in sources(codec.format("1e-50")):
        assert "relaxrt::divide(" in source
    for source in sources(codec.format("1e-30")):
        assert "relaxrt::divide(" not in source
