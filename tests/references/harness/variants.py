"""Specs with other arguments, on other graphs and other machines: the text, whose reference it is held against, and that
one's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from references.harness.codes import minmax


@dataclass(frozen=True)
class Variant:
    """`links` is the text of a file, whose path takes the place of LINKS in `text`; `inner` workers are on each machine,
    where it isn't 0 and so unknown."""

    text: str
    of: str
    settings: dict[str, Any] = field(default_factory=dict)
    workers: tuple[int, ...] = (2, 3)
    links: str = ""
    inner: int = 0


SQUEEZED: dict[str, Callable[..., Any] | bool] = {"code": lambda x: minmax(4, x), "owner_remembers": False}
ARGUMENTS = {
    "late": Variant("relax gradients { delay = 3 }", "delayed_sgd", {"late": 3}),
    "4bit worker": Variant("relax gradients { compress = 4bit, feedback = worker }", "double_squeeze", SQUEEZED),
    "slow momentum": Variant(
        "relax with slowmo { period = 5, beta = 0.8, alpha = 0.7 }", "slowmo", {"period": 5, "beta": 0.8, "alpha": 0.7}
    ),
    "stiff springs": Variant("relax with easgd { period = 1, beta = 0.5 }", "easgd", {"period": 1, "beta": 0.5}),
    "gamma": Variant("relax with deepsqueeze { gamma = 0.2, topology = complete }", "deepsqueeze", {"gamma": 0.2}),
    "near": Variant(
        "relax with moniqua { compress = modulo(8bit, unit = 0.008) }", "moniqua", {"unit": 0.008}, (2, 3, 4)
    ),
}

FULL = "relax gradients for ndim < 2\n"
SELECTING = {
    **{
        f"{count} of each": Variant(f"{FULL}relax gradients {{ compress = topk({count}) }}", "topk", {"part": count})
        for count in (1, 9, 1200)
    },
    "a tenth": Variant(
        f"{FULL}relax gradients {{ compress = randomk(10%), feedback = worker }}", "random_k", {"block": 10}
    ),
    "a seventh": Variant("relax with sparta { part = 14% }", "sparta", {"block": 7}),
    "longer momentum": Variant(
        f"{FULL}relax with dgc {{ momentum = 0.5, clip = 9, epoch = 5 }}",
        "dgc",
        {"momentum": 0.5, "clip": 9.0, "epoch": 5},
    ),
    "small blocks": Variant(
        f"{FULL}relax with demo {{ decay = 0.9, side = 16, keep = 4 }}", "demo", {"decay": 0.9, "side": 16, "keep": 4}
    ),
}

# --- links that go one way, and unevenly

UNEVEN = {
    2: "0 1\n1 0",
    3: "0 1\n1 2\n2 0\n0 2",
    4: "0 1\n1 2\n2 3\n3 0\n0 2\n0 3",
    5: "0 1\n1 2\n2 3\n3 4\n4 0\n0 2\n0 3\n2 1",
}
"""Strongly connected, some workers heard by many and some by one."""
WEIGHTED = {3: "0 1 0.5\n1 2 0.75\n2 0 0.2\n0 2 0.3", 4: "0 1 0.1\n1 2 0.9\n2 3 0.5\n3 0 0.25\n0 2 0.6\n2 0 0.4"}
ALL_AWAY = "0 1 1\n1 2 1\n2 0 0.5"
"""Workers that keep nothing."""
BRANCHED = {4: "0 1\n1 2\n1 3", 5: "4 1\n1 0\n3 1\n2 0"}


def over(name: str, links: dict[int, str], called: str, kind: str = "arrows") -> dict[str, Variant]:
    text = f'relax with {name} {{ topology = {kind}("LINKS") }}'
    return {f"{name} over {called} {n}": Variant(text, name, {}, (n,), links[n]) for n in links}


GRAPHS = {
    **over("sgp", UNEVEN, "uneven"),
    **over("osgp", UNEVEN, "uneven"),
    **over("sgp", WEIGHTED, "weighted"),
    **over("osgp", WEIGHTED, "weighted"),
    **over("sgp", {3: ALL_AWAY}, "all away"),
    **over("relaysgd", BRANCHED, "branched", "edges"),
    "relaysgd over a star": Variant("relax with relaysgd { topology = star }", "relaysgd", {}, (3, 5)),
    "osgp late": Variant("relax with osgp { late = 3, topology = exponential }", "osgp", {"late": 3}, (2, 5)),
}

# --- machines, as torchrun tells of them

MACHINES = {
    f"{inner} on each": Variant("hierarchical", "hierarchical", {"inner": inner}, workers, inner=inner)
    for inner, workers in {1: (2,), 2: (2, 4, 6), 3: (6,)}.items()
}
VARIANTS = {**ARGUMENTS, **SELECTING, **GRAPHS, **MACHINES}

FIVE = {"demo", "dgc", "osgp", "random_k", "relaysgd", "sgp", "sparta", "topk"}
"""Specs that five workers train, too: everyone hears all codes, or graphs are more than a ring."""
