"""Does what workers disagree about die out, and is what codecs lose not lost for good?

RX0370: the eigenvalues of W for which it does are those above a bound, which the body's own recurrence gives: -1/3 for
D2's corrections, 1 - 2 / gamma for a pull by gamma. RX0375: that bound is for a W that is symmetric and stays; with
corrections a topology that changes diverges though each of its rounds is above it (tried: D2 over random pairs grows by
4 to 9 % a round, over lazy ones it settles). RX0369: a code's loss that stays in weights must be zero on average.
"""

from __future__ import annotations

from relaxc.language.diagnostics import Diagnostic
from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.program.checks.judged import Judged, place, values
from relaxc.program.ir import Decode, Encode, Exchange, Expression, Read, within
from relaxc.program.settling import MIDDLE, Fate, fate, judged_topology, lost_for_good, lowest
from relaxc.topology.kinds import changes, directed, spread
from relaxc.topology.spectrum import AT
from relaxc.topology.topology import Topology

LAZY_PAIRS = 0.5
"""The spread of lazy pairs."""


def check_settling(judged: Judged, report: Report) -> None:
    _lost(judged, report)
    topology = judged_topology(judged.body)
    above = lowest(judged.body) if topology is not None and _of_weights(judged) else None
    if topology is None or above is None or above <= -1:
        return
    span = place_of_mix(judged, topology)
    if above == 1:
        _never(judged, span, report)
    elif directed(topology) or (changes(topology) and spread(topology) > LAZY_PAIRS):
        report.warn("RX0375", f"over {topology}, what workers disagree about may grow", span,
                    "what is corrected for one round's partners is wrong for the next ones'"
                    if changes(topology) else "its matrix is not symmetric",
                    "use a topology that never changes and whose links go both ways, such as lazy(ring)")  # fmt: skip
    else:
        _for_any_number(judged, topology, above, report)


def _for_any_number(judged: Judged, topology: Topology, above: float, report: Report) -> None:
    least = 1 - spread(topology)
    if least < above + AT:
        label = f"W needs eigenvalues above {above:.3g}, and those of {topology} come down to {least:.3g}"
        report.warn("RX0370", f"over {topology}, what workers disagree about may never die out",
                    place_of_mix(judged, topology), label, help_for(topology, above))  # fmt: skip


def settled_by_number(judged: Judged) -> tuple[Diagnostic, ...]:
    """What is said of any number of workers, and wrong of some, where their own matrix is judged (among.py): RX0370 of
    a topology that stays."""
    report = Report()
    topology, above = judged_topology(judged.body), lowest(judged.body)
    if topology is not None and above is not None and not changes(topology):
        _for_any_number(judged, topology, above, report)
    return report.finish()


def _of_weights(judged: Judged) -> bool:
    """Of gradients that are mixed and never averaged, RX0332 tells."""
    return any("weight" in judged.sources(e.value) for e in judged.exchanges() if e.kind == "mix")


def _never(judged: Judged, span: Span, report: Report) -> None:
    help_ = "move towards the mix by a factor between 0 and 1: weight += 0.4 * (mix - own)"
    if fate(judged.body, MIDDLE) is Fate.GROWS:
        message = "what workers disagree about grows, whatever their number"
        report.error("RX0370", message, span, "they move away from one another", help_)
    else:
        message = "what workers disagree about never dies out, whatever their number"
        report.warn("RX0370", message, span, "nothing pulls them together", help_)


def help_for(topology: Topology, above: float) -> str:
    """A lazy topology's eigenvalues lie half way to 1."""
    lazy = 1 - spread(topology) / 2
    smaller = "move by a smaller factor"
    return f"use lazy({topology}), or {smaller}" if lazy > above + AT else smaller


def place_of_mix(judged: Judged, topology: Topology) -> Span:
    return next(place(e) for e in judged.exchanges() if e.topology == topology)


def _lost(judged: Judged, report: Report) -> None:
    """Of codes that the sender decodes; of what it does not, RX0331 tells."""
    decoded = {e.code.name for e in _parts(judged) if isinstance(e, Decode) and isinstance(e.code, Read)}
    sent = {e.value.name for e in _parts(judged) if isinstance(e, Exchange) and isinstance(e.value, Read)}
    for let in judged.lets.values():
        code = let.value
        if not isinstance(code, Encode) or not code.codec.biased or let.name not in decoded & sent:
            continue
        if lost_for_good(judged.body, code):
            report.warn("RX0369", f"what {code.codec.text} loses stays in weights for good", place(let),
                        "a biased codec where what is lost must be nothing on average",
                        "use a codec that rounds at random, such as qsgd(8) or minmax(8, rounding = stochastic), or "
                        "keep the loss in a state")  # fmt: skip


def _parts(judged: Judged) -> list[Expression]:
    return [e for statement in judged.statements for value in values(statement) for e in within(value)]
