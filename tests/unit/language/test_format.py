"""Canonical layout, by example. That it never changes a meaning is in tests/property/test_format.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxc import resources
from relaxc.language.format import format
from relaxc.language.parse import parse
from relaxc.language.source import Source


def formatted(text: str) -> str:
    return format(parse(Source("t.relax", text)))


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("", ""),
        ("relax   gradients{delay=2steps;compress=8bit}", "relax gradients { delay = 2steps, compress = 8bit }\n"),
        ("relax gradients {}", "relax gradients { }\n"),
        ("relax with choco{gamma=.3}", "relax with choco { gamma = .3 }\n"),
        ("param a=((1+2))*-3^(2)", "param a = (1 + 2) * -3 ^ 2\n"),
        ("param a=(-3)^2", "param a = (-3) ^ 2\n"),
        ("param a=1-(2-3)", "param a = 1 - (2 - 3)\n"),
        ("param a=f(1,b=2,)", "param a = f(1, b = 2)\n"),
        ("relax gradients for not(a or b)and c", "relax gradients for not (a or b) and c\n"),
        ("param a=1\n\n\n\nparam b=2\nparam c=3", "param a = 1\n\nparam b = 2\nparam c = 3\n"),
        ("relax gradients # why\r\n", "relax gradients  # why\n"),
    ],
)
def test_layout(written: str, canonical: str) -> None:
    assert formatted(written) == canonical
    assert formatted(canonical) == canonical


def test_comments_stay_where_they_stood() -> None:
    text = """
# top

relax gradients for "a" or # one
   # two
   ndim < 2 { compress = 8bit, # three
   # four
   delay = 1 # five
   # six
   } # seven
algorithm f( a, # x
 b=2 # y
 ) { # z


   # w
   step   # s
   every 2 { weight = (a+b) }

   # end
}
# last
"""
    canonical = """\
# top
# two

relax gradients for "a" or ndim < 2 {  # one
  compress = 8bit  # three
  # four
  delay = 1  # five
  # six
}  # seven

# x
# y
algorithm f(a, b = 2) {  # z
  # w
  step  # s
  every 2 { weight = a + b }

  # end
}

# last
"""
    assert formatted(text) == canonical
    assert formatted(canonical) == canonical


def test_long_clauses_get_a_line_each() -> None:
    clauses = ", ".join(f"clause_{i} = minmax(4, block = 256)" for i in range(4))
    assert formatted(f"relax gradients {{ {clauses} }}").splitlines()[1] == "  clause_0 = minmax(4, block = 256)"


@pytest.mark.parametrize("path", sorted(resources.folder("specs").rglob("*.relax")), ids=lambda p: p.stem)
def test_the_library_is_canonical(path: Path) -> None:
    assert formatted(path.read_text()) == path.read_text()
