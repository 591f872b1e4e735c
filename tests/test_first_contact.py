"""What a new user ran into: each test says what one expects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pool import Pool
from torch import nn

import relaxc
import relaxc.errors

SPEC = "relax gradients { compress = 4bit }\n"


def relaxc_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "relaxc", *arguments], capture_output=True, text=True, check=False)


def same(model: nn.Module) -> bool:
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    all_of_them = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(all_of_them, mine)
    return all(torch.equal(mine, other) for other in all_of_them)


# --- security: entries of the fallback in /tmp are believed whoever owns them


@pytest.mark.skipif(os.getuid() != 0, reason="chown")
def test_a_fallback_cache_of_another_user_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxc.build import cache, listing

    monkeypatch.setattr(cache, "fallback_root", lambda: tmp_path / "relaxc-0")
    monkeypatch.setenv("RELAXC_CACHE", str(tmp_path / "mine"))
    entry = tmp_path / "relaxc-0" / "kernels" / "key"
    entry.mkdir(parents=True)
    (entry / "kernels.so").write_bytes(b"evil")
    listing.write(entry, cache.SEAL)
    for path in [tmp_path / "relaxc-0", *(tmp_path / "relaxc-0").rglob("*")]:
        os.chown(path, 1234, 1234)
    assert cache.lookup("kernels", "key") is None


# --- silent: a frozen parameter moves


def _frozen(rank: int, workers: int) -> float:
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 50))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # no momentum: plain torch leaves a frozen weight alone
    relaxed = relaxc.compile(SPEC).attach(model, optimizer)
    for i in range(4):
        if i == 3:
            model[2].requires_grad_(False)
            before = model[2].weight.detach().clone()
        model(torch.randn(8, 50)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    relaxed.detach()
    return (model[2].weight - before).abs().max().item()


def test_a_parameter_frozen_with_zeroed_gradients_stays(pool: Pool) -> None:
    assert pool.run(_frozen, 2) == [0.0, 0.0]


# --- silent: trained without exchange


def _trained_without(rank: int, workers: int, how: str) -> bool:
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    relaxed = relaxc.compile(SPEC).attach(model, optimizer)
    if how == "replaced":
        torch.manual_seed(7)
        model[2] = nn.Linear(9, 9)  # the same on every worker
        torch.manual_seed(rank)
        optimizer.add_param_group({"params": model[2].parameters()})
    try:
        for _ in range(2):
            loss = model(torch.randn(4, 9)).pow(2).mean()
            if how == "autograd.grad":
                for p, g in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
                    p.grad = g
            else:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    except relaxc.errors.RelaxError:
        return True
    finally:
        relaxed.detach()
    return same(model)


@pytest.mark.parametrize("how", ["replaced", "autograd.grad"])
def test_a_step_on_gradients_that_were_not_exchanged_is_refused(pool: Pool, how: str) -> None:
    assert pool.run(_trained_without, 2, how) == [True, True]


def _under_ddp(rank: int, workers: int) -> str:
    model = nn.Linear(9, 9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped = nn.parallel.DistributedDataParallel(model)
    try:
        relaxed = relaxc.compile(SPEC).attach(wrapped.module, optimizer)  # as RX0403 advises
    except relaxc.errors.RelaxError as error:
        return error.code
    try:
        wrapped(torch.randn(4, 9)).sum().backward()
        optimizer.step()
    except relaxc.errors.RelaxError as error:
        return error.code
    finally:
        relaxed.detach()
    return "every gradient was sent twice, once by DDP in full"


def test_a_model_that_ddp_still_exchanges_is_refused(pool: Pool) -> None:
    assert pool.run(_under_ddp, 2) == ["RX0403", "RX0403"]


# --- a plan for another machine


def test_a_plan_needs_only_instructions_that_a_compiler_emits(tmp_path: Path) -> None:
    (tmp_path / "a.relax").write_text(SPEC)
    assert relaxc_cli("compile", str(tmp_path / "a.relax"), "-o", str(tmp_path / "plan")).returncode == 0
    needed = set(relaxc.load(tmp_path / "plan").manifest.cpu.split())
    assert not needed & {"hypervisor", "pku", "tsc_known_freq", "arat", "ibrs", "constant_tsc"}


# --- the command line and relaxc.compile


def test_a_path_with_a_space_is_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "my specs"
    folder.mkdir()
    (folder / "a.relax").write_text(SPEC)
    assert relaxc.compile(str(folder / "a.relax"))


def test_an_error_of_a_spec_says_where_and_what_to_do() -> None:
    with pytest.raises(relaxc.errors.RelaxError) as caught:
        relaxc.compile("relax gradients { compress = 3bit }\n")
    assert "1:30" in str(caught.value) and "use 1bit, 2bit, 4bit or 8bit" in str(caught.value)


def test_many_names_in_one_selector_are_no_nesting(tmp_path: Path) -> None:
    names = " or ".join(f'"layer{i}.*"' for i in range(150))
    (tmp_path / "a.relax").write_text(f"relax gradients for {names}\nrelax gradients\n")
    assert relaxc_cli("check", str(tmp_path / "a.relax")).returncode == 0


def test_replacing_a_plan_keeps_files_that_are_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.relax").write_text(SPEC)
    command = ("compile", str(tmp_path / "a.relax"), "-o", str(tmp_path / "plan"))
    assert relaxc_cli(*command).returncode == 0
    (tmp_path / "plan" / "notes.txt").write_text("mine")
    relaxc_cli(*command)  # may refuse, must not delete
    assert (tmp_path / "plan" / "notes.txt").exists()


def without_torch(tmp_path: Path) -> dict[str, str]:
    """An environment whose `import torch` says that there is none."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(relaxc.__file__).parents[1])])}


def test_doctor_says_in_words_that_torch_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "relaxc", "doctor"]
    done = subprocess.run(command, env=without_torch(tmp_path), capture_output=True, text=True, check=False)
    assert "raise BuildError" not in done.stdout


def test_load_without_torch_is_a_relax_error(tmp_path: Path) -> None:
    code = "import relaxc\ntry: relaxc.load('nowhere')\nexcept Exception as e: print(type(e).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=without_torch(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "BuildError"


# --- arguments and states


def _bad(rank: int, workers: int, what: str) -> str:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = relaxc.compile(SPEC)
    relaxed = None
    try:
        if what == "integers":
            model.codes = nn.Parameter(torch.zeros(4, dtype=torch.uint8), requires_grad=False)
            relaxed = plan.attach(model, optimizer)
            return "served"
        if what == "check_every":
            relaxed = plan.attach(model, optimizer, check_every=-1)
        elif what == "parameters":
            relaxed = plan.attach(model, model.parameters())
        else:
            relaxed = plan.attach(model, optimizer)
            state = relaxed.state_dict()
            relaxed.load_state_dict({k: v for k, v in state.items() if k != what})
    except Exception as error:  # noqa: BLE001 - which one is what is asked
        return type(error).__mro__[-4].__name__ if isinstance(error, relaxc.errors.RelaxError) else repr(error)
    finally:
        if relaxed is not None:
            relaxed.detach()
    return "accepted"


@pytest.mark.parametrize("what", ["check_every", "parameters", "iterations", "late"])
def test_bad_arguments_and_states_are_relax_errors(pool: Pool, what: str) -> None:
    assert set(pool.run(_bad, 2, what)) == {"RelaxError"}


def test_frozen_integers_do_not_hinder(pool: Pool) -> None:
    assert pool.run(_bad, 2, "integers") == ["served", "served"]
