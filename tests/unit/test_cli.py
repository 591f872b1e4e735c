"""The command line: what is printed where, exit statuses, and what is not imported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from relaxc import __version__, cli, cli_spec, resources
from relaxc.errors import BuildError

GOOD = "relax gradients { compress = 8bit }\n"
BAD = "relax gradients { compress = 7bit, delay = -1 }\n"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.relax"
    path.write_text(GOOD)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.relax"
    path.write_text(BAD)
    return path


def relaxc(*arguments: object, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "relaxc", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, env={**os.environ, **environment})


def test_check(good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.status(["check", str(good)]) == 0
    assert capsys.readouterr() == (f"{good}: ok\n", "")
    assert cli.status(["check", str(good), str(bad)]) == 1
    out, err = capsys.readouterr()
    assert out == f"{good}: ok\n"
    assert re.findall(r"^error\[(RX\d+)\]", err, re.MULTILINE) == ["RX0201", "RX0203"]
    assert f" --> {bad}:1:30\n" in err


def test_warnings_leave_status_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.relax"
    path.write_text("param a = 1\nrelax gradients\n")
    assert cli.status(["check", str(path)]) == 0
    assert "warning[RX0110]" in capsys.readouterr().err


def test_json_is_all_that_is_printed(good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.status(["check", "--json", str(good), str(bad)]) == 1
    out, err = capsys.readouterr()
    assert [d["code"] for d in json.loads(out)] == ["RX0201", "RX0203"] and err == ""
    assert cli.status(["check", "--json", str(good)]) == 0
    assert json.loads(capsys.readouterr().out) == []


TYPED = "algorithm a() {{ step every {period} {{ weight = mean(weight) }} }}\nrelax with a\n"


def test_check_is_the_whole_front_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.relax"
    path.write_text(TYPED.format(period="rank"))
    assert cli.status(["check", str(path)]) == 1
    assert "error[RX0310]" in capsys.readouterr().err
    path.write_text("relax weights { topology = ring, every = 2 }\n" + TYPED.format(period="2").split("\n")[0])
    assert cli.status(["check", str(path)]) == 0
    path.write_text("algorithm a() { grad = mix(grad, ring) step }\nrelax with a\n")
    assert cli.status(["check", str(path)]) == 0
    assert "warning[RX0332]" in capsys.readouterr().err


def test_explain(tmp_path: Path) -> None:
    path = tmp_path / "t.relax"
    path.write_text("relax weights { topology = ring }\n")
    plain, drawn = relaxc("explain", path), relaxc("explain", path, "--workers", 5)
    assert plain.returncode == drawn.returncode == 0
    assert b"weight += mix(weight, ring" in plain.stdout and b"spectral gap" not in plain.stdout
    assert b"0 - 1 - 2 - 3 - 4 - (0)" in drawn.stdout and b"spectral gap 0.461" in drawn.stdout
    path.write_text(TYPED.format(period="rank"))
    wrong = relaxc("explain", path)
    assert wrong.returncode == 1 and b"RX0310" in wrong.stderr and wrong.stdout == b""


def test_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.relax"
    path.write_text("param width = 4bit\nrelax gradients { compress = width }\n")
    assert cli.status(["check", str(path), "--set", "width=2bit"]) == 0
    assert cli.status(["check", str(path), "--set", "width=3bit"]) == 1
    assert "`width` is 3bit, set by --set" in capsys.readouterr().err
    assert cli.status(["check", str(path), "--set", "width"]) == 2
    assert "NAME=VALUE" in capsys.readouterr().err


def test_color(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.status(["check", "--color", "always", str(bad)])
    assert "\x1b[1;31m" in capsys.readouterr().err
    cli.status(["check", str(bad)])
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "format"])
def test_what_cant_be_read_is_one_sentence(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (str(tmp_path / "absent"), str(tmp_path), "a\0b"):
        assert cli.status([command, name]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("relaxc: can't read ") and err.count("\n") == 1


def test_specs_of_the_library_go_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of that name counts first. `format` writes, so it takes files only."""
    monkeypatch.chdir(tmp_path)
    assert cli.status(["check", "bytegrad"]) == 0
    assert capsys.readouterr().out.endswith("specs/bytegrad.relax: ok\n")
    (tmp_path / "bytegrad").write_text(BAD)
    assert cli.status(["check", "bytegrad"]) == 1
    for name, said in (("byte_grad", ": did you mean `bytegrad`?"), ("nothing_alike", "")):
        with pytest.raises(cli_spec.UsageError) as caught:
            cli_spec.named(name)
        assert str(caught.value) == f"there is no file '{name}', and the library has no spec of that name{said}"
    with pytest.raises(cli_spec.UsageError, match="can't read 'choco'"):
        cli_spec.format_(["choco"])


