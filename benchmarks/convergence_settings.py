"""What each spec is run with: its own text where its periods are meant for longer trainings, and a learning rate that
fits what it updates with."""

from __future__ import annotations

from dataclasses import dataclass

ITERATIONS = 400


@dataclass(frozen=True)
class Settings:
    """`text` stands for the shipped spec where that is not run as it is."""

    text: str = ""
    rate: float = 0.05
    momentum: float = 0.9


ADAM = 0.003
SIGNS = 0.01
OWN = {
    "diloco": Settings("relax with diloco { period = 10 }"),
    "one_bit_adam": Settings("relax with one_bit_adam { warmup = 100, eps = 1e-4 }", ADAM, 0.0),
    "zero_one_adam": Settings("relax with zero_one_adam { warmup = 100, double = 100, kappa = 4 }", ADAM, 0.0),
    "qadam": Settings("relax with qadam { warmup = 100, eps = 1e-4 }", ADAM, 0.0),
    "post_local_sgd": Settings("relax with post_local_sgd { start = 150, period = 4 }"),
    "slowmo": Settings("relax with slowmo { period = 10 }"),
    "streaming_diloco": Settings("relax with streaming_diloco { period = 20, late = 3 }"),
    "noloco": Settings("relax with noloco { period = 20 }"),
    "majority_vote": Settings(rate=SIGNS, momentum=0.0),
    "ef_signsgd": Settings(rate=0.5, momentum=0.0),
    "demo": Settings("relax gradients for ndim < 2\nrelax with demo { side = 16, keep = 8 }", SIGNS, 0.0),
    "dgc": Settings("relax gradients for ndim < 2\nrelax with dgc { epoch = 50 }", 0.2, 0.0),
    "random_k": Settings(
        "relax gradients for ndim < 2\nrelax gradients { compress = randomk(10%), feedback = worker }", 0.02
    ),
    "easgd": Settings("relax with easgd { period = 2 }"),
}


def settings_of(spec: str) -> Settings:
    return OWN.get(spec, Settings())


CELLS = {
    ("synchronous", "full", "centralised"): "allreduce",
    ("synchronous", "low", "centralised"): "bytegrad",
    ("synchronous", "full", "decentralised"): "dpsgd",
    ("synchronous", "low", "decentralised"): "choco",
    ("asynchronous", "full", "centralised"): "async_average",
    ("asynchronous", "low", "centralised"): "async_bytegrad",
    ("asynchronous", "full", "decentralised"): "swarm",
    ("asynchronous", "low", "decentralised"): "swarm_8bit",
}
