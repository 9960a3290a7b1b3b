"""The delivery: from the records of a run to the calls that its tracker takes."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trackside.mapping import Keys, batches, chunks, cut
from trackside.records import Point, Record, Run, Status
from trackside.values import describe, flatten, redact, scalar
from trackside.watch import come_first

if TYPE_CHECKING:
    from trackside.reporter import Reporter

logger = logging.getLogger(__name__)

# What a training logs once, at its end.
SUMMARY = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")

FAILED = object()

LONGEST_REASON = 240  # characters

# Two threads that import packages with circular imports at once can find them half made. A child that is forked
# meanwhile would wait for ever for the rest, so forks wait for imports.
_importing = threading.RLock()
_is_held = False
LONGEST_WAIT_OF_FORKS = 10.0  # seconds


def _hold_imports() -> None:
    global _is_held
    _is_held = _importing.acquire(timeout=LONGEST_WAIT_OF_FORKS)


def _go_on_importing() -> None:
    if _is_held:
        _importing.release()


def _renew_in_child() -> None:
    global _importing
    _importing = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_imports, after_in_parent=_go_on_importing, after_in_child=_renew_in_child)

Numbers = dict[str, "int | float"]


class Call(NamedTuple):
    """One call of one operation of a reporter, and how many values it brings."""

    operation: str
    arguments: tuple[Any, ...]
    values: int = 1


class Delivery:
    """Brings one run to one tracker: its records become calls, under the tracker's keys and within its limits.

    Every call goes through one door, `call`: what fails there is counted and told once, and never harms the training.
    """

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        reporter.run = reporter.tracker_id = None
        reporter.adopted = False
        self.sent = 0
        """The values that the tracker has taken."""
        self.is_elsewhere = False
        """Whether another process makes the calls."""
        self.shown_by: str | None = None
        """What that process says that shows the run to a person."""
        self._limits = reporter.limits
        self._metric_keys = Keys(reporter.limits, reporter.key_style)
        self._param_keys = Keys(reporter.limits)
        self._warned: set[Any] = set()
        self._failures: Counter[str] = Counter()

    @property
    def metrics(self) -> int:
        """How many metrics the run has."""
        return len(self._metric_keys)

    # ---- the life of the run at the tracker ---------------------------------------------------------------------

    def begin(self, run: Run, is_reopened: bool = False) -> None:
        """Start a run and send its parameters, or reopen one; raises what `start` raises."""
        self.start(run)
        if not is_reopened:
            try:
                self._make_all(self.param_calls(run))
            except BaseException:  # interrupted: nobody else knows yet that a run is open
                self.end("killed")
                raise

    def start(self, run: Run) -> None:
        """Start or reopen a run, and nothing else; raises what `start` raises."""
        try:
            with _importing:
                self.reporter.import_sdk()
            tracker_id: Any = self.reporter.start(run)
            self.reporter.tracker_id = None if tracker_id is None else str(tracker_id)  # it goes into JSON
            come_first()
        except BaseException:
            self.reporter.run = None
            raise

    def deliver(self, records: Sequence[Record]) -> None:
        """Bring records of the run, in order, to the tracker."""
        self._make_all(self.calls(records))

    def end(self, status: Status) -> None:
        """Finish the run, unless it is the user's own, and say what the tracker has missed."""
        try:
            self.call("flush")
        finally:  # also when it is interrupted, by somebody who has no patience with a slow flush
            if not self.reporter.adopted:
                self.call("finish", status)
            self.conclude()

    def conclude(self) -> None:
        """Let go of a run that is finished, and say what the tracker has missed."""
        self.reporter.run = None
        if self._failures:
            failed = ", ".join(f"{operation} ({count})" for operation, count in self._failures.items())
            logger.warning("%s did not take everything; calls that failed: %s.", self.reporter.name, failed)
            self._failures.clear()

    # ---- the door -----------------------------------------------------------------------------------------------

    def call(self, operation: str, *arguments: Any) -> Any:
        """What an operation returns, or `FAILED` if it raises."""
        try:
            return getattr(self.reporter, operation)(*arguments)
        except Exception as error:
            self.note_failure(operation, error)
            return FAILED

    def note_failure(self, operation: str, error: Exception) -> None:
        self._failures[operation] += 1
        about = operation, type(error)
        self.warn_once(about, "%s: %s failed (%s).", self.reporter.name, operation, reason_of(error))

    def where(self) -> str | None:
        """What shows the run to a person, if the tracker can say so."""
        hint = self.shown_by if self.is_elsewhere else self.call("where")
        return hint if isinstance(hint, str) else None

    def note_success(self, call: Call) -> None:
        if call.operation == "log_points":
            self.sent += call.values

    def warn_once(self, about: Any, message: str, *values: Any) -> None:
        """Log a warning, if there was none about this in this run."""
        if about not in self._warned:
            self._warned.add(about)
            logger.warning(message, *values)

    def _make_all(self, calls: Iterator[Call]) -> None:
        for call in calls:
            if self.call(call.operation, *call.arguments) is not FAILED:
                self.note_success(call)

    # ---- records to calls ---------------------------------------------------------------------------------------

    def calls(self, records: Sequence[Record]) -> Iterator[Call]:
        """The calls that bring `records` to the tracker, points in batches."""
        points = []
        for record in records:
            numbers: Numbers = {}
            summary: Numbers = {}
            for name, value in record.values.items():
                key = self._metric_keys(name)
                if (number := scalar(value)) is not None:
                    (summary if self._is_summary(record, name) else numbers)[key] = number
                elif isinstance(value, str) and self.reporter.has("log_text"):
                    yield Call("log_text", (key, cut(value, self._limits.text), record.step, record.time))
                    yield from self._whole(key, f"texts/{key}/{record.step:08}.txt", value, self._limits.text)
                elif record.kind != "finished":
                    self._leave_out(name, value)
            if numbers:
                points.append(Point(numbers, record.step, record.epoch, record.time))
            if summary:
                yield Call("log_summary", (summary,), len(summary))
            if record.artifact is not None and self.reporter.takes_artifacts:
                yield Call("log_artifact", (record.artifact,))
        for batch in batches(points, self._limits.points_per_call):
            yield Call("log_points", (batch,), sum(len(point.values) for point in batch))

    def param_calls(self, run: Run) -> Iterator[Call]:
        """The calls that bring the parameters of a run to the tracker."""
        if self.reporter.has("log_params"):
            limit = self._limits.param_value
            params = {self._param_keys(name): value for name, value in flatten(run.params).items()}
            for chunk in chunks(params, self._limits.params_per_call):
                within = {key: _cut(value, limit) for key, value in chunk.items()}
                yield Call("log_params", (within,), len(within))
                for key, value in chunk.items():
                    if within[key] is not value:
                        yield from self._whole(key, f"params/{key}.txt", str(value), limit)

    def _is_summary(self, record: Record, name: str) -> bool:
        return (record.kind == "finished" or name in SUMMARY) and self.reporter.has("log_summary")

    def _leave_out(self, name: str, value: Any) -> None:
        kind = type(value).__name__
        self.warn_once(name, "%s takes no %s: %s is left out.", self.reporter.name, kind, name)

    def _whole(self, key: str, file: str, text: str, limit: int | None) -> Iterator[Call]:
        """Say that a text was cut, and keep it whole if the tracker keeps files."""
        if limit is None or len(text) <= limit:
            return
        is_kept = self.reporter.has("log_file")
        whole = f"{key} is cut, and whole in the run's file {file}" if is_kept else f"{key} is cut"
        self.warn_once(("cut", key), "%s takes %d characters of a text: %s.", self.reporter.name, limit, whole)
        if is_kept:
            yield Call("log_file", (file, text))


def _cut(value: Any, limit: int | None) -> Any:
    """A parameter, as much of it as a tracker takes: what is no number is measured by its text."""
    if limit is None or isinstance(value, (bool, int, float, type(None))) or len(str(value)) <= limit:
        return value
    return cut(str(value), limit)


def said_by(error: BaseException) -> str:
    """What an exception says, without its secrets, and even if it fails to say it."""
    return f"{type(error).__name__}: {redact(describe(error))}"


def reason_of(error: BaseException) -> str:
    """What an exception says, as part of a line for a person: of a long story its beginning and its end."""
    text, half = " ".join(said_by(error).split()), LONGEST_REASON // 2
    return text if len(text) <= LONGEST_REASON else f"{text[:half]} ... {text[-half:]}"
