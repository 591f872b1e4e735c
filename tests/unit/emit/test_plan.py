from __future__ import annotations

import re
from dataclasses import dataclass, replace

import codecs_by_hand as codecs
import msgspec
import pytest
from codecs_by_hand import apply
from fragment_cases import CASES, G, W, body, transfer

from relaxc import manifest, pipeline
from relaxc.emit.plan import Sources, emit
from relaxc.language.source import Source, Span
from relaxc.program.ir import Constant, Exchange, Optimizer, Program, Read, State
from relaxc.program.paths import (
    Fragment,
    Gradient,
    Guard,
    Kept,
    Operation,
    Path,
    PathBody,
    Paths,
    SetNumber,
    Store,
)
from relaxc.resources import folder
from relaxc.topology.topology import Topology
from relaxc.wire.parameters import Parameter

SPECS = sorted(path.stem for path in folder("specs").glob("*.relax"))
F32 = [Parameter(0, "a", (3, 4), "f32")]


@dataclass(frozen=True)
class Known:
    agreement: str = "local"
    staleness: int = 2
    above: float = -1.0


def emitted(made: PathBody, parameters: list[Parameter] | None = None) -> Sources:
    return emit(Program(()), Paths((made,)), (Known(),), "spec", parameters)


def program(made: PathBody) -> manifest.ProgramPlan:
    plan = emitted(made, F32).manifest.bodies[0].program
    assert plan is not None
    return plan


def line(*stages: tuple[str, tuple[Operation, ...]], **more) -> Path:
    return Path((), (), (), stages, True, **more)


def mixing(codec=None, **changes) -> PathBody:
    """Choco's two sides."""
    sends = Fragment((), (Store("seen", apply("+", Read("seen"), Read("coded"))),), sends=0, value=W)
    receives = Fragment((), (Store("weight", apply("+", W, Read("arrived"))),), receives=0)
    made = body(sends, "seen", transfer=transfer("mix", codec or codecs.minmax(8), coded=True))
    return replace(made, fragments=(sends, receives), paths=(line(("tail", ())),), **changes)


@pytest.mark.parametrize("name", SPECS)
def test_every_spec_has_a_plan_that_can_be_read_again(name):
    path = folder("specs") / f"{name}.relax"
    typed = pipeline.to_typed(pipeline.to_spec(Source(str(path), path.read_text()), {}))
    made = emit(typed.program, pipeline.to_paths(typed.program), typed.facts, name, None)
    plan = manifest.decode(manifest.encode(made.manifest))
    assert msgspec.json.encode(plan) == msgspec.json.encode(made.manifest)
    functions = set(re.findall(r'extern "C" (?:RELAXRT_WIDE )?void (\w+)\(', made.kernels))
    assert {kernel.symbol for kernel in kernels_of(plan)} == functions


def kernels_of(plan: manifest.Manifest) -> list[manifest.KernelPlan]:
    found = []
    for part in plan.bodies:
        exchanges = [part.gradient.exchange] if part.gradient else []
        exchanges += [t.exchange for t in part.program.transfers] if part.program else []
        found += [k for e in exchanges for k in e.kernels]
        found += [k for f in part.program.fragments for k in f.kernels] if part.program else []
    return found


def test_a_native_gradient_has_kernels_in_its_own_type():
    exchange = Exchange("mean", G, codecs.minmax(8), "both", "all", None, 0)
    span = Span(Source("spec", "relax  gradients"), 0, 16)
    made = replace(body(Fragment((), ())), fragments=(), gradient=Gradient(exchange, 3), span=span)
    plan = emitted(made).manifest.bodies[0]
    assert plan.gradient is not None and plan.program is None
    assert (plan.statement, plan.gradient.delay, plan.agreement, plan.staleness) == ("relax gradients", 3, "local", 2)
    kernels = plan.gradient.exchange.kernels
    assert {(k.kernel, k.dtype) for k in kernels} == {
        (name, dtype) for name in ("contribute", "combine", "spread") for dtype in ("f32", "f16", "bf16", "f64")
    }
    operands = {k.kernel: k.operands for k in kernels}
    assert operands == {"contribute": ("value", "residual"), "combine": ("residual",), "spread": ("value",)}
    symbols = {(k.kernel, k.dtype): k.symbol for k in kernels}
    assert len({symbols["contribute", d] for d in ("f32", "f16", "bf16", "f64")}) == 4
    assert symbols["combine", "bf16"] == symbols["combine", "f32"] != symbols["combine", "f64"]


def test_slots_have_kernels_in_the_type_of_arithmetic():
    slots = replace(transfer("mix", codecs.minmax(8)), leaves="slot", lands="slot")
    made = replace(body(Fragment((), ()), transfer=slots), paths=(line(),))
    (plan,) = emitted(made, [Parameter(0, "a", (2,), "bf16")]).manifest.bodies[0].program.transfers
    assert [(k.kernel, k.dtype, k.symbol[-3:]) for k in plan.exchange.kernels] == [
        ("contribute", "bf16", "f32"), ("gather", "bf16", "f32"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "leaves", "lands", "names"),
    [
        ("mean", "slot", "slot", ["contribute", "combine", "spread"]),
        ("mean", "code", "slot", ["combine", "spread"]),
        ("mean", "code", "code", ["combine"]),
        ("mix", "code", "slot", ["gather"]),
        ("mix", "slot", "code", ["contribute"]),
    ],
)
def test_what_fragments_do_themselves_has_no_kernel_of_its_own(kind, leaves, lands, names):
    moved = replace(transfer(kind, codecs.minmax(8)), leaves=leaves, lands=lands)
    made = replace(body(Fragment((), ()), transfer=moved), paths=(line(),))
    assert [k.kernel for k in program(made).transfers[0].exchange.kernels] == names


