"""Programs on real workers give what the interpreter says, bit for bit: weights after each iteration, states at the end.

Only what an uncompressed all-reduce sums may differ in its last bits. Bytes sent are those that the plan predicts.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from numbers_of_workers import on_all, on_two
from pool import Pool

from relaxc import pipeline
from relaxc.emit.plan import SEED
from relaxc.language.source import Source
from relaxc.program.interpret import Interpreter
from relaxc.resources import folder
from relaxc.wire.parameters import Parameter

SIZES = {
    "bias": (13,), "empty": (0,), "in_brain": (2049,), "in_double": (61, 17), "large": (70, 117), "matrix": (20, 50),
    "one": (1,), "prime": (4999,), "scalar": (), "seven": (7,),
}  # fmt: skip
DTYPES = {"in_brain": "bf16", "in_double": "f64"}
PARAMETERS = tuple(
    Parameter(n, name, shape, DTYPES.get(name, "f32")) for n, (name, shape) in enumerate(sorted(SIZES.items()))
)
"""In ParameterDict's order, which is alphabetical."""
ITERATIONS = 9
RATE, MOMENTUM = 0.05, 0.9
ABSENT = {(2, 0): ("matrix", "prime"), (4, 0): ("seven",), (4, 1): ("seven",), (4, 2): ("seven",), (4, 3): ("seven",)}
"""By (iteration, worker): the parameters without a gradient there."""

