"""A plan's kernels on a device: which are taken, what is refused in which words, and how they are laid out. The driver is
a fake one, so no GPU is needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from fake_cuda import fake_driver
from pool import Pool
from torch import nn

import relaxc
from relaxc import pipeline
from relaxc.attach import devices, footprint
from relaxc.attach.buffers import make_memory
from relaxc.attach.fitting import FittedPrograms
from relaxc.attach.parameters import read_parameters
from relaxc.attach.plan import Plan, open_plan
from relaxc.build import compiler, cubins, device_kernels, nvrtc
from relaxc.build.plan_files import usable_library
from relaxc.build.runtime import load_runtime
from relaxc.build.targets import Targets
from relaxc.emit.cuda import emit_cuda
from relaxc.emit.exchanges import Kernels
from relaxc.emit.programs import program_plan
from relaxc.errors import BuildError, ModelError, RelaxError
from relaxc.language.source import Source
from relaxc.resources import folder
from relaxc.schedule.schedule import make_schedule
from relaxc.wire.layout import Field
from relaxc.wire.parameters import Parameter

CUDA0 = torch.device("cuda", 0)
CODED = "relax gradients { compress = 8bit }\n"
GPUS = (Parameter(0, "weight", (8, 5), "f32"),)


def compiled(targets: Targets, text: str = CODED) -> Plan:
    spec = pipeline.to_spec(Source("<text>", text), {})
    return open_plan(pipeline.build(spec, {}, "text", GPUS, targets=targets))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    return fake_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def runtime() -> Any:
    return load_runtime()


def refused(call: Any) -> RelaxError:
    with pytest.raises(RelaxError) as caught:
        call()
    return caught.value


# --- which kernels


@pytest.mark.parametrize(
    ("carried", "capability", "taken"),
    [
        (("sm_80", "sm_90", "sm_100"), (8, 0), "sm_80"),
        (("sm_80", "sm_90", "sm_100"), (8, 9), "sm_80"),
        (("sm_80", "sm_86", "sm_89"), (8, 6), "sm_86"),
        (("sm_80", "sm_90", "sm_100"), (9, 0), "sm_90"),
        (("sm_80", "sm_90", "sm_100"), (10, 3), "sm_100"),
        (("sm_80", "sm_90", "sm_100"), (12, 0), None),
        (("sm_90",), (8, 0), None),
        (("sm_86",), (8, 0), None),
        ((), (8, 0), None),
    ],
)
def test_the_newest_cubin_that_runs_is_taken(
    carried: tuple[str, ...], capability: tuple[int, int], taken: str | None
) -> None:
    """A cubin runs on GPUs of its own major version, from its own minor one on: NVIDIA's rule."""
    assert device_kernels.fitting(carried, capability) == taken


def test_a_newer_chips_kernels_are_made_of_the_plans_text_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compiled(Targets(False, ("sm_80",)))
    assert plan.folder is not None
    assert device_kernels.usable_cubin(plan.folder, plan.manifest, (8, 6)) == plan.folder / "kernels.sm_80.cubin"
    made = device_kernels.usable_cubin(plan.folder, plan.manifest, (12, 0))
    assert made.parent.parent.name == cubins.KIND
    monkeypatch.setattr(nvrtc, "compile_source", None)
    assert device_kernels.usable_cubin(plan.folder, plan.manifest, (12, 0)) == made


def test_without_nvrtc_a_plan_of_another_chip_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [compiled(Targets(True)), compiled(Targets(False, ("sm_80",)))]
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(()))
    has = ["has none for GPUs", "has kernels for sm_80 only"]
    for plan, words in zip(plans, has, strict=True):
        assert plan.folder is not None
        error = refused(lambda plan=plan: device_kernels.usable_cubin(plan.folder, plan.manifest, (12, 0)))
        assert error.code == "RX0534"
        assert (
            error.message
            == f"the plan needs kernels for sm_120 and {words}, and NVRTC, which makes them, was not found"
        )
        assert (error.help or "").endswith("or compile the plan with --target cuda --arch sm_120")


def test_a_plan_for_gpus_serves_a_model_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compiled(Targets(False, ("sm_80",)))
    assert plan.library is None and plan.folder is not None
    assert usable_library(plan.folder, plan.manifest).is_file()

    def absent() -> None:
        raise BuildError("RX0501", "no C++ compiler was found", "install one")

    monkeypatch.setattr("relaxc.build.kernels.find", absent)
    monkeypatch.setattr(compiler, "find", absent)
    error = refused(lambda: usable_library(plan.folder, plan.manifest))
    assert error.code == "RX0514"
    assert error.message.endswith("has kernels for GPUs only, and there is no C++ compiler here to make a CPU's")
    assert error.help == "install a C++ compiler here, or compile the plan with --target cpu,cuda"


# --- drivers


