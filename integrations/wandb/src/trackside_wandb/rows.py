"""The rows of a run's history, and which of them a continued run has already."""

from __future__ import annotations

from typing import Any

from trackside import Point

STEP = "train/global_step"
LOGGED_AT = "trackside/logged_at"


class Rows:
    """Writes points as rows, on an axis of their own, each with the time at which the loop logged it.

    Args:
        run: wandb's own.
        latest: when the loop has logged the latest row that the run is known to have, None if it has none.
    """

    def __init__(self, run: Any, latest: float | None) -> None:
        self._run, self._latest = run, latest
        self._is_gapless = True
        run.define_metric(STEP)
        run.define_metric(LOGGED_AT, hidden=True)
        run.define_metric("*", step_metric=STEP, step_sync=True)

    def add(self, point: Point) -> None:
        """Write a row unless the run has it. After one that was refused none says that all before it is there."""
        if self._has(point.time):
            return
        mark = {LOGGED_AT: point.time} if self._is_gapless else {}
        try:
            self._run.log({**point.values, **mark, STEP: point.step, "_timestamp": point.time})
        except Exception:
            self._is_gapless = False
            raise

    def add_text(self, key: str, text: str, step: int, time: float) -> None:
        if self._latest is None or time > self._latest:
            self._run.log({key: text, STEP: step, "_timestamp": time})

    def _has(self, time: float) -> bool:
        """Points come in their order, up to the latest row and then on: clocks may be set back."""
        if self._latest is None or time < self._latest:
            return self._latest is not None
        is_latest, self._latest = time == self._latest, None
        return is_latest
