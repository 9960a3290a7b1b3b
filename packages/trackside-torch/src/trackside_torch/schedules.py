"""How the learning rate moves: linear warm-up from 0, then by the schedule."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def _constant(progress: float) -> float:
    return 1.0


def _linear(progress: float) -> float:
    return 1.0 - progress


def _cosine(progress: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * progress))


SCHEDULES: dict[str, Callable[[float], float]] = {
    "linear": _linear,
    "cosine": _cosine,
    "constant": _constant,
    "constant_with_warmup": _constant,
}
"""The part of the full learning rate, by name, at a progress from 0 (end of the warm-up) to 1 (end of training)."""


def get_scheduler(name: str, optimizer: Optimizer, warmup_steps: int, total_steps: int) -> LambdaLR:
    """The schedule `name` over `total_steps`, of which the first `warmup_steps` rise from 0; `constant` has none."""
    shape = SCHEDULES[name]
    warmup = 0 if name == "constant" else warmup_steps
    decay = max(total_steps - warmup, 1)

    def factor(step: int) -> float:
        if step < warmup:
            return step / warmup
        return shape((step - warmup) / decay if step < total_steps else 1.0)

    return LambdaLR(optimizer, factor)