def with_driver(monkeypatch: pytest.MonkeyPatch, driver: str, **settings: object) -> None:
    monkeypatch.setattr(devices, "stand_in", devices.StandIn(driver, b"nothing\0"))
    for name, value in settings.items():
        monkeypatch.setenv(f"FAKE_CUDA_{name}", str(value))


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch, runtime: Any) -> None:
    plan = compiled(Targets())
    with_driver(monkeypatch, "/nowhere/libcuda.so.1")
    error = refused(lambda: devices.device_library(runtime, plan.folder, plan.manifest, CUDA0))
    assert error.code == "RX0535"
    assert error.message.startswith("the model is on a GPU, and CUDA's driver can't be loaded: /nowhere/libcuda.so.1")
    assert error.help == devices.UPDATE


def test_without_a_device(monkeypatch: pytest.MonkeyPatch, runtime: Any, driver: str) -> None:
    plan = compiled(Targets())
    with_driver(monkeypatch, driver, REFUSES="cuInit", ERROR=100)
    error = refused(lambda: devices.device_library(runtime, plan.folder, plan.manifest, CUDA0))
    assert error.code == "RX0535"
    assert error.message == (
        "the model is on a GPU, and CUDA's driver does not start: no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE)"
    )


def test_a_driver_older_than_the_cubin(monkeypatch: pytest.MonkeyPatch, runtime: Any, driver: str) -> None:
    """What the plan carries is tried, then what this machine's NVRTC makes; then it says so."""
    plan = compiled(Targets(False, ("sm_80",)))
    assert plan.folder is not None
    with_driver(monkeypatch, driver, REFUSES="cuModuleLoadData", ERROR=209, VERSION=12040, CAPABILITY=80)
    found = runtime.Driver(driver)
    assert found.capability(0) == (8, 0)
    error = refused(lambda: devices._load(runtime, found, CUDA0, [], plan.folder, plan.manifest))
    assert error.code == "RX0536"
    assert error.message == (
        "the driver, which is of CUDA 12.4, does not take the plan's kernels: the plan's kernels can't be loaded: no kernel "
        "image is available for execution on the device (CUDA_ERROR_NO_BINARY_FOR_GPU)"
    )
    assert error.help == "update the driver, or have the NVRTC of its CUDA: pip install nvidia-cuda-nvrtc-cu12"
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(()))
    without = refused(lambda: devices._load(runtime, found, CUDA0, [], plan.folder, plan.manifest))
    assert (without.code, without.message) == (error.code, error.message), "what the driver says, not that NVRTC lacks"


def test_no_room_for_the_kernels(monkeypatch: pytest.MonkeyPatch, runtime: Any, driver: str) -> None:
    plan = compiled(Targets(False, ("sm_80",)))
    assert plan.folder is not None
    with_driver(monkeypatch, driver, REFUSES="cuModuleLoadData", ERROR=2, CAPABILITY=80)
    with pytest.raises(ModelError, match=r"RX0425: no room for the plan's kernels on the GPU.*OUT_OF_MEMORY"):
        devices._load(runtime, runtime.Driver(driver), CUDA0, [], plan.folder, plan.manifest)


def test_a_library_that_is_no_driver(runtime: Any) -> None:
    with pytest.raises(runtime.DriverError, match="the driver has no cuInit"):
        runtime.Driver("libm.so.6")


def test_a_device_that_is_not_there(runtime: Any, driver: str) -> None:
    with pytest.raises(runtime.DriverError, match="the driver has no device 3"):
        runtime.Driver(driver).capability(3)


def test_where_a_model_may_be() -> None:
    apart = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    assert refused(lambda: read_parameters(apart)).code == "RX0404"


# --- how kernels are laid out


def launches() -> list[Any]:
    found = []
    sources = [Source.read(folder("specs") / f"{name}.relax") for name in (
        "bytegrad", "dgc", "choco", "moniqua", "natural", "qsgd"
    )]  # fmt: skip
    for source in (*sources, Source("more", "relax gradients { compress = topk(1e20) }")):
        typed = pipeline.to_typed(pipeline.to_spec(source, {}))
        kernels = Kernels(("f32", "f64"))
        for body in pipeline.to_paths(typed.program).bodies:
            if body.gradient is not None:
                from relaxc.emit.exchanges import native_exchange

                native_exchange(body.gradient.exchange, kernels)
            if body.paths:
                program_plan(body, kernels)
        found += emit_cuda(tuple(kernels.found.values()))[1]
    return found


def test_the_runtime_lays_messages_out_as_the_wire_does(runtime: Any) -> None:
    """Offsets of segments come of wire/layout.py in Python, and of device_call.cpp in C++."""
    from relaxc.emit.plan import _launch

    seen: set[tuple[Field, ...]] = set()
    for launch in launches():
        made = runtime.LaunchPlan(**devices._launch(_launch(launch)))
        seen.add(launch.fields)
        for elements in (0, 1, 2, 7, 15, 16, 17, 511, 512, 513, 1000, 4096, 99991, 2**31 + 5):
            assert made.blocks(elements) == launch.blocks_of(elements)
            assert made.message(elements) == launch.bytes_of(elements), (launch, elements)
    assert len(seen) > 5


