"""`relaxc explain`: a program's facts as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxc.language.spec import Cluster
from relaxc.program import figures
from relaxc.program.agreement import phases_of
from relaxc.program.checks.lateness import rounds_late, stable_below
from relaxc.program.facts import Facts, facts_of
from relaxc.program.figures import Sent
from relaxc.program.ir import ASYNC, Body, Exchange, Program, State
from relaxc.program.launched import launched_of
from relaxc.program.paths import STAGES, Path, PathBody, Paths
from relaxc.program.printer import print_program, print_selector, print_topology
from relaxc.topology.kinds import pattern, period, refusal
from relaxc.topology.topology import Topology
from relaxc.wire.routes import NEIGHBOURLY

KEPT = {
    "none": "nothing of what codes lose is kept",
    "worker": "each worker adds what its own codes lost next time",
    "both": "each encoder, owners included, adds what its codes lost next time",
}
OF_A_MIX = "each worker adds what its own codes lost next time"
OWN_WORK = "the algorithm itself says what becomes of what the code loses"

AGREEMENT = {
    "replicated": "identical on all workers",
    "runs": "differ between workers, and are identical after each run of the block that brings weights together",
    "local": "differ between workers",
}
CONSENSUS = "evaluate and save inside `relaxed.consensus()`, in which every replica holds the average"

AT_ITS_OWN_TIME = (
    "each worker starts it when the one before has landed there, and goes on training until it has arrived"
)

WHEN = {
    "begin": "when the iteration before has ended", "backward": "at the end of backward",
    "before": "in optimizer.step(), first", "after": "in optimizer.step(), last", "tail": "before the next forward",
}  # fmt: skip


def explain(
    program: Program, paths: Paths, known: Sequence[Facts], workers: Sequence[int], drawn: Sequence[int] = ()
) -> str:
    """The program with every default filled in, then what each statement means for these numbers of `workers`, and its
    topologies for those of `drawn`, which takes numpy."""
    parts = [print_program(program).rstrip()]
    for number, (body, path, fact) in enumerate(zip(program.bodies, paths.bodies, known, strict=True)):
        parts.append("\n".join(_body(body, path, fact, number, workers, drawn)))
    return "\n\n".join(parts) + "\n"


def explain_cluster(cluster: Cluster) -> str:
    """The network that a spec is written for, on a line."""
    from relaxc.schedule.network_clause import network_of
    from relaxc.schedule.network_text import shown

    network = network_of(cluster)
    return f"\nnetwork: {shown(network)} ({network.source})\n"


def _body(
    body: Body, paths: PathBody, known: Facts, number: int, workers: Sequence[int], drawn: Sequence[int]
) -> Iterator[str]:
    yield f"body{number}: {print_selector(body.selector)}"
    for phase in phases_of(body.statements):
        yield from _exchanges(body, phase)
    yield from _moments(paths)
    yield from _states(body.states)
    yield f"  staleness: {_staleness(body, known)}"
    yield from _replicas(known)
    yield from _topologies(body, drawn)
    for phase in phases_of(body.statements):
        yield from _table(body, paths, phase, workers)


# --- exchanges


def _exchanges(body: Body, phase: str) -> Iterator[str]:
    sent, launched = figures.sent_in(body, phase), launched_of(body.statements).exchanges
    if phase:
        yield f"  in phase {phase}:" + ("" if sent else " nothing is sent")
    for each in sent:
        for line in figures.story(body, each):
            yield f"  - {line}"
        if each.exchange.rank or (each.codec is not None and not each.codec.cast):
            yield f"  - {_kept(each)}"
        if each.exchange.place in launched:
            yield f"  - {AT_ITS_OWN_TIME}"
        elif (often := _often(each)) is not None:
            yield f"  - {often}"


def _kept(sent: Sent) -> str:
    if sent.coded:
        return OWN_WORK
    return (
        OF_A_MIX
        if (sent.exchange.kind in NEIGHBOURLY or sent.exchange.rank) and sent.exchange.feedback != "none"
        else KEPT[sent.exchange.feedback]
    )


def _often(sent: Sent) -> str | None:
    if sent.share is None:
        return "this happens in iterations that are computed while training"
    return None if sent.share == 1 else f"this happens in one of {1 / sent.share:g} iterations, on average"


def _moments(paths: PathBody) -> Iterator[str]:
    """Why each exchange starts and is waited for where it is, over all paths."""
    told: dict[str, None] = {}
    for path in paths.paths:
        told.update(dict.fromkeys(_path(path, paths)))
    if told:
        yield "  in an iteration:"
        yield from (f"    {line}" for line in told)


def _path(path: Path, paths: PathBody) -> Iterator[str]:
    for stage in STAGES:
        for operation in path.stage(stage):
            if operation.kind in ("start", "finish"):
                exchange = paths.transfers[operation.number].exchange
                verb = "starts" if operation.kind == "start" else "is waited for"
                yield f"{WHEN[stage]}, {_named(exchange)} {verb}: {operation.why}"


def _named(exchange: Exchange) -> str:
    over = f" over {print_topology(exchange.topology)}" if exchange.topology is not None else ""
    return f"the {exchange.kind}{over} (place {exchange.place})"


# --- what is said of a whole body


def _states(states: Sequence[State]) -> Iterator[str]:
    if states:
        yield f"  states: {', '.join(f'{state.name} (a {state.shape})' for state in states)}"


def _staleness(body: Body, known: Facts) -> str:
    late = known.staleness
    if any(e.kind == "relay" for e in figures.all_exchanges(body)):
        path = "the links between two workers in the tree, less one"
        return f"{late} more than {path}" if late else path
    if late == ASYNC:
        return "what is exchanged is applied when it has arrived, however late that is"
    if known.asynchronous:
        return f"what is exchanged is applied when it has arrived, at most {late} iterations after it was sent"
    if late == 0:
        return "0, what is exchanged is applied in its own iteration"
    each = "iteration" if late == 1 else "iterations"
    if figures.native_gradient(body) is not None:
        return f"{late}, gradients are applied {late} {each} after they were taken; nothing lands in the first {late}"
    return f"{late}, what is exchanged is applied {late} {each} after it was sent"


def _replicas(known: Facts) -> Iterator[str]:
    yield f"  replicas: {AGREEMENT[known.agreement]}"
    if len(known.by_phase) > 1 and known.consensus:
        of = {"static": "identical", "replicated": "identical", "local": "different"}
        phases = (f"{name or 'afterwards'} {of[what]}" for name, what in known.by_phase)
        yield f"    by phase: {', '.join(phases)}"
    if known.consensus:
        yield f"  {CONSENSUS}"


def _topologies(body: Body, drawn: Sequence[int]) -> Iterator[str]:
    found = dict.fromkeys(e.topology for e in figures.all_exchanges(body) if e.topology is not None)
    mixed = {e.topology for e in figures.all_exchanges(body) if e.kind == "mix"}
    above = facts_of(body).above
    for topology in found:
        late = rounds_late(body) if topology in mixed else 0
        for count in drawn:
            yield from _topology(figures.taken(topology, count), count, late, above)
            yield from _near(body, topology, count)


def _topology(topology: Topology, workers: int, late: int, above: float) -> Iterator[str]:
    from relaxc.topology.drawing import draw
    from relaxc.topology.spectrum import connected, smallest_eigenvalue, spectral_gap

    yield f"  {print_topology(topology)} of {workers} workers:"
    why = refusal(topology, workers)
    if why is not None:
        yield f"    there is none: {why}"
        return
    yield from (f"    {line}" for line in draw(topology, workers).splitlines())
    if connected(topology, workers):
        yield f"    spectral gap {spectral_gap(topology, workers):.3f} (1 is the exact mean, 0 is no mixing)"
        yield from (f"    {line}" for line in _left_over(topology, workers))
    else:
        yield "    not connected: what some workers know never reaches others"
    if -1 < above < 1:
        lowest = f"smallest eigenvalue {round(smallest_eigenvalue(topology, workers), 3) + 0.0:.3f}"
        yield f"    {lowest}; what workers disagree about dies out above {above:.3f}"
    if late:
        spread = 1 - smallest_eigenvalue(topology, workers)
        bound = f"weights mixed {late} rounds late are stable below {stable_below(late):.3f}"
        yield f"    1 - lambda_min(W) {spread:.3f}; {bound}"


def _left_over(topology: Topology, workers: int) -> Iterator[str]:
    """What a period of rounds comes to, where the gap doesn't say it."""
    from relaxc.topology.spectrum import exact, left_over

    rounds = pattern(topology, workers)
    after = "1 round" if rounds == 1 else f"{rounds} rounds"
    if exact(topology, workers):
        yield f"exact mean after {after}"
    elif rounds > 1:
        most = "on average" if period(topology, workers) is None else "at most"
        yield f"{100 * left_over(topology, workers):.3g} % of a disagreement left after {after}, {most}"