def test_usage_is_status_2() -> None:
    for arguments in (["check"], ["check", "--what"], ["format", "--check", "--write", "a"], ["no-such-command"]):
        done = relaxc(*arguments)
        assert done.returncode == 2 and b"Traceback" not in done.stderr


def test_format_prints(bad: Path, tmp_path: Path) -> None:
    assert relaxc("format", bad).stdout == BAD.encode()
    done = relaxc("format", "-", stdin="relax gradients  # \u00fc".encode(), LC_ALL="C", PYTHONUTF8="0")
    assert (done.returncode, done.stdout) == (0, "relax gradients  # \u00fc\n".encode())


def test_format_checks_and_writes(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "loose.relax"
    path.write_text("relax   gradients{}")
    path.chmod(0o640)
    assert cli.status(["format", "--check", str(path), str(good)]) == 1
    assert capsys.readouterr().out == f"{path}: would change\n"
    assert cli.status(["format", "--write", str(path)]) == 0
    assert path.read_text() == "relax gradients { }\n" and path.stat().st_mode & 0o777 == 0o640
    assert cli.status(["format", "--check", str(path)]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["good.relax", "loose.relax"]


def test_a_broken_spec_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "b.relax"
    path.write_text("relax gradients {")
    assert cli.status(["format", "-w", str(path)]) == 1
    assert path.read_text() == "relax gradients {"


def test_a_bug_is_status_70_with_a_dump(
    good: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("of ours")

    monkeypatch.setattr(cli_spec, "checked", broken)
    assert cli.status(["check", str(good)]) == 70
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "RuntimeError: of ours" in err
    dump = Path(err.split()[-1])
    assert "Traceback" in dump.read_text()
    dump.unlink()


def test_what_is_missing_is_status_1(
    good: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(*_: object) -> None:
        raise BuildError("RX0501", "no compiler", "install g++")

    monkeypatch.setattr(cli_spec, "checked", absent)
    assert cli.status(["check", str(good)]) == 1
    assert capsys.readouterr().err == "error[RX0501]: no compiler\n  = help: install g++\n"


def test_version_and_help() -> None:
    assert relaxc("--version").stdout == f"relaxc {__version__}\n".encode()
    shown = relaxc("--help").stdout
    assert b"check" in shown and b"format" in shown


def test_a_closed_pipe_is_no_traceback() -> None:
    done = subprocess.run(
        f"{sys.executable} -m relaxc format {' '.join([str(resources.folder('specs') / 'fp16.relax')] * 2000)} | head -c 10",
        shell=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.stderr == b""


@pytest.mark.parametrize("text", [GOOD, "relax with choco { topology = torus, gamma = 0.1 }\n"])
@pytest.mark.parametrize("command", ["check", "format"])
def test_imports(command: str, text: str, good: Path) -> None:
    """What would make a save of a file slow is not imported."""
    good.write_text(text)
    program = (
        f"import sys; from relaxc import cli; assert cli.status([{command!r}, {str(good)!r}]) == 0;"
        "print(*sorted({'torch', 'numpy', 'networkx', 'jinja2', 'typer', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stderr == b"\n"


def test_a_cluster_says_how_many_workers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.relax"
    path.write_text(
        "cluster { workers = 6, per_machine = 2, bandwidth = 10Gbps }\nrelax weights { topology = hypercube }\n"
    )
    assert cli.status(["check", str(path)]) == 1
    assert "hypercube" in capsys.readouterr().err
    assert cli.status(["check", "--workers", "8", str(path)]) == 0
    capsys.readouterr()
    path.write_text(path.read_text().replace("hypercube", "ring"))
    with pytest.raises(SystemExit):
        cli.status(["explain", str(path)])
    out = capsys.readouterr().out
    assert f"network: 10 Gbit/s, 50 us, 6 workers, 2 a machine (the cluster in {path}:1)" in out
    assert "ring of 6 workers" in out
