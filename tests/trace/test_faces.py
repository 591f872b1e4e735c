"""`relaxc compile --model --sample` and `relaxc.compile(model=, sample=)`: the profile is in the plan, what was found is
said, and where something fails nothing is written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import relaxc
from relaxc import cli
from relaxc.build.plan_files import read_plan
from relaxc.errors import ModelError
from relaxc.schedule.profile_file import PROFILE, read_profile

SPEC = "relax gradients\n"
MODELS = """
import torch
from torch import nn

def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
    def forward(self, x):
        return self.inner(x) + torch.zeros(3)

class Silent(Broken):
    def forward(self, x):
        return self.inner(x).argmax()

def raises():
    return mlp().absent

def number():
    return 7

made = mlp()
batch = (torch.ones(4, 8),)

def no_batch():
    return batch[1]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "users_models.py").write_text(MODELS)
    (tmp_path / "s.relax").write_text(SPEC)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "users_models", raising=False)
    return tmp_path


def compiled(model: str, sample: str | None) -> int:
    given = [] if sample is None else ["--sample", sample]
    return cli.status(["compile", "s.relax", "--model", f"users_models:{model}", *given, "-o", "plan"])


def line(text: str) -> str:
    number = next(n for n, written in enumerate(MODELS.splitlines(), 1) if text in written)
    return f"users_models.py:{number})"


@pytest.mark.parametrize("sample", ["f32[4,8]", "users_models:batch"])
def test_a_plan_with_a_sample_holds_its_profile(folder: Path, capsys: pytest.CaptureFixture[str], sample: str) -> None:
    assert compiled("mlp", sample) == 0
    read_plan(folder / "plan")  # profile.json is one of its files
    profile = read_profile(folder / "plan")
    assert profile is not None and profile.how == "torch.fx"
    assert [p.name for p in profile.parameters] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    out, err = capsys.readouterr()
    assert out.startswith("plan: compiled s.relax\ntraced by torch.fx on cpu: forward ")
    assert "  0.weight  gradient at " in out
    assert "traced" not in err


def test_without_a_sample_there_is_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compiled("made", None) == 0  # a model itself, which could be called
    assert not (folder / "plan" / PROFILE).exists() and "traced" not in capsys.readouterr().out
    assert cli.status(["compile", "s.relax", "--sample", "f32[4,8]", "-o", "other"]) == 2
    assert "--model" in capsys.readouterr().err and not (folder / "other").exists()


@pytest.mark.parametrize(
    ("model", "sample", "code", "said"),
    [
        ("raises", "f32[4,8]", "RX0420", line("mlp().absent")),
        ("absent", "f32[4,8]", "RX0420", "has no attribute 'absent'"),
        ("number", "f32[4,8]", "RX0420", "gives a int, not a torch.nn.Module"),
        ("mlp", "users_models:no_batch", "RX0421", line("batch[1]")),
        ("mlp", "4,8", "RX0423", "'4,8' is no sample"),
        ("mlp", "f32[4,9]", "RX0422", "the model failed on the sample: RuntimeError: mat1 and mat2"),
        ("mlp", "f32[4,8],f32[4]", "RX0422", "TypeError: "),
        ("Broken", "f32[4,8]", "RX0422", line("torch.zeros(3)")),
        ("Silent", "f32[4,8]", "RX0424", "no output of the model needs a gradient"),
    ],
)
def test_what_fails_is_said_and_nothing_written(
    folder: Path, capsys: pytest.CaptureFixture[str], model: str, sample: str, code: str, said: str
) -> None:
    assert compiled(model, sample) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"error[{code}]: ") and said in err and "\n  = help: " in err
    assert not (folder / "plan").exists()


def test_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    before = torch.get_rng_state()
    plan = relaxc.compile(SPEC, model=model, sample=(torch.ones(4, 8),))
    assert [p.name for p in plan.manifest.parameters or ()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert "relaxc: traced by torch.fx on cpu: forward " in capsys.readouterr().err
    assert torch.equal(torch.get_rng_state(), before) and model[0].weight.grad is None
    with pytest.raises(ModelError) as caught:
        relaxc.compile(SPEC, sample=(torch.ones(4, 8),))
    assert caught.value.code == "RX0421"


def test_the_cached_plan_is_of_its_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever makes a schedule of a profile finds the one that this plan was made with."""
    from relaxc import pipeline
    from relaxc.language.source import Source
    from relaxc.schedule.profile import Profile

    monkeypatch.setenv("RELAXC_CACHE", str(tmp_path))
    spec = pipeline.to_spec(Source("<text>", SPEC), {})
    profiles = (None, Profile(1.0, 2.0, 3.0, (), "recorded"), Profile(1.0, 2.5, 3.0, (), "recorded"))
    folders = [pipeline.build(spec, {}, "s", None, profile=profile) for profile in profiles]
    assert len(set(folders)) == 3 and tuple(map(read_profile, folders)) == profiles
    assert pipeline.build(spec, {}, "s", None, profile=profiles[1]) == folders[1]


def test_a_compile_without_a_sample_loads_no_tracer(folder: Path) -> None:
    import subprocess

    program = (
        "import sys; from relaxc import cli; assert cli.status(['compile', 's.relax', '-o', 'quick']) == 0;"
        "print(sorted({'torch', 'relaxc.schedule.trace'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stderr.splitlines()[-1] == "[]"