def _near(body: Body, topology: Topology, workers: int) -> Iterator[str]:
    """A rule of thumb: local steps of size s keep neighbours within about 2 s / gap of each other."""
    from relaxc.program.near import largest_distance
    from relaxc.topology.spectrum import connected, spectral_gap

    if refusal(topology, workers) is not None or not connected(topology, workers):
        return
    for codec in figures.near_codecs(body, topology):
        if (reach := largest_distance(codec)) is not None:
            bound = reach * spectral_gap(topology, workers) / 2
            yield f"    note[RX0366]: {codec.text} is right while neighbours differ by less than {reach:.3g};"
            yield f"    learning rate x gradient x iterations between exchanges should stay below about {bound:.2g}"


# --- figures


def _table(body: Body, paths: PathBody, phase: str, workers: Sequence[int]) -> Iterator[str]:
    when = f" in phase {phase}" if phase else ""
    sent = figures.sent_in(body, phase)
    shape = ", in one square matrix" if any(each.exchange.rank for each in sent) else ""
    yield f"  per million f32 parameters{shape} and worker{when}:"
    yield "    workers   sent per iteration   of f32   memory   roundings"
    missing = _refused(body, workers)
    for count in (c for c in workers if c not in missing):
        size, known = figures.per_iteration(body, phase, count)
        plain = round(2 * (count - 1) / count * figures.MILLION * figures.REAL_BYTES)
        share = f"{100 * size / plain:.0f} %" if plain else "-"
        kept = megabytes(figures.memory_bytes(body, paths, count).total)
        rounded = max((figures.roundings(each, count) for each in sent), default=0)
        amount = megabytes(size) if known else f"up to {megabytes(size)}"
        yield f"    {count:>7}   {amount:>18}   {share:>6}   {kept:>6}   {rounded:>9}"
    for count in (c for c in workers if c not in missing):
        for inner, (far, near) in figures.machines(body, count).items():
            amounts = f"{megabytes(round(far))} across machines and {megabytes(round(near))} within, each time"
            yield f"    {count:>7}   in machines of {inner}: {amounts}"
    for count, why in missing.items():
        yield f"    {count:>7}   {why}"


def _refused(body: Body, workers: Sequence[int]) -> dict[int, str]:
    """The numbers of workers that some topology or route does not have, and why."""
    exchanges = figures.all_exchanges(body)
    topologies = [e.topology for e in exchanges if e.topology is not None]
    missing = {n: why for n in workers for e in exchanges if (why := figures.route_refusal(e, n)) is not None}
    refused = {(n, topology): refusal(figures.taken(topology, n), n) for n in workers for topology in topologies}
    return missing | {n: why for (n, _), why in refused.items() if why is not None}


def megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count else "0"
