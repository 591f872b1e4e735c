"""What is drawn of a timeline: text, SVG, a trace, sentences; and the page in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from plans_of import free_network, manifest_of, profile_of

from relaxc.cli_report import codecs, exact
from relaxc.report.buckets import bucket_rows
from relaxc.report.chart import chart, summary
from relaxc.report.compare import errors
from relaxc.report.lanes import LEFT, WIDTH, drawing
from relaxc.report.page import Report, page
from relaxc.report.reasons import Other, codec_reason, moments, way_reasons
from relaxc.report.times import shown
from relaxc.report.trace import trace_events
from relaxc.schedule.cost import Cost
from relaxc.schedule.network import Line, Network
from relaxc.schedule.predict import Forecast
from relaxc.schedule.timeline import Span, Timeline

HALF = Timeline(
    (Span("compute", 0.0, 2.0, "forward"), Span("link", 1.0, 3.0, "", 0), Span("decode", 3.0, 4.0, "decode", 0)),
    4.0, 2.0, "compute",
)  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0"), (1.5, "1.5 s"), (0.0456, "45.6 ms"), (0.000789, "789 us"), (0.9999, "1 s"), (2e-7, "0.2 us")],
)
def test_times_have_three_figures(seconds: float, text: str) -> None:
    assert shown(seconds) == text


def test_a_chart_has_a_line_for_each_lane_and_fills_what_is_busy() -> None:
    compute, encode, link, decode, axis = chart(HALF, width=8).splitlines()
    assert compute == "  compute │████    │"
    assert encode == "  encode  │        │"
    assert link == "  link    │  ████  │"
    assert decode == "  decode  │      ██│"
    assert axis.endswith("4 s")


def test_a_column_is_as_dark_as_its_lane_is_busy() -> None:
    quarter = Timeline((Span("link", 0.0, 0.25, ""), Span("encode", 0.0, 0.001, "")), 1.0, 1.0, "link")
    lines = chart(quarter, width=1).splitlines()
    assert lines[2] == "  link    │░│"
    assert lines[1] == "  encode  │░│", "what is busy at all is not blank"


def test_a_summary_has_the_times_that_were_asked_for() -> None:
    told = dict(summary(HALF))
    assert (told["iteration"], told["without an exchange"], told["bound by"]) == ("4 s", "2 s", "compute")
    assert told["exposed"] == "2 s (50% of the iteration)"
    assert told["link busy"] == "2 s"


def test_boxes_stand_where_their_spans_do() -> None:
    drawn = drawing({"predicted": HALF})
    boxes = re.findall(
        r'<rect class="box (\w+)[^"]*" data-bucket="(-?\d+)" x="([\d.]+)" y="\S+" width="([\d.]+)"', drawn
    )
    assert boxes == [
        ("compute", "-1", f"{LEFT:.2f}", f"{WIDTH / 2:.2f}"),
        ("link", "0", f"{LEFT + WIDTH / 4:.2f}", f"{WIDTH / 2:.2f}"),
        ("decode", "0", f"{LEFT + WIDTH * 3 / 4:.2f}", f"{WIDTH / 4:.2f}"),
    ]


def test_two_timelines_share_an_axis() -> None:
    double = Timeline((Span("link", 0.0, 8.0, "", 0),), 8.0, 2.0, "link")
    drawn = drawing({"predicted": HALF, "measured": double})
    assert re.findall(r'<g class="timeline" data-name="(\w+)"', drawn) == ["predicted", "measured"]
    assert f'width="{WIDTH / 4:.2f}"' in drawn, "half of an iteration of 4 s is a quarter of 8 s"


def test_errors_are_shares_of_what_was_measured() -> None:
    found = {e.what: e.share for e in errors(HALF, Timeline((Span("link", 0.0, 4.0, "", 0),), 5.0, 2.0, "link"))}
    assert found["iteration"] == pytest.approx(-0.2)
    assert found["link"] == pytest.approx(-0.5)
    assert found["decode"] is None


def test_a_trace_has_a_thread_for_each_lane() -> None:
    events = json.loads(trace_events({"predicted": HALF, "measured": HALF}))["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert [(e["name"], e["pid"], e["ts"], e["dur"]) for e in spans[:3]] == [
        ("forward", 1, 0, 2e6), ("link", 1, 1e6, 2e6), ("decode", 1, 3e6, 1e6),
    ]  # fmt: skip
    assert spans[1]["args"] == {"bucket": 0} and spans[0]["args"] == {}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert threads[1, spans[1]["tid"]] == "link" and len(threads) == 8
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"predicted", "measured"}


def test_a_reason_says_what_would_be_saved_and_what_it_would_cost() -> None:
    bf16 = Cost(0.0005, 0.0010, 0.0002)
    told = codec_reason(
        "bf16", bf16, [Other("8bit", Cost(0.0010, 0.0007, 0.0002)), Other("none", Cost(0.0, 0.002, 0.0)),
                       Other("fp16", bf16)],
    )  # fmt: skip
    assert told == (
        "bf16 here: 8bit would save 300 us of link and cost 500 us of encode; "
        "none would save 500 us of encode and 200 us of decode and cost 1 ms of link; fp16 would cost the same"
    )


def told_of(text: str, network: Network, elements: int = 100_000) -> str:
    manifest = manifest_of(text)
    forecast = Forecast(manifest, profile_of([elements]), 4)
    given = {name: way for name, way in codecs().items() if name in ("none", "8bit")}
    told = way_reasons(manifest, forecast.schedule.buckets, forecast.parameters, 4, network, given, exact())
    assert told.keys() == {0}
    return told[0]


def test_a_bucket_is_compared_with_what_it_is_not() -> None:
    told = told_of("relax gradients { compress = 8bit }", free_network(1e-6))
    # 2 * 3/4 of 4 bytes against 1 and 2/512 of 4 for each of 100,000 elements, at 1 us a byte; and a little rounding.
    # By gather 3 codes leave in place of 2 * 3/4 of one.
    assert re.fullmatch(r"8bit here: none would cost 448 ms of link; route gather would cost 15\d ms of link", told), (
        told
    )


def test_a_route_is_told_of_and_compared_with_the_others() -> None:
    slow = free_network(0.0, 0.25)
    few = told_of("relax gradients { route = gather }", slow)
    assert few == (
        "none by gather here: 8bit would cost 250 ms of link; an all-reduce would cost 1.25 s of link; route ring would cost 1.25 s of link"
    )
    dense = told_of("relax gradients", slow)
    assert dense.startswith("none here: 8bit would save 1 s of link") and "route gather would save 1.25 s" in dense
    machines = replace(slow, per_machine=2, inner=Line(0.0, 0.0))
    assert "route hierarchy(inner = 2) would" not in told_of("relax gradients { route = hierarchy }", machines)
    assert "route hierarchy would" in told_of("relax gradients { compress = 8bit }", machines)


def test_why_exchanges_stand_where_they_do_is_told_once() -> None:
    told = list(moments(manifest_of("dpsgd")))
    assert len(told) == len(set(told)) == 2
    assert "when the iteration before has ended, the mix starts: " in told[0]


def a_report(text: str = "quickstart", **more) -> Report:
    manifest, profile = manifest_of(text), profile_of([1000, 2000])
    forecast = Forecast(manifest, profile, 2)
    timeline = forecast.over(free_network(1e-4))
    return Report(
        "a <b> & c", ["2 workers"], timeline, bucket_rows(manifest, profile, forecast, timeline), **more
    )  # fmt: skip


class Tags(HTMLParser):
    VOID = ("meta", "rect", "line", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag) -> None:
        if tag in self.VOID:
            return
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(text)
    parser.close()
    assert not parser.open
    return parser.found


@pytest.mark.parametrize("text", ["quickstart", "dpsgd", "choco", "delayed_sgd", "streaming_diloco"])
def test_a_page_needs_nothing_else_and_opens_every_bucket(text: str) -> None:
    found = tags(page(a_report(text, measured=HALF)))
    links = [value or "" for _, attributes in found for name, value in attributes.items() if name in ("src", "href")]
    assert all(link.startswith("#") for link in links)
    assert not [tag for tag, _ in found if tag in ("link", "img", "iframe")]
    buckets = {attributes["id"] for tag, attributes in found if tag == "details"}
    assert {f"#{bucket}" for bucket in buckets} >= set(links) != set()


def test_what_comes_from_outside_is_escaped() -> None:
    text = page(a_report(moments=["<script>alert(1)</script>"]))
    assert "<title>a &lt;b&gt; &amp; c</title>" in text
    assert "<script>alert" not in text


# --- in a browser

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
in_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")


def dom(text: str, script: str, folder: Path, fragment: str = "") -> str:
    """The page's DOM after its own scripts and `script`."""
    path = folder / "report.html"
    path.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               f"--user-data-dir={folder / 'profile'}", "--dump-dom", f"{path.as_uri()}{fragment}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def answer(text: str) -> dict[str, object]:
    found = re.search(r'data-answer="([^"]*)"', text)
    assert found is not None, text[-2000:]
    answered: dict[str, object] = json.loads(found[1].replace("&quot;", '"'))
    return answered


