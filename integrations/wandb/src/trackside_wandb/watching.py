"""Histograms of a model's gradients and parameters, by wandb's hooks."""

from __future__ import annotations

from typing import Any

LEAST_STEPS = 100


class Watched:
    """A model that has wandb's hooks, until they are taken off: with them it cannot be pickled."""

    def __init__(self, run: Any, model: Any, steps: int, log: str) -> None:
        self._run, self._model = run, model
        run.watch(model, log=log, log_freq=max(LEAST_STEPS, steps), idx=0)

    def end(self) -> None:
        if hasattr(self._model, "_wandb_hook_names"):
            self._run.unwatch(self._model)
