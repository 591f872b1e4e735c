"""What keeps a plan at work when the user drops what attach returned: the modules whose parameters it exchanges.

The runtime's hooks hold it weakly, since memory that Python's collector can't follow would keep a dropped model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

KEY = "_relaxc_anchor"


class Anchor:
    """Copies and pickles of a module carry an empty one: no plan is attached to them."""

    def __init__(self, held: Any = None) -> None:
        self.held = held

    def __reduce__(self) -> tuple[type[Anchor], tuple[()]]:
        return Anchor, ()


def drop_anchor(model: nn.Module, tensors: Sequence[nn.Parameter], held: Any) -> Anchor:
    """Every module that owns one of `tensors` holds `held`, while the module lives or until `anchor.held` is None."""
    anchor, mine = Anchor(held), {id(tensor) for tensor in tensors}
    for module in model.modules():
        if any(id(p) in mine for p in module.parameters(recurse=False)):
            module.__dict__[KEY] = anchor  # past __setattr__, which wrappers such as torch.compile's redefine
    return anchor
