"""The values of one run: SwanLab keeps the first one of a key and step, and drops others in silence."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from trackside_swanlab.plain import metric_key


class Steps:
    """The steps at which a metric has a value."""

    def __init__(self, before: int) -> None:
        """`before`: the last one that the server has of an earlier part of the run, up to which it takes no more."""
        self.before = before
        self._steps = array("q")

    def take(self, step: int) -> bool:
        """Whether there is no value at this step yet; from now on there is one."""
        place = bisect_left(self._steps, step)
        is_taken = step <= self.before or self._steps[place : place + 1] == array("q", [step])
        if not is_taken:
            self._steps.insert(place, step)
        return not is_taken


class Rows:
    """Gives values to a run under their own step and time; the SDK's `log` has the time of its call only."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._steps: dict[str, Steps] = {}
        self._kinds: dict[str, type] = {}
        self._latest: dict[str, tuple[int, Any]] = {}

    @property
    def last_step(self) -> int:
        """The highest step that the run has so far, at the server or by calls of the user's."""
        return int(self._run._ctx._global_step)

    def add(self, values: Mapping[str, Any], step: int, time: float) -> list[str]:
        """Send what is the first of its key and step; returns the keys of others, if this run has logged another value.

        The epoch comes with each log of a step, and is the same.
        """
        new, late = {}, []
        for name, value in values.items():
            key = self._key(name, type(value))
            steps = self._steps_of(key)
            if steps.take(step):
                new[key] = value
                self._latest[key] = step, value
            elif step > steps.before and self._latest.get(key) != (step, value):
                late.append(key)
        if new:
            self._send(new, step, time)
        return late

    def _key(self, name: str, kind: type) -> str:
        """A metric is of one kind for ever: texts under the name of a number have a name of their own."""
        key = metric_key(name)
        return key if self._kinds.setdefault(key, kind) is kind else f"{key} ({kind.__name__})"

    def _steps_of(self, key: str) -> Steps:
        if key not in self._steps:
            metrics = getattr(self._run._ctx.core, "_metrics", None)  # of which there is no public word
            metric = None if metrics is None else metrics.get(key)
            self._steps[key] = Steps(-1 if metric is None else metric.min_step)
        return self._steps[key]

    def _send(self, values: dict[str, Any], step: int, time: float) -> None:
        from swanlab.sdk.internal.bus.events import MetricLogEvent, Timestamp

        timestamp = Timestamp()
        timestamp.FromNanoseconds(int(time * 1e9))
        with self._run._api_lock:
            if not self._run.alive:
                raise RuntimeError("the run was finished by somebody else")
            self._run._ctx.next_step(step)  # a call of the user's without a step goes on from here
            self._run._components.emitter.emit(MetricLogEvent(data=values, step=step, timestamp=timestamp))