# --- room


def test_the_sentence_about_room() -> None:
    error = footprint.no_room(3_210_000_000, 1_100_000_000, CUDA0)
    assert error.code == "RX0425"
    assert error.message == "the plan needs 3,210 MB on cuda:0 beside the model, where 1,100 MB are free"


def test_what_a_plan_of_gradients_needs() -> None:
    """A bucket's buffers, k + 1 of them where it is dense or late; a residual of 4 bytes an element; two messages of 20
    blocks, each with two numbers of 4 bytes. Not the census, which is on the host."""
    codes = 2 * (10_000 + 20 * 8)
    model = nn.Linear(1000, 10, bias=False)
    read = read_parameters(model)
    nothing = FittedPrograms((), (), (), ())
    wanted = {
        "relax gradients": 40_000,
        "relax gradients { delay = 2 }": 3 * 40_000,
        "relax gradients { compress = 8bit, feedback = worker }": 40_000 + codes,
        "relax gradients { compress = 8bit, feedback = worker, delay = 1 }": 3 * 40_000 + codes,
    }
    for text, bytes in wanted.items():
        plan = relaxc.compile(text, model=model)
        schedule = make_schedule(plan.manifest, read.parameters, 1, 0)
        assert footprint.bytes_needed(plan.manifest, read, schedule, nothing) == bytes, text


def test_what_a_kernel_needs_while_it_runs() -> None:
    """topk takes a tensor as one block: for each of the three 12 bytes of scratch for each element of the largest, for all
    that are at work together 64 MB at most or what one needs; a block of 512 needs none."""
    model = nn.Sequential(nn.Linear(1000, 10, bias=False), nn.Linear(10, 7))
    read = read_parameters(model)
    topk = relaxc.compile("relax gradients { compress = topk(1%) }", model=model)
    assert footprint.scratch_needed(topk.manifest, read) == 3 * 12 * 10_000
    many = read_parameters(nn.ParameterList(torch.empty(50_000) for _ in range(200)))
    assert footprint.scratch_needed(topk.manifest, many) == 64 << 20
    large = read_parameters(nn.ParameterList([torch.empty(16 * 10**6), torch.empty(1)]))
    assert footprint.scratch_needed(topk.manifest, large) == 12 * 16 * 10**6
    assert (
        footprint.scratch_needed(relaxc.compile("relax gradients { compress = 8bit }", model=model).manifest, read) == 0
    )


def test_a_card_that_is_full_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch has reserved and nobody uses is free too."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 10_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 200)
    footprint.refuse_full(1300, CUDA0)
    footprint.refuse_full(10**12, torch.device("cpu"))
    with pytest.raises(ModelError, match="RX0425"):
        footprint.refuse_full(1301, CUDA0)


def test_room_is_asked_for_before_anything_is_made(pool: Pool) -> None:
    assert pool.run(attach_where_all_is_full, 1) == ["RX0425 40000 0"]


def attach_where_all_is_full(rank: int, workers: int) -> str:
    """The error, the bytes that were asked for, and how many hooks the model has then."""
    from relaxc.attach import plan

    asked: list[int] = []

    def full(needed: int, device: torch.device) -> None:
        asked.append(needed)
        raise footprint.no_room(needed, 0, device)

    model = nn.Linear(1000, 10, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = relaxc.compile("relax gradients", model=model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "refuse_full", full)
        with pytest.raises(ModelError) as refused:
            compiled.attach(model, optimizer)
    return f"{refused.value.code} {asked[0]} {len(model._forward_pre_hooks)}"


def test_memory_is_measured_without_making_it() -> None:
    plan = relaxc.compile("relax with choco { gamma = 0.3 }", model=nn.Linear(1000, 10, bias=False))
    body = plan.manifest.bodies[0].program
    assert body is not None
    from relaxc.schedule.programs import program_buckets

    parameters = (Parameter(0, "weight", (10, 1000), "f32"),)
    (bucket,) = program_buckets(plan.manifest, parameters, (0,), [0])
    nowhere = make_memory(body, bucket, parameters, 4, 0, footprint.NOWHERE)
    here = make_memory(body, bucket, parameters, 4, 0)
    assert sum(footprint._sizes(nowhere)) == sum(footprint._sizes(here)) >= 2 * 40_000  # seen, around
    assert all(flat.tensor.is_meta for flat in nowhere.states.values())


def test_the_environment_is_as_it_was() -> None:
    assert not [name for name in os.environ if name.startswith("FAKE_CUDA")]


def test_a_plan_without_its_kernels_for_a_device(runtime: Any, driver: str, tmp_path: Path) -> None:
    """A dense mean needs a device's streams, and none of its kernels: no driver is asked for."""
    plan = relaxc.compile("relax gradients", model=nn.Linear(2, 2))
    assert not plan.manifest.launches
    assert devices.device_library(runtime, plan.folder, plan.manifest, torch.device("cpu")) is not None
    assert msgspec.to_builtins(plan.manifest)["architectures"] == ()
