"""The delivery: from the records of a run to the calls that its tracker takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trackside.mapping import Keys, batches, chunks, cut
from trackside.records import Point, Record, Run
from trackside.values import flatten, scalar

if TYPE_CHECKING:
    from trackside.reporter import Reporter

# What a training logs once, at its end.
SUMMARY = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")

Numbers = dict[str, "int | float"]


class Call(NamedTuple):
    """One call of one operation of a reporter, with how many values it brings."""

    operation: str
    arguments: tuple[Any, ...]
    values: int = 1


class Delivery:
    """Maps the records of one run to calls of a reporter, under the tracker's keys and within its limits."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._limits = reporter.limits
        self._metric_keys = Keys(reporter.limits, reporter.key_style)
        self._param_keys = Keys(reporter.limits)

    @property
    def metrics(self) -> int:
        """How many metrics the run has."""
        return len(self._metric_keys)

    def calls(self, records: Sequence[Record]) -> Iterator[Call]:
        """The calls that bring `records` to the tracker, points in batches."""
        points = []
        for record in records:
            numbers: Numbers = {}
            summary: Numbers = {}
            for name, value in record.values.items():
                key = self._metric_keys(name)
                if (number := scalar(value)) is not None:
                    (summary if self._is_summary(name) else numbers)[key] = number
                elif isinstance(value, str) and self._reporter.has("log_text"):
                    yield Call("log_text", (key, cut(value, self._limits.text), record.step, record.time))
                else:
                    self._leave_out(name, value)
            if numbers:
                points.append(Point(numbers, record.step, record.epoch, record.time))
            if summary:
                yield Call("log_summary", (summary,), len(summary))
            if record.artifact is not None and self._reporter.has("log_artifact"):
                yield Call("log_artifact", (record.artifact,))
        for batch in batches(points, self._limits.points_per_call):
            yield Call("log_points", (batch,), sum(len(point.values) for point in batch))

    def param_calls(self, run: Run) -> Iterator[Call]:
        """The calls that bring the parameters of a run to the tracker."""
        if self._reporter.has("log_params"):
            params = {self._param_keys(name): self._cut(name, value) for name, value in flatten(run.params).items()}
            for chunk in chunks(params, self._limits.params_per_call):
                yield Call("log_params", (chunk,), len(chunk))

    def _is_summary(self, name: str) -> bool:
        return name in SUMMARY and self._reporter.has("log_summary")

    def _leave_out(self, name: str, value: Any) -> None:
        kind = type(value).__name__
        self._reporter._warn_once(name, "%s takes no %s: %s is left out.", self._reporter.name, kind, name)

    def _cut(self, name: str, value: Any) -> Any:
        limit = self._limits.param_value
        if limit is None or isinstance(value, (bool, int, float, type(None))) or len(str(value)) <= limit:
            return value
        message = "%s takes %d characters of a parameter: %s is cut."
        self._reporter._warn_once(name, message, self._reporter.name, limit, name)
        return cut(str(value), limit)