VARIANTS = {
    "post_local_sgd": "relax with post_local_sgd { start = 3, period = 2 }",
    "diloco": "relax with diloco { period = 3, momentum = 0.5 }",
    "choco 4bit torus": "relax with choco { compress = 4bit, topology = complete, gamma = 0.3 }",
    "choco stochastic": "relax with choco { compress = qsgd(4), topology = exponential, gamma = 0.1 }",
    "dpsgd compressed": "algorithm a { weight = mix(weight, ring, compress = 8bit, feedback = none) step }\nrelax with a",
    "dpsgd feedback": "algorithm a { step weight = mix(weight, ring, compress = 8bit, feedback = worker) }\nrelax with a",
    "random pairs": "relax with dpsgd { topology = random_pairs }",
    "star": "relax with dpsgd_atc { topology = star }",
    "lazy": "relax with dpsgd { topology = lazy(ring) }",
    "late weights": "relax weights { every = 3, delay = 2 }",
    "late compressed weights": "relax weights { compress = 8bit, every = 2, delay = 1 }",
    "weights": "relax weights { compress = 4bit }",
    "updates": "relax updates { every = 3, compress = 8bit, rate = 0.7, momentum = 0.5 }",
    "late updates": "relax updates { every = 4, rate = 0.7, momentum = 0.5, delay = 2 }",
    "streaming_diloco": "relax with streaming_diloco { period = 4, late = 2, momentum = 0.6 }",
    "slowmo": "relax with slowmo { period = 3 }",
    "noloco": "relax with noloco { period = 2 }",
    "geometric": "algorithm g { step every geometric(2) { weight = mix(weight, ring) } }\nrelax with g",
    "coded mean": """
algorithm coded { step every 2 { let q = encode(weight, 8bit)  weight += mean(q) - decode(q) } }
relax with coded
""",
    "ring route": """
algorithm r { state seen = weight  step  every 2 {
  let moved = mean(weight - seen, compress = 4bit, route = ring)  seen += moved  weight = seen } }
relax with r
""",
    "topk": "algorithm a { step every 2 { weight = mean(weight, compress = topk(5%)) } }\nrelax with a",
    "topk choco": "relax with choco { compress = topk(10%), gamma = 0.05 }",
    "topk late": "relax updates { every = 3, compress = topk(10%), rate = 0.7, momentum = 0.5, delay = 1 }",
    "topk feedback": "algorithm a { step weight = mix(weight, ring, compress = topk(9), feedback = worker) }\nrelax with a",
    "topk code": """
algorithm t { state held = 0  held += grad  let q = encode(held, topk(4%))  let gone = decode(q)
  held = held - gone  grad = mean(q)  step }
relax with t
""",
    "randomk": """
algorithm r { step  every 2 { let some = encode(weight, randomk(10%))  weight += mean(some) - decode(some) } }
relax with r
""",
    "randomk late": """
algorithm r { step  every 2 { let some = encode(weight, randomk(10%))  let own = decode(some)  let heard = mix(some, ring)
  after 3 { weight += (heard - own) / 2 } } }
relax with r
""",
    "randomk exchange": "relax updates { every = 2, compress = randomk(5%), rate = 0.7, momentum = 0.5 }",
    "randomk mix": "relax weights { compress = randomk(20%), every = 2, delay = 1 }",
    "gather": "algorithm g { step every 2 { weight = mean(weight, route = gather) } }\nrelax with g",
    "gather coded": "relax updates { every = 2, compress = 4bit, route = gather, rate = 0.7, momentum = 0.5 }",
    "two bodies": """
relax gradients for ndim < 2 { compress = 8bit }
relax with choco { compress = 1bit, gamma = 0.3 }
""",
    "native and late": """
algorithm both { grad = mean(grad, compress = 8bit)  step  every 3 { weight = mix(weight, ring, compress = bf16) } }
relax with both
""",
    "norm": """
algorithm n { state size = 0  step
  size = norm(weight)
  weight = mix(weight / (1 + size * 1e-3), ring) }
relax with n
""",
    "numbers": """
algorithm numbers { state rates = 0  state gap = 1  state rounds = 0  step
  rates += lr
  every gap { weight = mix(weight, ring) * (1 - rates / 1000)  rounds += 1  gap = 2 ^ floor(rounds / 2) } }
relax with numbers
""",
    "many late": """
algorithm many { step  let half = weight / 2  every 2 { let m = mix(weight, ring)
  after 3 { weight += (m - 2 * half) / 8 } } }
relax with many
""",
    "late numbers": """
algorithm captures { state base = weight  step
  every 3 { let drift = mean(base - weight, compress = 8bit)  let rate = lr * (t + 1)
    after 2 { base -= rate * drift  weight = (weight + base) / 2 } } }
relax with captures
""",
    "two late blocks": """
algorithm two { step
  every 3 { let a = mix(weight, ring)  after 1 { weight = (weight + a) / 2 } }
  every 4 { let b = mix(weight, complete, compress = bf16)  after 2 { weight = (3 * weight + b) / 4 } } }
relax with two
""",
    "nested": """
algorithm nested { state best = weight  step
  every 2 { weight = mix(weight, ring)  every 2 { best = mean(weight, compress = 8bit)  weight = best } } }
relax with nested
""",
    "sum": "algorithm s { step  every 2 { weight = sum(weight / workers, compress = 8bit, feedback = both) } }\nrelax with s",
    "late gradient": """
algorithm lg { let a = mix(grad, ring)  after 2 { grad = a }  step  every 3 { weight = mix(weight, ring) } }
relax with lg
""",
    "weights near": "relax weights { compress = modulo(8bit) }",
    "far apart": "relax weights { compress = modulo(4bit, unit = 0.02, block = 64), topology = exponential }",
    "far apart and late": "relax weights { compress = modulo(8bit), topology = random_pairs, every = 3, delay = 2 }",
    "far apart and two late": """
algorithm two { step  let code = encode(weight, modulo(8bit))  let mine = decode(code)  let m = mix(code, ring)
  after 2 { weight += (m - mine) / 8 } }
relax with two
""",
    "far apart and followed": "relax weights { compress = modulo(8bit, unit = auto, block = 100), topology = star }",
    "far apart, followed and late": """
relax weights { compress = modulo(6bit, unit = auto), topology = random_pairs, every = 3, delay = 2 }""",
    "far apart, followed and fed back": """
algorithm a { step weight = mix(weight, ring, compress = modulo(8bit, unit = auto), feedback = worker) }
relax with a
""",
    "far apart and fed back": """
algorithm a { step weight = mix(weight, ring, compress = modulo(5bit, unit = 0.03), feedback = worker) }
relax with a
""",
    "names": """
algorithm n {
  state residual = weight
  state arrived = 0
  state coded = 0
  step
  arrived = mix(weight - residual, ring, compress = 8bit, feedback = worker)
  coded = coded / 2 + mean(arrived, compress = 4bit, feedback = none)
  residual += arrived / 4
  let coded_2 = encode(weight, 8bit)
  weight += (mix(coded_2, ring) - decode(coded_2) + coded) / 8 }
relax with n
""",
    "push sum": """
algorithm p(topology = exponential) {
  state mass = 1
  state raw = weight
  let before = weight
  step
  raw = push(raw + weight - before, topology, compress = bf16)
  mass = push(mass, topology)
  weight = raw / mass
}
relax with p
""",
    "pushed late": "relax with osgp { topology = exponential, late = 2 }",
    "codes pushed": "algorithm c { step  let q = encode(weight, 8bit)  weight += (push(q, ring) - decode(q)) / 2 }\nrelax with c",
    "cells": """
algorithm c {
  state share = 1
  state most = 0
  state late = 0
  step
  let size = norm(weight)
  share = mix(share + size / 100, ring)
  most = mix(most * 0.5 + t, complete)
  every 2 { let seen = push(size, shift_one)  after 3 { late = seen - most } }
  weight = mix(weight, ring) / (1 + share * 1e-3 + late * 1e-4)
}
relax with c
""",
    "cells of all": """
algorithm s { state scale = 1  step  scale = 0.5 * scale + mean(norm(weight) / (1 + rank)) / 100
  every 2 { weight = mix(weight, ring) * (1 - 1e-3 * sum(scale) / workers) } }
relax with s
""",
    "relay star": "relax with relaysgd { topology = star }",
    "relayed gradients": "algorithm g { grad = relay(grad, star) / relay(1, star)  step }\nrelax with g",
    "relay late": """
algorithm r { state first = weight  step
  every 2 { let total = relay(weight - first, star)  let heard = relay(norm(weight) / 10, chain)
    after 1 { weight += 0.1 * (total / (workers + heard) - (weight - first)) } } }
relax with r
""",
    "own": "algorithm o { step  weight = mix(weight, ring) + own(ring) * weight * 1e-3 }\nrelax with o",
}
TRIPPING = ("moniqua", "weights near", *(name for name in VARIANTS if name.startswith("far apart")))
"""Workers are further apart than a codec bears, so that blocks are sent in full."""
OWNING = {
    "one_bit_adam": "relax with one_bit_adam { warmup = 4 }",
    "qadam": "relax with qadam { warmup = 4 }",
    "momentum": "relax momentum { warmup = 3, compress = 4bit }",
    "zero_one_adam": "relax with zero_one_adam { warmup = 2, double = 2, longest = 4, kappa = 2 }",
    "ef_signsgd": "relax with ef_signsgd",
    "dgc": "relax gradients for ndim < 2\nrelax with dgc { epoch = 3 }",
    "demo": "relax with demo { side = 16, keep = 9 }",
    "dct": """
algorithm d { state held = 0  held = 0.9 * held + lr * grad  let code = encode(held, dct(8, 3))
  held -= decode(code)  weight -= sign(sum(code)) * lr }
relax with d
""",
}
"""Programs without `step`: the optimiser has no momentum."""
ASYNCHRONOUS = {"adpsgd", "async_average", "async_bytegrad", "swarm", "swarm_8bit"}
"""What these come to depends on who arrives when: attach/test_async_replay.py takes that from a record."""
LIBRARY = [p.stem for p in sorted(folder("specs").glob("*.relax")) if p.stem not in ASYNCHRONOUS]
"""Every shipped spec; with other lengths where its own are too long for a test."""
OTHERS = [name for name in (*VARIANTS, *OWNING) if name not in LIBRARY]


