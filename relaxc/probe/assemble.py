"""From measured times to a network: lines, and how well they fit. The same for whoever computes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from relaxc.probe.fit import Fit, fit
from relaxc.probe.pairs import Pair, same_machine
from relaxc.schedule.network import Coding, Network

DIFFERS = 1.25
"""A pair whose message of MESSAGE bytes takes so many times as long as its kind's, or as short, has its own line; more
where lines fit badly."""
MESSAGE = 1 << 18

Times = Mapping[int, float]


@dataclass(frozen=True)
class Measured:
    """Seconds by bytes, of codecs by elements: those of `codings` are (encode, decode) of each worker."""

    workers: int
    per_machine: int
    pairs: Mapping[Pair, Times]
    reduce: Times
    wire: Times
    codings: Sequence[Mapping[str, tuple[Times, Times]]]


@dataclass(frozen=True)
class Assembled:
    """`fits` are by what they are of, for people."""

    network: Network
    fits: Mapping[str, Fit]


def assemble(measured: Measured) -> Assembled:
    """Of several links or workers, medians size by size."""
    across = {pair: t for pair, t in measured.pairs.items() if not same_machine(pair, measured.per_machine)}
    within = {pair: t for pair, t in measured.pairs.items() if pair not in across}
    inner = fit(medians(within.values())) if within else None
    link = fit(medians(across.values())) if across else inner
    assert link is not None, "one worker alone has no link"
    fits = {"link": link} | ({"link within a machine": inner} if inner is not None and across else {})
    pairs = _apart(across, link) | _apart(within, inner or link)
    fits |= {f"link {s} to {r}": found for (s, r), found in pairs.items()}
    reduce = fit(measured.reduce)
    fits["all-reduce"] = reduce
    fits["a core, of a message"] = wire = fit(measured.wire)
    codings = {}
    for text in measured.codings[0]:
        encode, decode = (fit(medians([each[text][i] for each in measured.codings])) for i in (0, 1))
        fits |= {f"encode {text}": encode, f"decode {text}": decode}
        codings[text] = Coding(encode.line, decode.line)
    lines = {pair: found.line for pair, found in pairs.items()}
    within_machine = inner.line if inner is not None and measured.per_machine > 1 else None
    network = Network(
        link.line, measured.workers, measured.per_machine, within_machine, lines, reduce.line, codings, wire=wire.line
    )
    return Assembled(network, fits)


def medians(times: Iterable[Times]) -> dict[int, float]:
    """Size by size, of the sizes that all have."""
    found = list(times)
    sizes = set.intersection(*(set(one) for one in found))
    return {size: median(one[size] for one in found) for size in sorted(sizes)}


def _apart(pairs: Mapping[Pair, Times], kind: Fit) -> dict[Pair, Fit]:
    """Those that differ from their kind."""
    usual, found = kind.line.at(MESSAGE), {}
    for pair, times in pairs.items():
        own = fit(times)
        share = own.line.at(MESSAGE) / usual
        if max(share, 1 / share) > DIFFERS + own.error + kind.error:
            found[pair] = own
    return found
