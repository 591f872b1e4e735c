"""explain, report and tune on a model: what they print and write, and what they refuse."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from relaxc import cli
from relaxc.manifest import decode
from relaxc.schedule.timeline import Span, Timeline
from relaxc.schedule.timeline_file import TimelineFile, write_timeline

MODEL = """
from torch import nn

def model():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

def leaves():
    raise SystemExit(0)

class Leaving(nn.Linear):
    def forward(self, x):
        raise SystemExit(3)

def leaving():
    return Leaving(16, 4)
"""
ON = ["--model", "toy_to_predict:model", "--sample", "f32[8,16]"]
NETWORK = ["--network", "1Gbps, 100us"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "toy_to_predict.py").write_text(MODEL)
    (tmp_path / "s.relax").write_text("relax gradients { compress = 4bit }\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "toy_to_predict", raising=False)
    return tmp_path


def status(*arguments: str) -> int:
    try:
        return cli.status(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)


def test_explain_predicts_for_each_number_of_workers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("explain", "s.relax", *ON, *NETWORK, "--workers", "2", "--workers", "4") == 0
    out = capsys.readouterr().out
    assert out.count("without an exchange") == 2 and "predicted: 2 workers over" in out
    assert [line.split()[0] for line in out.splitlines() if "│" in line] == ["compute", "encode", "link", "decode"] * 2


def test_explain_of_a_spec_alone_predicts_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("explain", "s.relax") == 0
    assert "predicted" not in capsys.readouterr().out


def test_a_cluster_in_the_spec_is_network_enough(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "cluster { workers = 4, bandwidth = 10Gbps, latency = 50us }\nrelax gradients\n"
    (folder / "c.relax").write_text(text)
    assert status("explain", "c.relax", *ON) == 0
    assert "predicted: 4 workers" in capsys.readouterr().out
    assert status("explain", "c.relax", *ON, "--workers", "2") == 1
    assert "error[RX0442]: the cluster in c.relax:1 is of 4 workers, not of 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explain", "s.relax", "--model", "toy_to_predict:model", *NETWORK], "give --model and --sample"),
        (["explain", "s.relax", *ON, "--workers", "2"], "no network"),
        (["explain", "s.relax", *ON, *NETWORK], "no number of workers"),
        (["tune", "s.relax", *NETWORK], "give --model and --sample"),
        (["tune", "s.relax", *ON, *NETWORK, "--workers", "2", "-o", "map.png"], "FILE.svg"),
        (["tune", "s.relax", *ON, *NETWORK, "--workers", "2", "--quick", "-o", "map.svg"], "--quick makes no map"),
        (["tune", "s.relax", *ON, *NETWORK, "--workers", "2", "--grid", "compress"], "--grid takes NAME=VALUE"),
        (["tune", "s.relax", *ON, *NETWORK, "--workers", "2", "--grid", "compress=7bit"], "no variant is possible"),
    ],
)
def test_what_is_missing_is_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert status(*arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["compile", "s.relax", *ON, *NETWORK, "--workers", "-4"], 2, "takes a number from 1 to 1048576"),
        (["compile", "s.relax", *ON, *NETWORK, "--workers", "0"], 2, "takes a number from 1 to 1048576"),
        (["compile", "s.relax", *ON, *NETWORK, "--workers", "100000000"], 2, "takes a number from 1 to 1048576"),
        (["explain", "s.relax", "--workers", "100000000"], 2, "takes a number from 1 to 1048576"),
        (["tune", "s.relax", *ON, *NETWORK, "--workers", "100000000"], 2, "1048576"),
        (["explain", "s.relax", *ON, "--network", "fast", "--workers", "2"], 1, "RX0440"),
        (["compile", "s.relax", "--model", "toy_to_predict:leaves"], 1, "error[RX0420]: toy_to_predict:leaves failed: SystemExit"),
        (["compile", "s.relax", "--model", "toy_to_predict:leaving", "--sample", "f32[8,16]"], 1,
         "error[RX0422]: the model failed on the sample: SystemExit"),
        (["compile", "s.relax", "--model", "toy_to_predict:model", "--sample", "f32[0,16]"], 1, "has no element"),
        (["compile", "s.relax", "--target", "cuda", "--arch", ""], 1, "RX053"),
        *(([command, "s.relax", *ON, "--network", "1Gbps, per_machine=3", "--workers", "16"], 1,
           "error[RX0442]: 16 workers don't fill machines of 3") for command in ("compile", "explain", "tune")),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_before_anything_is_printed_or_written(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    before = sorted(folder.iterdir())
    assert status(*arguments) == code
    heard = capsys.readouterr()
    assert said in " ".join(heard.err.split())
    assert "predicted" not in heard.out
    assert [path for path in sorted(folder.iterdir()) if path.name != "__pycache__"] == before


def test_neither_a_page_nor_a_trace_is_written_where_one_cant_be(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan(folder)
    assert status("report", "plan", *NETWORK, "--workers", "2", "-o", "r.html", "--trace", "no/t.json") == 2
    assert "can't write 'no/t.json'" in capsys.readouterr().err
    assert not (folder / "r.html").exists()


def plan(folder: Path) -> Path:
    assert status("compile", "s.relax", *ON, "-o", "plan") == 0
    return folder / "plan"


def measured(folder: Path, **changes: object) -> None:
    manifest = decode((plan(folder) / "manifest.json").read_bytes())
    spans = (Span("compute", 0.0, 0.01, "forward"), Span("link", 0.01, 0.02, "", 0))
    file = TimelineFile(Timeline(spans, 0.02, 0.01, "link"), "measured", manifest.spec, manifest.hash, 2, 0, 5)
    write_timeline(folder / "measured.json", replace(file, **changes))


def test_a_report_is_a_page_and_a_trace(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(folder)
    assert status(
        "report", "plan", *NETWORK, "--workers", "2", "-o", "r.html", "--measured", "measured.json", "--trace", "t.json"
    ) == 0  # fmt: skip
    assert "r.html: s, 2 workers over" in capsys.readouterr().out
    page = (folder / "r.html").read_text()
    assert "Predicted against measured" in page and 'data-name="measured"' in page
    assert "4bit here: none would" in page and "0.weight" in page
    names = {e["args"]["name"] for e in json.loads((folder / "t.json").read_text())["traceEvents"] if e["ph"] == "M"
             and e["name"] == "process_name"}  # fmt: skip
    assert names == {"predicted", "measured"}


def test_a_fitted_plan_says_what_it_was_fitted_to(folder: Path) -> None:
    assert status("compile", "s.relax", *ON, *NETWORK, "--workers", "2", "-o", "fitted") == 0
    assert status("report", "fitted", *NETWORK, "--workers", "2") == 0
    assert "buckets are fitted to this model, for 2 workers over" in (folder / "report.html").read_text()
    plan(folder)
    assert status("report", "plan", *NETWORK, "--workers", "2") == 0
    assert "buckets are closed when full" in (folder / "report.html").read_text()


@pytest.mark.parametrize("changes", [{"hash": "other"}, {"workers": 3}])
def test_what_was_measured_with_something_else_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object]
) -> None:
    measured(folder, **changes)
    assert status("report", "plan", *NETWORK, "--workers", "2", "--measured", "measured.json") == 1
    assert "error[RX0523]" in capsys.readouterr().err
    assert not (folder / "report.html").exists()


def test_a_plan_without_a_profile_has_no_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("compile", "s.relax", "-o", "bare") == 0
    assert status("report", "bare", *NETWORK, "--workers", "2") == 1
    assert "error[RX0522]: the plan bare has no profile" in capsys.readouterr().err


def test_tune_ranks_and_draws(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = ["--grid", "compress=none,4bit", "--grid", "route=all", "--grid", "delay=0"]
    assert status("tune", "s.relax", *ON, *NETWORK, "--workers", "2", *grid, "-o", "map.svg") == 0
    out = capsys.readouterr().out
    rows = [line for line in out.splitlines() if line.lstrip("-> ").startswith("compress =")]
    assert len(rows) == 2 and sum(row.startswith("->") for row in rows) == 1
    assert "what pays on which network" in out and "at a latency of 100 us" in out
    assert (folder / "map.svg").read_text().startswith("<svg")


def test_compile_says_which_route_it_chose_and_writes_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Few bytes, and messages that take long: so everyone tells everyone at once."""
    far = ["--network", "1Gbps, 5ms", "--workers", "4", "-o", "plan"]
    (folder / "s.relax").write_text("relax gradients\n")
    assert status("compile", "s.relax", *ON, *far) == 0
    out = capsys.readouterr().out
    assert re.search(
        r"^route = auto: gather for \d+ parameters; predicted iteration: [\d.]+ ms, [\d.]+ ms by", out, re.MULTILINE
    )
    assert (folder / "plan" / "spec.relax").read_text() == "relax gradients { route = gather }\n"
    (folder / "s.relax").write_text("relax gradients { route = all }\n")
    assert status("compile", "s.relax", *ON, *far) == 0
    assert "route" not in capsys.readouterr().out


