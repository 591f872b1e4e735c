"""What depends on the number of workers, or takes numpy: asked for by name, since `relaxc check` does without."""

from __future__ import annotations

from collections.abc import Sequence

from relaxc.language.diagnostics import Diagnostic
from relaxc.language.report import Report
from relaxc.program.agreement import phases_of
from relaxc.program.automatic import ANOTHER
from relaxc.program.checks.judged import Judged, judge, place
from relaxc.program.checks.replicas import adds_up_codes
from relaxc.program.checks.settling import help_for, place_of_mix, settled_by_number
from relaxc.program.contraction import contraction, keeps_nothing
from relaxc.program.ir import Assign, Codec, Encode, Exchange, Program
from relaxc.program.linear import Unjudged, cycle, iteration
from relaxc.program.settling import lost_for_good, lowest
from relaxc.topology.kinds import Rows, changes, directed, pattern, refusal, rows
from relaxc.topology.spectrum import AT, SURELY
from relaxc.topology.topology import Topology
from relaxc.wire.routes import route_of


def check_among(program: Program, counts: Sequence[int]) -> tuple[Diagnostic, ...]:
    """Warnings about these numbers of workers, of all bodies. Raises SpecError where there are errors."""
    report = Report()
    for body in program.bodies:
        judged = judge(body)
        check_pull(judged, report)
        check_kept(judged, report)
        topologies = dict.fromkeys(e.topology for e in judged.exchanges() if e.topology is not None)
        for workers in dict.fromkeys(counts):
            _alone(judged, workers, report)
            _machines(judged, workers, report)
            for topology in topologies:
                _topology(judged, topology, workers, report)
    return report.finish()


def judged_anew(program: Program) -> tuple[Diagnostic, ...]:
    """Warnings of no number of workers that those of `check_among` stand for, where there are numbers."""
    return tuple(warning for body in program.bodies for warning in settled_by_number(judge(body)))


def _alone(judged: Judged, workers: int, report: Report) -> None:
    first = next(judged.exchanges(), None)
    if workers == 1 and first is not None:
        report.warn("RX0379", "one worker has nobody to exchange with", place(first),
                    "it trains as without relaxc", "start two workers or more")  # fmt: skip


def _machines(judged: Judged, workers: int, report: Report) -> None:
    """Routes that take workers in whole machines."""
    for exchange in judged.exchanges():
        why = route_of(exchange.route).refusal(workers) if exchange.route else None
        if why is not None:
            report.error("RX0376", f"no {exchange.route} of {workers} workers", place(exchange), why,
                         "start another number of workers, or leave `inner` to the launcher")  # fmt: skip


def _topology(judged: Judged, topology: Topology, workers: int, report: Report) -> None:
    from relaxc.topology.spectrum import connected

    span = place_of_mix(judged, topology)
    if (why := refusal(topology, workers)) is not None:
        report.error("RX0376", f"no {topology} of {workers} workers", span, why,
                     "start another number of workers, or take another topology")  # fmt: skip
    elif not connected(topology, workers):
        report.warn("RX0377", f"{topology} never connects all {workers} workers", span,
                    "what some of them know never reaches the others", "add links between them")  # fmt: skip
    else:
        _left_out(topology, workers, judged, report)
        _settles(topology, workers, judged, report)


def _left_out(topology: Topology, workers: int, judged: Judged, report: Report) -> None:
    if workers == 1 or not changes(topology):
        return
    rounds = [rows(topology, workers, round, 0) for round in range(pattern(topology, workers))]
    if found := left_out(rounds):
        who, why, help_ = found
        report.warn("RX0378", f"in each round of {topology} of {workers} workers {who} alone",
                    place_of_mix(judged, topology), why, help_)  # fmt: skip


