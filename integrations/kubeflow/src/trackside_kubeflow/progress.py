"""What is told of a training: the `trainerStatus` of its TrainJob.

The schema: https://github.com/kubeflow/trainer/tree/master/docs/proposals/2779-trainjob-progress
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from trackside import Status

MOST_METRICS = 256
LONGEST_TEXT = 64  # characters, of a name as of a value
MOST_BYTES = 60_000  # of all metrics; the controller takes a body of 64 KiB
LARGEST_INT = 2**31 - 1
BYTES_AROUND = len('{"name":,"value":""},')
POSITION = ("current_step", "total_steps", "current_epoch")

TrainerStatus = dict[str, Any]


class Progress:
    """How far a training is, how long it is going to take, and the latest value of each metric."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.ending: Status | None = None
        self._state: Any = None
        self._since = (0, 0.0)
        self._metrics: dict[str, int | float] = {}
        self._bytes = 0

    def begin(self, state: Any) -> None:
        """The training begins, or goes on, at the step of `state`, which is looked at from now on."""
        self._since = (state.global_step, time.monotonic())
        self._state, self.ending = state, None

    def note(self, values: Mapping[str, int | float]) -> list[str]:
        """Take the latest values; returns the names of those for which a status has no room."""
        metrics = dict(self._metrics)  # another thread may be reading that
        left_out = []
        for name, value in values.items():
            if name in metrics or self._has_room_for(name, len(metrics)):
                metrics[name] = value
            else:
                left_out.append(name)
        self._metrics = metrics
        return left_out

    def status(self) -> TrainerStatus:
        """The status at this moment, as JSON has it. What is not known is not in it."""
        state, ending = self._state, self.ending
        step, last = (state.global_step, state.max_steps or 0) if state is not None else (0, 0)
        status: TrainerStatus = {"lastUpdatedTime": datetime.now(timezone.utc).isoformat(timespec="seconds")}
        if state is not None and ending == "finished":
            status |= {"progressPercentage": 100, "estimatedRemainingSeconds": 0}
        elif last > 0:
            status["progressPercentage"] = min(99, 100 * step // last)
            if ending is None and (seconds := self._seconds_left(step, last)) is not None:
                status["estimatedRemainingSeconds"] = seconds
        metrics = {**self._position(), **self._metrics}
        status["metrics"] = [{"name": name, "value": _text(value)} for name, value in metrics.items()]
        return status

    def _position(self) -> dict[str, int | float]:
        """Where the training is, under the names that `transformers` gives it."""
        if (state := self._state) is None:
            return {}
        total = state.max_steps or 0
        epoch = None if state.epoch is None else round(state.epoch, 2)
        values = (state.global_step, total if total > 0 else None, epoch)
        return {name: value for name, value in zip(POSITION, values, strict=True) if value is not None}

    def _seconds_left(self, step: int, last: int) -> int | None:
        """By the pace since the beginning, which after a resume is not at step 0; None before the first step."""
        first_step, began = self._since
        if step <= first_step:
            return None
        seconds_per_step = (time.monotonic() - began) / (step - first_step)
        return min(LARGEST_INT, int(max(0, last - step) * seconds_per_step))

    def _has_room_for(self, name: str, count: int) -> bool:
        """Whether one more metric fits beside `count` others; if it does, its bytes are taken."""
        needed = len(json.dumps(name, ensure_ascii=False).encode()) + LONGEST_TEXT + BYTES_AROUND
        if count + len(POSITION) >= MOST_METRICS or self._bytes + needed > MOST_BYTES:
            return False
        self._bytes += needed
        return True


def _text(value: int | float) -> str:
    """A number as text; a long integer as the float that is nearest to it."""
    text = str(value)
    return text if len(text) <= LONGEST_TEXT else repr(float(value))
