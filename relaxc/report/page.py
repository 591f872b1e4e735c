"""A report as one page of HTML that needs nothing else: lanes, buckets that open to their parameters, and reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template

from relaxc.report.buckets import BucketRow
from relaxc.report.chart import summary
from relaxc.report.compare import errors
from relaxc.report.lanes import drawing
from relaxc.report.times import shown
from relaxc.schedule.profile import ParameterTimes
from relaxc.schedule.timeline import Timeline

TEMPLATE = Path(__file__).with_name("page.html")


@dataclass(frozen=True)
class Report:
    """`facts` are lines under the title. `codec_reasons` are by the number of a bucket, `moments` of exchanges.
    `doubts` say what the figures don't hold for."""

    title: str
    facts: Sequence[str]
    predicted: Timeline
    buckets: Sequence[BucketRow]
    codec_reasons: Mapping[int, str] = field(default_factory=dict)
    moments: Sequence[str] = ()
    doubts: Sequence[str] = ()
    measured: Timeline | None = None


def page(report: Report) -> str:
    timelines = {"predicted": report.predicted}
    if report.measured is not None:
        timelines["measured"] = report.measured
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(report.title),
        facts="".join(f"<li>{escape(fact)}</li>" for fact in report.facts),
        doubts="".join(f'<p class="doubt">{escape(doubt)}</p>' for doubt in report.doubts),
        summary=_table(("", "predicted"), summary(report.predicted)),
        comparison=_comparison(report),
        lanes=drawing(timelines, [row.number for row in report.buckets]),
        buckets="".join(_bucket(row, report.codec_reasons.get(row.number)) for row in report.buckets),
        reasons="".join(f"<li>{escape(reason)}</li>" for reason in _reasons(report)),
    )


def _reasons(report: Report) -> Iterator[str]:
    bound = report.predicted.bound
    yield f"bound by {bound}: it is busy longest, so a change elsewhere saves little" + (
        "" if bound != "compute" else "; the exchange hides behind the computation"
    )
    grouped: dict[str, list[int]] = {}
    for number, reason in report.codec_reasons.items():
        grouped.setdefault(reason, []).append(number)
    for reason, numbers in grouped.items():
        word = "bucket" if len(numbers) == 1 else "buckets"
        yield f"{word} {', '.join(map(str, numbers))}: {reason}"
    yield from report.moments


def _comparison(report: Report) -> str:
    if report.measured is None:
        return ""
    rows = (
        (e.what, shown(e.predicted), shown(e.measured), "" if e.share is None else f"{e.share:+.0%}")
        for e in errors(report.predicted, report.measured)
    )
    table = _table(("lane", "predicted", "measured", "error"), rows)
    return f'<section id="errors"><h2>Predicted against measured</h2>{table}</section>'


def _bucket(row: BucketRow, reason: str | None) -> str:
    lanes = ", ".join(f"{lane} {shown(seconds)}" for lane, seconds in row.lanes if seconds)
    count = len(row.parameters)
    head = (
        f"<b>bucket {row.number}</b> {escape(row.what)} <code>{escape(row.codec)}</code> "
        f"<span>{count} parameter{'s' if count != 1 else ''}, {row.elements:,} elements; {lanes or 'no time'}</span>"
    )
    why = f"<p>{escape(reason)}</p>" if reason else ""
    table = _table(("parameter", "shape", "gradient ready", "weight needed"), (_parameter(p) for p in row.parameters))
    return (
        f'<details id="bucket-{row.number}" data-bucket="{row.number}"><summary>{head}</summary>'
        f"<p><code>{escape(row.statement)}</code></p>{why}{table}</details>"
    )


def _parameter(parameter: ParameterTimes) -> tuple[str, ...]:
    ready = "never" if parameter.ready is None else f"{shown(parameter.ready)} into backward"
    needed = "never" if parameter.needed is None else f"{shown(parameter.needed)} into forward"
    return parameter.name, " × ".join(map(str, parameter.shape)) or "a number", ready, needed


def _table(heads: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
