"""What is done with each of many messages: decoded, multiplied by its weight, added to the total."""

from __future__ import annotations

from collections.abc import Callable

from relaxc.emit.coding import decoded
from relaxc.emit.kernel import Section
from relaxc.emit.section import Builder
from relaxc.program.ir import Codec


def gathered(codec: Codec, weighted: bool, near: Callable[[Builder], int]) -> Section:
    """`near` gives the receiver's own value, which is asked for where the codec reads it."""
    builder = Builder()
    value = decoded(builder, codec, lambda: near(builder))
    if weighted:
        value = builder.add("mul", value, builder.add("weight"))
    builder.store("total", builder.add("add", builder.add("total"), value), per_element=True)
    return builder.section()
