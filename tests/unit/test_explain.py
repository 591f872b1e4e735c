"""What `relaxc explain` says of each kind of program: who agrees, what it costs, when what is sent, topologies drawn."""

from __future__ import annotations

import subprocess
import sys

import pytest

from relaxc import pipeline
from relaxc.explain import explain
from relaxc.language import library
from relaxc.language.source import Source


def explained(text: str, workers: tuple[int, ...] = (4,), drawn: tuple[int, ...] = ()) -> str:
    typed = pipeline.to_typed(pipeline.to_spec(Source("spec", text), {}))
    return explain(typed.program, pipeline.to_paths(typed.program), typed.facts, workers, drawn)


@pytest.mark.parametrize("name", library.specs())
def test_each_shipped_spec(name: str) -> None:
    spec = library.spec(name)
    assert spec is not None
    shown = explained(spec.source.text, workers=(1, 2, 4, 8))
    assert shown.startswith("# governs ") and "roundings\n" in shown and "nan" not in shown


def test_what_is_said_of_replicas() -> None:
    assert "replicas: identical on all workers" in explained("relax gradients")
    local = explained("relax weights")
    assert "replicas: differ between workers\n" in local and "relaxed.consensus()" in local
    assert "identical after each run" in explained("relax updates")
    phased = (
        "algorithm a() { phase one for 9 { grad = mean(grad) } step phase two { every 8 { weight = mean(weight) } } }"
    )
    assert "by phase: one identical, two different" in explained(phased + "\nrelax with a")


def test_what_is_said_of_lateness() -> None:
    assert "staleness: 2, gradients are applied 2 iterations after they were taken" in explained(
        "relax gradients { delay = 2 }"
    )
    assert "staleness: 3, what is exchanged is applied 3 iterations after" in explained(
        "relax weights { every = 4, delay = 3 }"
    )


def test_how_far_apart_neighbours_may_be() -> None:
    """127 units at 8 bits, 7 at 4; a bound on what moves them, by the gap; a codec that finds its unit has none."""
    text = "relax weights {{ compress = modulo({}), topology = {} }}"
    told = explained(text.format("8bit, unit = 0.01", "complete"), drawn=(4,))
    assert (
        "note[RX0366]: modulo(bits = 8, unit = 0.01, block = 512) is right while neighbours differ by less than 1.2"
        in told
    )
    assert "iterations between exchanges should stay below about 0.63" in told
    assert "differ by less than 0.7" in explained(text.format("4bit, unit = 0.1", "ring"), drawn=(8,))
    for other in ("8bit, unit = auto", "8bit"):
        count = explained(text.format(other, "ring"), drawn=(4, 8)).count("RX0366")
        assert count == (0 if "auto" in other else 2)
    assert "RX0366" not in explained("relax weights { compress = 8bit }", drawn=(4,))


def test_figures_of_a_ring() -> None:
    """Two messages of 4 MB each; an all-reduce of four workers sends 6 MB."""
    shown = explained("relax weights { topology = ring }").splitlines()
    assert shown[-1].split() == ["4", "8.00", "MB", "133", "%", *shown[-1].split()[5:]]
    assert shown[-1].split()[-1] == "0"


def test_a_topology_is_drawn_when_asked() -> None:
    text = "relax weights { topology = ring }"
    assert "spectral gap" not in explained(text)
    drawn = explained(text, drawn=(4,))
    assert "0 - 1 - 2 - 3 - (0)" in drawn and "spectral gap 0.667" in drawn
    hypercube = explained("relax weights { topology = hypercube }", workers=(6,), drawn=(6,))
    assert hypercube.count("a power of two of workers") == 2


@pytest.mark.parametrize(
    ("topology", "workers", "line"),
    [
        ("one_peer_exponential", 8, "    exact mean after 3 rounds"),
        ("one_peer_exponential", 6, "    21.7 % of a disagreement left after 3 rounds, at most"),
        ("shift_one", 4, "    exact mean after 2 rounds"),
        ("shuffled(one_peer_exponential)", 5, "    15.3 % of a disagreement left after 3 rounds, on average"),
        ("complete", 5, "    exact mean after 1 round"),
    ],
)
def test_what_a_period_of_rounds_comes_to(topology: str, workers: int, line: str) -> None:
    """Of 6 workers, |(1 + w)(1 + w^2)(1 + w^4)| / 8 is sqrt(3) / 8 for the sixth root of 1."""
    assert line in explained(f"relax weights {{ topology = {topology} }}", drawn=(workers,)).splitlines()


def test_the_stability_of_a_late_mix() -> None:
    """A ring of four has the eigenvalues 1, 1/3, 1/3, -1/3; one round late is stable below 2 sin(pi / 6) = 1."""
    every = "algorithm a(n = 1) { step every n { weight += delay(mix(weight, ring) - weight, 1) } }\nrelax with a"
    assert "1 - lambda_min(W) 1.333; weights mixed 1 rounds late are stable below 1.000" in explained(every, drawn=(4,))
    assert "lambda_min" not in explained(f"{every} {{ n = 2 }}", drawn=(4,))


def test_states_and_moments_are_named() -> None:
    shown = explained("relax with choco")
    assert "states: seen (a tensor), around (a tensor)" in shown
    assert "the mix over ring" in shown and " starts: " in shown and " is waited for: " in shown


def test_numpy_only_where_a_worker_count_is_asked_about() -> None:
    program = (
        "import sys\nfrom relaxc import pipeline\nfrom relaxc.explain import explain\n"
        "from relaxc.language.source import Source\n"
        "t = pipeline.to_typed(pipeline.to_spec(Source('s', 'relax weights'), {}))\n"
        "explain(t.program, pipeline.to_paths(t.program), t.facts, [4])\n"
        "print({'numpy', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "set()\n"


def test_what_is_said_of_machines() -> None:
    """A share of the code across and back; 4 MB of numbers less one's own share, and codes, within."""
    shown = explained("relax gradients { route = hierarchy(inner = 2), compress = 8bit }", workers=(3, 4))
    assert "a machine has 2 workers" in shown
    assert "4   in machines of 2: 0.51 MB across machines and 2.51 MB within, each time" in shown
    assert "3   3 workers are not a whole number of machines with 2 workers each" in shown
    assert "LOCAL_WORLD_SIZE" in explained("relax gradients { route = hierarchy, compress = 8bit }")
    assert "hierarchy(ring, inner = 2) of 4 workers" in explained(
        "relax weights { topology = hierarchy(ring, inner = 2) }", drawn=(4,)
    )


def test_what_a_mix_of_machines_sends_across() -> None:
    """Of two machines of two each sends 4 MB to its own other worker and to both of the other machine."""
    for text in ("hierarchy(ring, inner = 2)", "hierarchy(ring)"):
        shown = explained(f"relax weights {{ topology = {text} }}", drawn=(4,))
        assert "4   in machines of 2: 8.00 MB across machines and 4.00 MB within, each time" in shown
        assert "hierarchy(ring, inner = 2) of 4 workers" in shown
    assert "in machines" not in explained("relax weights { topology = ring }")
