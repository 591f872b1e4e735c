"""NVRTC makes a cubin of generated kernels of every kind for each architecture that a plan carries, without a GPU: no
spills, no local memory, no contraction, IEEE division and square root. NVRTC is a package, so nothing here is skipped."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import nvcc
import pytest

from relaxc import cli, pipeline
from relaxc.build import cubins, nvrtc
from relaxc.build.nvrtc import Compiled
from relaxc.emit.plan import Sources, emit
from relaxc.errors import BuildError
from relaxc.language.source import Source
from relaxc.resources import folder
from relaxc.wire.parameters import Parameter

F32 = (Parameter(0, "weight", (300, 7), "f32"),)
SAMPLE = {"bytegrad": None, "choco": F32, "one_bit_adam": F32, "topk": None, "moniqua": F32, "dgc": F32,
          "random_k": None, "natural": None, "demo": F32, "user": None}  # fmt: skip
"""The parameters of the model, None: kernels for all dtypes."""
FUSED = re.compile(r"\b(fma|mad)\.(rn|rz|rm|rp)?\.?(ftz\.)?f(16|32|64)")
ROUGH = re.compile(r"\b(div|sqrt|rcp)\.(approx|full)\S*|\brsqrt\.\S*")


OF_A_LIBRARY = {"user"}
"""Logarithms and powers, which NVIDIA's library makes of fused and rough operations."""
ELSEWHERE = """codec curved(bits = 5) {
  per block(96)
  send scale: f32 = max(abs(x))
  send level: int(bits) = sign(x) * round(exp(log(abs(x) / scale + 1) * 2) - 0.5)
  receive = scale * sign(level) * sqrt(abs(level)) / 2 ^ bits
}
algorithm user() {
  let mixed = mean(grad, compress = curved)
  state seen = 0
  seen = 0.9 * seen / 2 ^ logb(mixed) + log2(1 + exp(-abs(mixed))) ^ 1.5
  grad = where(seen > 0.1, mixed / (seen + 1), -mixed)
  step
}
relax with user
"""
"""A codec of a user's own, of operations that no spec of the library has."""


def emitted(name: str) -> Sources:
    source = Source(name, ELSEWHERE) if name == "user" else Source.read(folder("specs") / f"{name}.relax")
    typed = pipeline.to_typed(pipeline.to_spec(source, {}))
    return emit(typed.program, pipeline.to_paths(typed.program), typed.facts, name, SAMPLE[name])


@pytest.fixture(scope="module")
def made_of() -> dict[str, Sources]:
    return {name: emitted(name) for name in SAMPLE}


@pytest.fixture(scope="module")
def sources(made_of: dict[str, Sources]) -> dict[str, str]:
    return {name: made.cuda for name, made in made_of.items()}


@pytest.fixture(scope="module")
def symbols(made_of: dict[str, Sources]) -> dict[str, set[str]]:
    return {name: {launch.symbol for launch in made.manifest.launches} for name, made in made_of.items()}


def compiled(source: str, architecture: str, log: Path) -> Compiled:
    return cubins.compile_for(nvrtc.find(), source, architecture, log)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("architecture", cubins.ARCHITECTURES)
def test_every_kernel_compiles_without_spills(
    architecture: str, sources: dict[str, str], symbols: dict[str, set[str]], tmp_path: Path, subtests: Any
) -> None:
    for name, source in sources.items():
        with subtests.test(name):
            made = compiled(source, architecture, tmp_path / "log")
            uses = list(cubins.used(made.log))
            assert {u.kernel for u in uses} == symbols[name]
            assert made.cubin[:4] == b"\x7fELF"
            assert not [u for u in uses if u.spills or u.local]
            assert all(0 < u.registers <= 255 for u in uses)
            if name not in OF_A_LIBRARY:
                assert not FUSED.search(made.ptx), FUSED.search(made.ptx)
                assert not ROUGH.search(made.ptx), ROUGH.search(made.ptx)


def test_the_texts_of_ptx_that_are_looked_for() -> None:
    """Compiled as a plan's kernels are not: contraction and fast division are there to be found."""
    text = 'extern "C" __global__ void f(float* a) { a[0] = a[1] * a[2] + a[3] / a[4] + sqrtf(a[5]); }'
    options = ["--gpu-architecture=sm_80", "--use_fast_math"]
    fast = nvrtc.compile_source(nvrtc.find(), text, "fast.cu", options).ptx
    assert FUSED.search(fast) and ROUGH.search(fast)
    slow = nvrtc.compile_source(nvrtc.find(), text, "slow.cu", [*cubins.FLAGS, options[0]]).ptx
    assert not FUSED.search(slow) and not ROUGH.search(slow)
    assert "div.rn.f32" in slow and "sqrt.rn.f32" in slow


