"""The delivery: from the records of a run to the calls that its tracker takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trackside.mapping import Keys, batches, chunks, cut
from trackside.records import Point, Record, Run
from trackside.values import flatten, scalar

if TYPE_CHECKING:
    from trackside.reporter import Reporter

# What a training logs once, at its end.
SUMMARY = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")

Numbers = dict[str, "int | float"]


class Delivery:
    """Maps the records of one run to a reporter's operations, under the tracker's keys and within its limits."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._limits = reporter.limits
        self._metric_keys = Keys(reporter.limits, reporter.key_style)
        self._param_keys = Keys(reporter.limits)
        self.sent = 0
        """The values that the tracker has taken."""

    @property
    def metrics(self) -> int:
        """How many metrics the run has."""
        return len(self._metric_keys)

    def deliver(self, records: Sequence[Record]) -> None:
        points = []
        for record in records:
            numbers, summary = self._sort(record)
            if numbers:
                points.append(Point(numbers, record.step, record.epoch, record.time))
            if summary:
                self._reporter._call("log_summary", summary)
            if record.artifact is not None:
                self._reporter._call("log_artifact", record.artifact)
        for batch in batches(points, self._limits.points_per_call):
            if self._reporter._call("log_points", batch, failed=False) is not False:
                self.sent += sum(len(point.values) for point in batch)

    def _sort(self, record: Record) -> tuple[Numbers, Numbers]:
        """The numbers of a record as points and as summary, by the tracker's keys; texts are sent on their own."""
        reporter = self._reporter
        numbers: Numbers = {}
        summary: Numbers = {}
        for name, value in record.values.items():
            key = self._metric_keys(name)
            if (number := scalar(value)) is not None:
                is_summary = name in SUMMARY and reporter.has("log_summary")
                (summary if is_summary else numbers)[key] = number
            elif isinstance(value, str) and reporter.has("log_text"):
                reporter._call("log_text", key, cut(value, self._limits.text), record.step, record.time)
            else:
                kind = type(value).__name__
                reporter._warn_once(name, "%s takes no %s: %s is left out.", reporter.name, kind, name)
        return numbers, summary

    def send_params(self, run: Run) -> None:
        if not self._reporter.has("log_params"):
            return
        params = {self._param_keys(name): self._cut(name, value) for name, value in flatten(run.params).items()}
        for chunk in chunks(params, self._limits.params_per_call):
            self._reporter._call("log_params", chunk)

    def _cut(self, name: str, value: Any) -> Any:
        limit = self._limits.param_value
        if limit is None or isinstance(value, (bool, int, float, type(None))) or len(str(value)) <= limit:
            return value
        message = "%s takes %d characters of a parameter: %s is cut."
        self._reporter._warn_once(name, message, self._reporter.name, limit, name)
        return cut(str(value), limit)