def test_compile_refuses_what_so_many_workers_cannot_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "s.relax").write_text("relax gradients { route = hierarchy(inner = 3) }\n")
    assert status("compile", "s.relax", *ON, *NETWORK, "--workers", "4", "-o", "plan") == 1
    err = capsys.readouterr().err
    assert "error[RX0376]: no hierarchy(inner = 3) of 4 workers" in err and "s.relax:1:27" in err
    assert not (folder / "plan").exists()
    assert status("compile", "s.relax", *ON, *NETWORK, "--workers", "6", "-o", "plan") == 0


def test_tune_says_where_no_compression_is_the_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Codecs cost time, and a link of 100 Tbit/s does not."""
    grid = ["--grid", "compress=none,4bit", "--grid", "route=all", "--grid", "delay=0"]
    fast = ["--network", "1000Gbps, 1us"]
    assert status("tune", "s.relax", *ON, *fast, "--workers", "2", *grid, "--quick") == 0
    assert "no compression is the answer here" in capsys.readouterr().out


def test_tune_shows_the_mistakes_of_a_spec(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.relax").write_text("relax gradients { compress = 7bit }\n")
    assert status("tune", "bad.relax", *ON, *NETWORK, "--workers", "2") == 1
    assert "error[RX0201]" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["explain"], ["tune", "--quick"], ["compile", "-o", "made"]])
def test_what_so_many_workers_cannot_do_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """Also where other statements leave something to be chosen."""
    (folder / "s.relax").write_text('relax weights for "0.*" { topology = hypercube }\nrelax gradients\n')
    assert status(*command, "s.relax", *ON, *NETWORK, "--workers", "6") in (1, 2)
    told = capsys.readouterr()
    assert "no hypercube of 6 workers" in told.out + told.err and "internal error" not in told.err
    assert not (folder / "made").exists()


@pytest.mark.parametrize("command", [["explain"], ["tune", "--quick"]])
def test_a_codec_that_is_left_open_is_chosen_as_compile_does(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    (folder / "s.relax").write_text("relax gradients { compress = auto }\n")
    assert status(*command, "s.relax", *ON, *NETWORK, "--workers", "4") == 0
    out = capsys.readouterr().out
    assert out.startswith("compress = auto: ") and "iteration" in out and "compress = auto)" not in out


def test_cores_are_at_least_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("compile", "s.relax", *ON, *NETWORK, "--workers", "4", "--cores", "0") == 2
    assert "--cores takes one or more" in capsys.readouterr().err


def test_what_was_set_stands_in_the_plans_text(folder: Path) -> None:
    """So that the text alone means what was compiled."""
    (folder / "p.relax").write_text(
        "param n = 5  # steps\nparam rate = 0.5\nrelax updates { every = n, rate = rate }\n"
    )
    assert status("compile", "p.relax", "--set", "n=2", "-o", "set") == 0
    text = (folder / "set" / "spec.relax").read_text()
    assert text == "param n = 2  # steps\nparam rate = 0.5\nrelax updates { every = n, rate = rate }\n"
    assert status("compile", "set/spec.relax", "-o", "again") == 0
    programs = [(folder / name / "program.relax").read_text() for name in ("set", "again")]
    assert programs[0] == programs[1] and "every 2" in programs[0]