def test_nvcc_takes_the_same_text(sources: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "kernels.cu").write_text(sources["topk"])
    compiler = nvcc.found()
    assert compiler is not None
    command = [compiler, "-cubin", "-arch=sm_90", "--fmad=false", "-std=c++17", "-Xptxas", "-v", f"-I{folder('runtime')}",
               "kernels.cu", "-o", "kernels.cubin"]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    assert not [u for u in cubins.used(done.stderr) if u.spills or u.local]


# --- the cache, and what goes wrong

PLAIN = 'extern "C" __global__ void f(float* a) { a[threadIdx.x] += 1; }\n'


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RELAXC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_cubin_is_made_once_for_each_architecture(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cubins.build_cubin(PLAIN, "sm_80")
    assert first.is_relative_to(root)
    assert cubins.build_cubin(PLAIN, "sm_90") != first
    assert cubins.build_cubin(PLAIN + "\n", "sm_80") != first
    monkeypatch.setattr(nvrtc, "compile_source", None)
    assert cubins.build_cubin(PLAIN, "sm_80") == first


def refused(call: Any) -> BuildError:
    with pytest.raises(BuildError) as caught:
        call()
    return caught.value


def test_an_error_of_the_text_names_its_line_and_a_log(root: Path) -> None:
    error = refused(lambda: cubins.build_cubin('#include "relaxrt/nothing.h"\n', "sm_80"))
    assert error.code == "RX0532"
    assert "kernels.cu(1)" in error.message and "relaxrt/nothing.h" in error.message
    log = Path((error.help or "").rpartition(" ")[2])
    assert log.is_relative_to(root) and "relaxrt/nothing.h" in log.read_text()


def test_an_architecture_that_is_not_known(root: Path) -> None:
    for name in ("sm_81", "sm_7", "hopper", "sm_80a", "sm_080", "sm_٨٠", ""):
        error = refused(lambda name=name: cubins.build_cubin(PLAIN, name))
        assert error.code == "RX0531"
        assert f"does not compile for {name}" in error.message
        assert "sm_80" in (error.help or "") and "sm_100" in (error.help or "")


def test_without_nvrtc(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(["/nowhere/libnvrtc.so.13"]))
    error = refused(lambda: cubins.build_cubin(PLAIN, "sm_80"))
    assert (error.code, error.help) == ("RX0530", nvrtc.INSTALL)
    assert "relaxc[cuda]" in nvrtc.INSTALL


def test_of_several_nvrtcs_the_one_of_the_drivers_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {p: nvrtc.Nvrtc(p, version, (80,)) for p, version in {"a": (12, 8), "b": (13, 5), "c": (12, 9)}.items()}
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(found))
    monkeypatch.setattr(nvrtc, "_ask", found.get)
    monkeypatch.setattr(nvrtc, "_installed", lambda paths: tuple(found[p] for p in paths))
    assert [nvrtc.find(major).path for major in (None, 12, 13, 11)] == ["b", "c", "b", "b"]


# --- the command line

SPEC = "relax gradients { compress = 8bit }\n"


def compile_it(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.status(["compile", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_plan_for_gpus_and_one_for_a_cpu_have_the_same_hash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from relaxc.build.plan_files import read_plan

    (tmp_path / "spec.relax").write_text(SPEC)
    made = {}
    for target in ("cpu", "cuda", "cpu,cuda"):
        more = ["--arch", "sm_80,sm_90"] if "cuda" in target else []
        out = str(tmp_path / target)
        arguments = [str(tmp_path / "spec.relax"), "-o", out, "--target", target, *more, "--verbose"]
        status, said, _ = compile_it(capsys, *arguments)
        assert status == 0
        assert ("registers" in said) == ("cuda" in target)
        made[target] = read_plan(tmp_path / target)
    assert len({plan.hash for plan in made.values()}) == 1
    assert [made[t].architectures for t in made] == [(), ("sm_80", "sm_90"), ("sm_80", "sm_90")]
    assert [bool(made[t].cpu) for t in made] == [True, False, True]
    for target in made:
        names = {path.name for path in (tmp_path / target).iterdir()}
        assert {"kernels.cpp", "kernels.cu"} <= names
        assert ("kernels.so" in names) == ("cpu" in target)
        for architecture in ("sm_80", "sm_90"):
            assert (f"kernels.{architecture}.cubin" in names) == ("cuda" in target)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", "gpu"], "error[RX0533]: there is no target gpu\n  = help: the targets are cpu and cuda\n"),
        (["--arch", "sm_80"], "error[RX0533]: sm_80 is a GPU, and the target is cpu\n  = help: compile with --target cpu,cuda\n"),
        (["--target", ""], "error[RX0533]: a plan for no target\n  = help: the targets are cpu and cuda\n"),
    ],
)  # fmt: skip
def test_targets_that_are_none(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.relax").write_text(SPEC)
    assert compile_it(capsys, str(tmp_path / "spec.relax"), *arguments) == (1, "", said)