def text_of(name: str) -> str:
    known = {**VARIANTS, **OWNING}
    return known[name] if name in known else (folder("specs") / f"{name}.relax").read_text()


def gradient(worker: int, iteration: int, parameter: Parameter, broken: bool) -> np.ndarray[Any, Any] | None:
    """What backward makes: seeded normal numbers; absent ones where the script says, and where it is `broken` NaN and Inf
    in one iteration of worker 0."""
    if parameter.name in ABSENT.get((iteration, worker), ()):
        return None
    draw = np.random.default_rng([worker, iteration, parameter.number])
    values = draw.standard_normal(parameter.elements)
    if broken and (iteration, worker, parameter.name) in ((3, 0, "matrix"), (3, 0, "in_brain")):
        values[3], values[-1] = np.nan, np.inf
    return values.reshape(parameter.shape)


def first_weight(parameter: Parameter) -> np.ndarray[Any, Any]:
    return np.random.default_rng([77, parameter.number]).standard_normal(parameter.elements).reshape(parameter.shape)


def kinds() -> dict[str, Any]:
    import torch

    return {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}


def make_model() -> Any:
    import torch

    class Scripted(torch.nn.Module):
        """Its gradients are those of the script, whatever its weights."""

        def __init__(self) -> None:
            super().__init__()
            for p in PARAMETERS:
                weight = torch.from_numpy(first_weight(p)).to(kinds()[p.dtype])
                self.register_parameter(p.name, torch.nn.Parameter(weight.reshape(p.shape)))

        def forward(self, rank: int, iteration: int, broken: bool) -> Any:
            loss = torch.zeros((), dtype=torch.float64)
            for p in PARAMETERS:
                made = gradient(rank, iteration, p, broken)
                if made is not None:
                    tensor = getattr(self, p.name)
                    loss = loss + (tensor * torch.from_numpy(made).to(tensor.dtype).reshape(p.shape)).sum().double()
            return loss

    return Scripted()


