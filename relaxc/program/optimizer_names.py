"""What torch's optimisers call what they keep and what they are set to, for `optimizer.NAME`.

Any other name may be one of a user's own optimiser, so it is only doubted where it looks like a slip.
"""

from __future__ import annotations

from relaxc.language.words import did_you_mean

STATES = frozenset({
    "momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "square_avg", "grad_avg", "acc_delta",
    "sum", "ax", "prev", "step_size",
})  # fmt: skip
"""What is kept for each element of a parameter; all other names are settings."""

SETTINGS = frozenset({
    "alpha", "amsgrad", "beta2_decay", "centered", "d", "dampening", "decoupled_weight_decay", "eps",
    "initial_accumulator_value", "lambd", "lr", "lr_decay", "maximize", "momentum", "momentum_decay", "nesterov", "rho",
    "t0", "weight_decay",
})  # fmt: skip
"""Those that are numbers."""

ALIKE = 0.8


def doubt(name: str) -> str | None:
    """`did you mean ...?` for a name that is none of torch's but nearly one."""
    return None if name in STATES | SETTINGS else did_you_mean(name, STATES | SETTINGS, ALIKE)
