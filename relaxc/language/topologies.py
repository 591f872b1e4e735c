"""From the value of `topology` to a graph as data. Whether it serves a number of workers is for relaxc/topology to
say."""

from __future__ import annotations

from pathlib import Path

from relaxc.language import format, syntax
from relaxc.language.report import Report
from relaxc.language.source import Source, decode
from relaxc.language.unbuilt import refuse
from relaxc.language.vocabulary import TOPOLOGIES
from relaxc.language.words import clipped, did_you_mean, listed
from relaxc.topology.topology import OF_A_FILE, Topology
from relaxc.wire.routes import ROUTES

LINES = {
    "edges": "write an edge a line, and its weight if you like: 0 1 0.25",
    "arrows": "write an arrow a line, sender and receiver, and the sender's weight if you like: 0 1 0.25",
}
EXAMPLE = "write a topology such as ring, torus or lazy(ring)"


def plain(e: syntax.Expression, report: Report) -> Topology | None:
    """The topology that the folded expression `e` names, where it is none of WRAPPERS; None after a mistake."""
    if not isinstance(e, syntax.Name | syntax.Call) or not is_known(e, report):
        if not isinstance(e, syntax.Name | syntax.Call):
            report.error("RX0212", f"`{_shown(e)}` is not a topology", e.span, help=EXAMPLE)
        return None
    if name_of(e) in OF_A_FILE:
        return _of_a_file(e, report)
    if isinstance(e, syntax.Call) and (e.arguments or e.keywords):
        report.error("RX0107", f"too many arguments for {e.function}", e.span, f"{e.function} takes no arguments")
        return None
    return Topology(name_of(e))


def name_of(e: syntax.Name | syntax.Call) -> str:
    return e.name if isinstance(e, syntax.Name) else e.function


def is_known(e: syntax.Name | syntax.Call, report: Report) -> bool:
    """Whether `e` names a topology of this version; if not, that is reported."""
    name = name_of(e)
    if refuse(report, f"topology {name}", e.span):
        return False
    if name in TOPOLOGIES:
        return True
    label = "a route, which is for means" if name in ROUTES else ""
    help_ = did_you_mean(name, TOPOLOGIES) or f"topologies are {listed(TOPOLOGIES, 'and')}"
    report.error("RX0212", f"no topology `{clipped(name)}`", e.span, label, help_)
    return False


def inner(e: syntax.Name | syntax.Call, report: Report) -> syntax.Expression | None:
    """The only argument of one of WRAPPERS; None after a mistake."""
    if isinstance(e, syntax.Call) and len(e.arguments) == 1 and not e.keywords:
        return e.arguments[0]
    message = f"`{name_of(e)}` is made of another topology"
    report.error("RX0107", message, e.span, help=f"write {name_of(e)}(ring)")
    return None


# --- a file of edges or arrows


def _of_a_file(e: syntax.Name | syntax.Call, report: Report) -> Topology | None:
    arguments = e.arguments if isinstance(e, syntax.Call) and not e.keywords else ()
    if len(arguments) != 1 or not isinstance(arguments[0], syntax.String):
        name = name_of(e)
        report.error("RX0107", f"`{name}` takes the name of a file", e.span, help=f'write {name}("links.txt")')
        return None
    text = _text(name_of(e), arguments[0], e.span.source, report)
    return None if text is None else _of_text(name_of(e), text, arguments[0], report)


def _text(kind: str, name: syntax.String, source: Source, report: Report) -> str | None:
    path = Path(source.name).parent / name.value
    try:
        if path.is_file() or not path.exists():
            return decode(path.read_bytes())
        reason = "not a file"  # a device may have no end
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).lower()
    report.error("RX0213", f"can't read the {kind} in {clipped(name.value)!r}: {reason}", name.span,
                 help="its name is relative to the folder of the spec")  # fmt: skip
    return None


def _of_text(kind: str, text: str, name: syntax.String, report: Report) -> Topology | None:
    from relaxc.topology.arrows import arrows_of_text
    from relaxc.topology.edges import EdgesError, edges_of_text

    try:
        return Topology(kind, edges_of_text(text) if kind == "edges" else arrows_of_text(text))
    except EdgesError as error:
        message = f"line {error.line} of {clipped(name.value)!r}: {clipped(error.message, 100)}"
        report.error("RX0213", message, name.span, help=LINES[kind])
        return None


def _shown(e: syntax.Expression) -> str:
    return clipped(format.expression(e))