ASK = """
const faults = [];
addEventListener("error", (e) => faults.push(e.message));
const details = document.querySelector('#bucket-0'), link = document.querySelector('svg a[href="#bucket-0"]');
const before = details.open;
link.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
const box = link.querySelector(".box");
details.dispatchEvent(new MouseEvent("mouseenter"));
const lit = document.querySelectorAll(".box.lit").length, all = document.querySelectorAll('.box[data-bucket="0"]').length;
details.dispatchEvent(new MouseEvent("mouseleave"));
document.body.dataset.answer = JSON.stringify({
  before, after: details.open, lit, all, left: document.querySelectorAll(".box.lit").length, faults,
  seen: details.querySelector("table").getBoundingClientRect().height > 0,
  lanes: document.querySelectorAll("svg .row").length, wide: box.getBoundingClientRect().width > 0,
  rows: details.querySelectorAll("tbody tr").length,
});
"""


@in_chromium
def test_a_box_opens_its_bucket(tmp_path: Path) -> None:
    report = a_report(measured=HALF)
    found = answer(dom(page(report), ASK, tmp_path))
    assert found["before"] is False and found["after"] is True and found["seen"] and found["wide"]
    assert found["lit"] == found["all"] and found["lit"] and found["left"] == 0
    assert found["lanes"] == 8, "four predicted, four measured"
    assert found["rows"] == len(report.buckets[0].parameters)
    assert found["faults"] == []


@in_chromium
def test_a_link_to_a_bucket_finds_it_open(tmp_path: Path) -> None:
    ask = "document.body.dataset.answer = JSON.stringify({open: document.querySelector('#bucket-0').open});"
    assert answer(dom(page(a_report()), ask, tmp_path, "#bucket-0")) == {"open": True}