def test_an_exchange_of_plain_numbers_has_neither_codec_nor_kernels():
    plain = transfer("mean", codecs.minmax(8))
    plain = replace(plain, exchange=replace(plain.exchange, codec=None), leaves="slot", lands="slot")
    made = replace(body(Fragment((), ()), transfer=plain), paths=(line(),))
    exchange = program(made).transfers[0].exchange
    assert exchange.codec is None and exchange.kernels == () and exchange.topology is None


def test_a_codec_and_a_topology_as_data():
    exchange = program(mixing()).transfers[0].exchange
    assert exchange.codec == manifest.CodecPlan(
        "minmax(8, 512, False)",
        "block",
        512,
        (
            manifest.FieldPlan("low", "f32", 0, False),
            manifest.FieldPlan("scale", "f32", 0, False),
            manifest.FieldPlan("level", "uint", 8, True),
        ),
    )
    assert exchange.topology == ["ring", []] and exchange.coded


def test_fragments_that_do_the_same_share_a_kernel():
    first = Fragment((), (Store("a", apply("*", Read("a"), Read("lr"))),))
    second = Fragment((), (Store("b", apply("*", Read("b"), Read("t"))),))
    made = replace(body(first, "a b"), fragments=(first, second), paths=(line(),))
    plans = program(made).fragments
    assert plans[0].kernels[0].symbol == plans[1].kernels[0].symbol
    assert (plans[0].kernels[0].operands, plans[1].kernels[0].operands) == (("a",), ("b",))
    assert (plans[0].numbers, plans[1].numbers) == (("lr",), ("t",))


def test_what_a_body_is_beside_its_kernels():
    number, cell = State("k", apply("+", 1, 2), "number"), State("size", Read("lr"), "cell")
    start = Fragment((), (Store("anchor", W),))
    update = Fragment((), (Store("weight", apply("*", W, Optimizer("momentum_buffer", True))),), late=("kept.0",))
    path = Path(
        guards=(True,),
        numbers=(("k.1", apply("*", Read("k"), Optimizer("momentum", False))),),
        states=(("k", "k.1"),),
        stages=(("before", (Operation("compute", 1, late=True, why="here"),)),),
        steps=False,
        captures=((2, "number.0", Read("t")),),
    )
    made = replace(
        body(start),
        states=(number, cell, State("anchor", W, "tensor")),
        control=(Guard("every", -1, 1, "number", Read("k")), SetNumber("k", Constant(5.0), 0)),
        kept=(Kept("tensor", 2),),
        fragments=(start, update),
        start=(0,),
        paths=(path,),
        owns=((Topology("lazy", (Topology("ring"),)), 1),),
    )
    plan = program(made)
    assert [(s.name, s.shape, s.initial) for s in plan.states] == [
        ("k", "number", 3.0), ("size", "cell", "lr"), ("anchor", "tensor", None),
    ]  # fmt: skip
    assert plan.control == (
        manifest.ControlPlan("every", -1, 1, "number", "k"),
        manifest.ControlPlan("set", 0, value=5.0, name="k"),
    )
    assert plan.paths[0].numbers == (("k.1", ("*", "k", "optimizer.momentum")),)
    assert plan.paths[0].captures == ((2, "number.0", "t"),) and not plan.paths[0].steps
    assert plan.paths[0].stages == {"before": (manifest.OperationPlan("compute", 1, True, "here"),)}
    assert plan.settings == ("momentum",)
    assert plan.owns == ((["lazy", [["ring", []]]], 1),)
    assert plan.start == (0,) and plan.kept == (manifest.KeptPlan("tensor", 2),)
    assert plan.fragments[1].kernels[0].operands == ("weight", "optimizer.momentum_buffer")
    assert (plan.fragments[1].writes, plan.fragments[1].late, plan.fragments[1].label) == (
        ("weight",), ("kept.0",), "update",
    )  # fmt: skip


def test_the_hash_covers_whatever_workers_have_to_agree_on():
    def hash_of(made: PathBody) -> str:
        return emitted(made, F32).manifest.hash

    base = mixing()
    others = [
        mixing(codecs.minmax(4)),
        mixing(selector=("name", "a")),
        mixing(owns=((Topology("ring"), 0),)),
        mixing(control=(Guard("phase", -1, 1, end=5),)),
        replace(base, paths=(line(("before", ())),)),
        replace(base, transfers=(replace(base.transfers[0], block=1),)),
    ]
    moved = replace(base.transfers[0].exchange, topology=Topology("chain"))
    others.append(replace(base, transfers=(replace(base.transfers[0], exchange=moved),)))
    assert len({hash_of(made) for made in (base, *others)}) == 1 + len(others)
    assert hash_of(mixing()) == hash_of(base)
    told = [replace(base, paths=(line(("before", (Operation("compute", 0, why=why),))),)) for why in ("here", "there")]
    assert hash_of(told[0]) == hash_of(told[1]), "only why it stands there differs"


def test_kernels_are_for_the_models_types_alone():
    adam = next(case for case in CASES if case.name == "adam")
    made = replace(adam.body, paths=(line(),))
    assert {k.dtype for k in kernels_of(emitted(made, F32).manifest)} == {"f32"}
    assert {k.dtype for k in kernels_of(emitted(made).manifest)} == {"f32", "f16", "bf16", "f64"}