Weights = dict[str, np.ndarray[Any, Any]]


def train(
    rank: int, workers: int, spec: str, momentum: float, broken: bool = False, as_shipped: bool = False
) -> tuple[list[Weights], dict[str, Any], tuple[int, int, int]]:
    """On one worker: the weights after each iteration and the plan's state, as float64; bytes sent and predicted, and
    how many blocks were sent to it again. `as_shipped`: with kernels that are compiled as users have them."""
    import torch
    from quick_kernels import shipped

    import relaxc

    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=momentum)
    with shipped() if as_shipped else nullcontext():
        plan = relaxc.compile(spec)
    relaxed = plan.attach(model, optimizer, timeout=60)
    seen = []
    for iteration in range(ITERATIONS):
        model(rank, iteration, broken).backward()
        optimizer.step()
        optimizer.zero_grad()
        relaxed.complete()
        seen.append({name: p.detach().double().numpy().copy() for name, p in model.named_parameters()})
    state = {k: v.double().numpy() for k, v in relaxed.state_dict().items() if isinstance(v, torch.Tensor)}
    relaxed.complete()
    stats = relaxed.stats()
    relaxed.detach()
    return seen, state, (stats["bytes_sent"], stats["predicted_bytes"], stats["trips"])


class Sgd:
    """torch's own, as the interpreter's rule: bits of an optimiser are no matter of this test."""

    def __init__(self, momentum: float) -> None:
        self._momentum = momentum
        self._held: dict[tuple[int, int], Any] = {}

    def step(self, worker: int, parameter: Parameter, weight: Any, grad: Any) -> Any:
        import torch

        key = (worker, parameter.number)
        kind = kinds()[parameter.dtype]
        if key not in self._held:
            tensor = torch.nn.Parameter(torch.zeros(parameter.shape, dtype=kind))
            self._held[key] = tensor, torch.optim.SGD([tensor], RATE, momentum=self._momentum)
        tensor, optimizer = self._held[key]
        tensor.data.copy_(torch.from_numpy(weight).reshape(parameter.shape))
        tensor.grad = torch.from_numpy(grad).reshape(parameter.shape).to(kind)
        optimizer.step()
        real = torch.float64 if parameter.dtype == "f64" else torch.float32
        return tensor.detach().to(real).numpy().ravel().copy()

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        return {"lr": RATE, "momentum": self._momentum, "weight_decay": 0.0}[name]

    def state(self, worker: int, parameter: Parameter, name: str) -> Any:
        raise AssertionError(f"no program of this test reads {name}")


def rounded(values: np.ndarray[Any, Any] | None, dtype: str) -> np.ndarray[Any, Any] | None:
    """As the tensor of the model holds it."""
    from relaxc.program.evaluate import round_to

    if values is None:
        return None
    return round_to(values.astype(np.float64 if dtype == "f64" else np.float32), dtype)


