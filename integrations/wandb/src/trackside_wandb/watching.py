"""Histograms of a model's gradients and parameters, by wandb's hooks."""

from __future__ import annotations

from typing import Any

LEAST_STEPS = 100


class Watched:
    """A model that has wandb's hooks from `begin` to `end`: with them it cannot be pickled."""

    def __init__(self, model: Any, log: str, steps: int) -> None:
        self._model, self._log, self._steps = model, log, max(LEAST_STEPS, steps)
        self._run: Any = None

    def begin(self, run: Any) -> None:
        run.watch(self._model, log=self._log, log_freq=self._steps, idx=0)
        self._run = run

    def end(self) -> None:
        if self._run is not None and hasattr(self._model, "_wandb_hook_names"):
            self._run.unwatch(self._model)