def left_out(rounds: Sequence[Rows]) -> tuple[str, str, str] | None:
    """Who meets nobody in any round, why, and what to do: pairs of an odd number, or a graph of fewer workers."""
    alone = [sum(len(row) == 1 for row in meeting) for meeting in rounds]
    least, workers = min(alone), len(rounds[0])
    if not least:
        return None
    who = f"{least} or more are" if max(alone) > least else "one is" if least == 1 else f"{least} are"
    if max(len(row) for meeting in rounds for row in meeting) == 2 and set(alone) == {workers % 2}:
        return who, "pairs of an odd number", "start an even number of workers, or take one_peer_exponential"
    return who, "nobody is linked to them there", "start as many workers as have links, or add links to the others"


def _settles(topology: Topology, workers: int, judged: Judged, report: Report) -> None:
    """Of a symmetric matrix that stays."""
    from relaxc.topology.spectrum import smallest_eigenvalue

    above = lowest(judged.body)
    above = -1.0 if above is None else above
    if workers == 1 or above == 1 or changes(topology) or directed(topology) or pattern(topology, workers) > 1:
        return
    found = smallest_eigenvalue(topology, workers)
    if found > above + AT:
        return
    span, label = place_of_mix(judged, topology), f"W needs eigenvalues above {above:.3g}, and has {found:.3g}"
    if found < above - SURELY:
        message = f"over {topology} of {workers} workers, what they disagree about grows"
        report.error("RX0370", message, span, label, help_for(topology, above))
    else:
        message = f"over {topology} of {workers} workers, what they disagree about never dies out"
        report.warn("RX0370", message, span, label, help_for(topology, above))


# --- how far to move towards what codes say


def check_pull(judged: Judged, report: Report) -> None:
    """RX0371: the factor by which weights move towards a state that adds up mixes of codes, against twice what the
    codec keeps. On a ring of 8 CHOCO-SGD settled at half of what it keeps with signs, levels, powers of two and random
    parts, and diverged from twice of it on with all of these (tried)."""
    for state, codec in _followed(judged):
        factor, kept = _factor(judged, state), contraction(codec)
        if factor is None or kept is None or factor <= 2 * kept:
            continue
        help_ = "use gamma = auto, which is half of what the codec keeps" if kept else ANOTHER
        moves = next(s for s in judged.statements if isinstance(s, Assign) and s.name == "weight")
        report.warn("RX0371", f"weights move by {factor:g} towards what codes say, of which {codec.text} keeps "
                    f"{kept:g}", place(moves), f"above twice what it keeps, {2 * kept:.3g}, weights may diverge",
                    help_)  # fmt: skip


def check_kept(judged: Judged, report: Report) -> None:
    """RX0383: what a codec loses of a value is added to the next one, and grows where that is more than there is. The
    interpreter diverges with levels whose sign is not decoded, and stands still where half of the values are always
    lost (tried)."""
    for exchange in judged.exchanges():
        codec = exchange.codec
        if exchange.feedback != "none" and codec is not None and keeps_nothing(codec):
            report.warn(
                "RX0383",
                f"{codec.text} loses more than there is, and feedback adds it up",
                place(exchange),
                "of values of one sign or of some size, what is decoded is as far off as 0",
                ANOTHER,
            )


def _followed(judged: Judged) -> list[tuple[str, Codec]]:
    """The states that add up mixes of a code whose loss is made up for, each with the codec."""
    states, found = {state.name for state in judged.body.states}, []
    for statement in judged.statements:
        if not isinstance(statement, Assign) or statement.name not in states or not adds_up_codes(judged, statement):
            continue
        for exchange in judged.parts(statement.value):
            code = judged.encode_of(exchange.value) if isinstance(exchange, Exchange) else None
            if isinstance(code, Encode) and not lost_for_good(judged.body, code):
                found.append((statement.name, code.codec))
    return found


def _factor(judged: Judged, state: str) -> float | None:
    """How often weight takes over what `state` was: with an eigenvalue of 0, mixes add nothing to it."""
    body = judged.body
    try:
        found = [
            abs(iteration(body, phase, runs, 0.0).after["weight"].get(state, 0))
            for phase in phases_of(body.statements)
            for runs in cycle(body, phase)
        ]
    except Unjudged:
        return None
    return max(found, default=None)