def interpreted(
    spec: str, workers: int, momentum: float, broken: bool = False
) -> tuple[list[list[list[Any]]], Interpreter]:
    program = pipeline.to_program(pipeline.to_spec(Source("spec", spec), {}))
    start = [rounded(first_weight(p), p.dtype) for p in PARAMETERS]
    interpreter = Interpreter(program, PARAMETERS, workers, seed=SEED, weights=start, optimizer=Sgd(momentum))
    seen = []
    for iteration in range(ITERATIONS):
        interpreter.iterate(
            [[rounded(gradient(w, iteration, p, broken), p.dtype) for p in PARAMETERS] for w in range(workers)]
        )
        seen.append([[np.array(v) for v in of_worker] for of_worker in interpreter.weights])
    return seen, interpreter


def only_codes(spec: str) -> bool:
    """Whether all that is summed is summed by kernels, in rank order."""
    manifest = pipeline.manifest_of(Source("spec", spec), {}, "spec")
    exchanges = [b.gradient.exchange for b in manifest.bodies if b.gradient is not None]
    exchanges += [t.exchange for b in manifest.bodies if b.program is not None for t in b.program.transfers]
    return all(exchange.codec is not None for exchange in exchanges)


@pytest.mark.parametrize(("name", "workers"), [*on_all(LIBRARY), *on_two(OTHERS)])
def test_a_program_gives_what_the_interpreter_says(pool: Pool, name: str, workers: int) -> None:
    spec, momentum = text_of(name), 0.0 if name in OWNING else MOMENTUM
    answers = pool.run(train, workers, spec, momentum, False, name in LIBRARY)
    wanted, interpreter = interpreted(spec, workers, momentum)
    exact = only_codes(spec)
    trips = sum(trips for _seen, _state, (_sent, _predicted, trips) in answers)
    assert (trips > 0) == (name in TRIPPING and workers > 1)
    for rank, (seen, state, (sent, predicted, _trips)) in enumerate(answers):
        assert sent == predicted or (trips and sent > predicted), "bytes on the wire are not the plan's"
        assert sent > 0 or workers == 1
        for iteration in range(ITERATIONS):
            for p in PARAMETERS:
                where = f"rank {rank}, {p.name} after iteration {iteration}"
                same(seen[iteration][p.name], wanted[iteration][rank][p.number], exact, p, where)
        same_states(state, interpreter, rank, exact)


BROKEN = (
    "choco", "d2", "ef_signsgd", "gradient_tracking", "momentum", "one_bit_adam", "slowmo", "streaming_diloco", "updates",
    "zero_one_adam",
)  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_nan_and_inf_on_one_worker(pool: Pool, name: str) -> None:
    """No state becomes non-finite, and what the workers hold is to the bit what the interpreter says."""
    spec, momentum = text_of(name), 0.0 if name in OWNING else MOMENTUM
    wanted, interpreter = interpreted(spec, 2, momentum, broken=True)
    exact = only_codes(spec)
    for rank, (seen, state, _bytes) in enumerate(pool.run(train, 2, spec, momentum, True)):
        assert all(np.isfinite(value).all() for key, value in state.items() if key.startswith("state/"))
        for iteration in range(ITERATIONS):
            for p in PARAMETERS:
                where = f"rank {rank}, {p.name} after iteration {iteration}"
                same(seen[iteration][p.name], wanted[iteration][rank][p.number], exact, p, where)
        same_states(state, interpreter, rank, exact)


def same(found: Any, wanted: Any, exact: bool, parameter: Parameter, where: str) -> None:
    wanted = np.asarray(wanted, np.float64).reshape(found.shape)
    if exact:
        np.testing.assert_array_equal(found, wanted, err_msg=where)
    else:  # a backend sums in an order, and for half types in a precision, of its own
        fine = {"bf16": 3e-2, "f64": 1e-12}.get(parameter.dtype, 1e-4)
        largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
        np.testing.assert_allclose(found, wanted, rtol=fine, atol=fine * largest, err_msg=where)


def same_states(state: dict[str, Any], interpreter: Interpreter, rank: int, exact: bool) -> None:
    for p in PARAMETERS:
        for name, value in interpreter.states(rank, p.number).items():
            key = f"state/{name}/{p.name}/rank{rank}"
            if isinstance(value, np.ndarray) and value.size:
                same(state[key].ravel(), np.ravel(value), exact, p, key)
