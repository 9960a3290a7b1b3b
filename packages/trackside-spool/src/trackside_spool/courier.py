"""A courier: brings the records of a journal to one tracker, in order, behind the loop's back."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from trackside import Point, Run, Status
from trackside.delivery import FAILED, Call, Delivery, reason_of
from trackside.mapping import batches
from trackside.records import Record
from trackside_spool.budget import BUDGET
from trackside_spool.folder import RunFolder, Tracker
from trackside_spool.journal import Journal, Reader
from trackside_spool.recipe import note_place
from trackside_spool.retries import error_of, pauses, retry_after
from trackside_spool.snapshots import snapshot_of, take_out_rewritten

logger = logging.getLogger(__name__)


class HandedOver(Exception):
    """Another courier is to deliver the rest."""


LARGEST_BATCH = 500
SLICE_SECONDS = 0.01  # of CPU time, which a batch is to take while the loop runs
POLL_SECONDS = 0.2
FLUSH_SECONDS = 5.0
TRIES = 3


class Courier(threading.Thread):
    """Starts a run at one tracker, delivers its records, finishes it, and writes down how far it has come.

    It reads the journal, so that its memory does not grow however far it lags. What fails is tried again: as long as it
    takes if the tracker cannot be reached, a few times if it refuses; what it has refused it is owed.

    Args:
        delivery: to the tracker; the reporter's operations are called in this thread only.
        run: as the tracker is to be told of it.
        folder: of the run.
        tracker: what the tracker has of the run; kept up to date.
        limit: the number of the first record that is not to be delivered yet.
        is_for: whether a record, told by its number and itself, is for this tracker.
        is_reopened: whether the run was closed there before, by this process.
        journal: what is written to in this process, for the records that a full disk keeps in memory.
        after: a courier to the same tracker that has to end before this one begins.
        on_start: called when the run is open at the tracker.
        on_trouble: told why a call has to wait, and nothing when it waits no more.
        on_end: called when nothing more is going to happen.
    """

    def __init__(
        self,
        delivery: Delivery,
        run: Run,
        folder: RunFolder,
        tracker: Tracker,
        limit: Callable[[], int | None],
        is_for: Callable[[int, Record], bool],
        is_reopened: bool = False,
        *,
        journal: Journal | None = None,
        after: Any = None,
        on_start: Callable[[], None] = lambda: None,
        on_trouble: Callable[[str], None] = lambda trouble: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name=f"trackside-{tracker.key}", daemon=True)
        self.delivery, self.tracker = delivery, tracker
        self._reporter = delivery.reporter
        self._run, self._folder, self._journal = run, folder, journal
        self._limit, self._is_for = limit, is_for
        self._is_reopened, self._after = is_reopened, after
        self._on_start, self._on_trouble, self._on_end = on_start, on_trouble, on_end
        self._flushed_at = time.monotonic()
        self._batch, self._took = 1, SLICE_SECONDS
        self._status: Status = "finished"
        self._closing = threading.Event()
        self._is_handed_over = False
        self.has_answered, self.has_started = threading.Event(), False
        self.has_ended = threading.Event()
        self.is_waited_for = True
        self.refusal: Exception | None = None
        self.trouble = ""
        self._refused_because = ""

    def close(self, status: Status) -> None:
        """Deliver the rest at full speed, then finish the run. Returns at once; `has_ended` tells when it is done."""
        self._status = status
        self._closing.set()

    def hand_over(self) -> None:
        """Leave the rest to another courier, after the call that is being made. Returns at once."""
        self._is_handed_over = True
        self._closing.set()

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def owed(self) -> int:
        """How many records the tracker has not got yet."""
        return max(0, (self._limit() or 0) - self.tracker.sent) + self.tracker.refusals

    def run(self) -> None:
        try:
            if self._after is not None:
                self._after.has_ended.wait()
            self._reader = Reader(self._folder.journal, self.tracker.durable, self.tracker.offset, self._journal)
            if self._begin():
                self._deliver()
                self._finish()
        except HandedOver:
            pass
        except BaseException as error:  # a thread ends in silence by a SystemExit
            self.trouble = reason_of(error)
            logger.exception("%s: the delivery has failed.", self.tracker.key)
        finally:
            self.has_answered.set()
            self.has_ended.set()
            self._on_end()

    def _begin(self) -> bool:
        self.refusal = self._persist("start", lambda: self.delivery.start(self._run), tries=1)
        note_place(self.tracker, self._reporter)
        if self.refusal is not None:
            self.keep()
            self.trouble = reason_of(self.refusal)
            tell_of_late_refusal(self, self.tracker.key)
            return False
        self.tracker.tracker_id, self.tracker.status = self._reporter.tracker_id, None
        self._flush()
        self.keep()
        self.has_started = True
        self._on_start()
        self.has_answered.set()
        if not self.tracker.has_params:
            params = [self._make(call) for call in self.delivery.param_calls(self._run)]
            self.tracker.has_params = all(params)
            self._flush()
        if self.tracker.refused and not self._is_reopened:
            self._deliver_refused()
        return True

    def _deliver_refused(self) -> None:
        """Try once more what was refused before; what is refused again is added at the end."""
        reader = Reader(self._folder.journal)
        for owed in sorted(self.tracker.refused):
            first, end = owed
            while records := reader.read(LARGEST_BATCH, end):
                self._deliver_batch([(number, record) for number, record in records if number >= first])
            self.tracker.refused.remove(owed)
            self.keep()

    def _deliver(self) -> None:
        while True:
            if self._is_handed_over:
                self._flush()
                raise HandedOver
            is_last = self._closing.is_set()  # asked before reading: what is told before it is read below
            records = self._reader.read(LARGEST_BATCH if is_last else self._batch, self._limit())
            if records:
                self._deliver_batch(records)
                self.tracker.sent = self._reader.number
                self.keep()
            elif is_last:
                return
            else:
                self._closing.wait(POLL_SECONDS)
            if time.monotonic() - self._flushed_at > FLUSH_SECONDS:
                self._flush()

    def _with_snapshot(self, number: int, record: Record) -> Record:
        """A record whose artifact is read from its snapshot, as long as there is one."""
        if record.artifact is None:
            return record
        path = snapshot_of(record.artifact, number, self._folder.artifacts)
        if not path.exists():
            return record
        if rewritten := take_out_rewritten(path):
            message = "%s: of %s, what was rewritten in place since it was saved is left out: %s."
            files = ", ".join(rewritten)
            self.delivery.warn_once("rewritten", message, self.tracker.key, record.artifact.name, files)
        return record._replace(artifact=record.artifact._replace(path=str(path)))

    def _deliver_batch(self, records: list[tuple[int, Record]]) -> None:
        """Deliver in slices of the budget, which the size of a batch is fitted to; at full speed at the end."""
        mine = [(number, record) for number, record in records if self._is_for(number, record)]
        if not self._closing.is_set():
            self._closing.wait(BUDGET.reserve(self._took))
        begin = time.thread_time()
        for number in sorted(self._refused_of(mine)):
            self.tracker.refuse(number, number + 1)
        if not self._closing.is_set():
            took = max(time.thread_time() - begin, 1e-5)
            BUDGET.settle(self._took - took)
            self._batch = max(1, min(LARGEST_BATCH, round(len(records) * SLICE_SECONDS / took)))
            self._took = took * self._batch / max(1, len(records))

    def _refused_of(self, records: list[tuple[int, Record]]) -> set[int]:
        """Deliver records, their points in batches; the numbers of those of which the tracker refuses something."""
        refused: set[int] = set()
        points: list[Point] = []
        number_of: dict[int, int] = {}
        for number, record in records:
            for call in self.delivery.calls([self._with_snapshot(number, record)]):
                if call.operation == "log_points":
                    (found,) = call.arguments
                    points += found
                    number_of.update((id(point), number) for point in found)
                elif not self._make(call):
                    refused.add(number)
        for batch in batches(points, self._reporter.limits.points_per_call):
            refused |= {number_of[id(point)] for point in self._refused_points(batch)}
        return refused

    def _refused_points(self, batch: list[Point]) -> list[Point]:
        """Send points; those that the tracker refuses, also when it is asked to take each of them alone."""
        if len(batch) > 1 and self._error(_call_of(batch)) is None:
            return []
        tries = TRIES if len(batch) == 1 else 1
        return [point for point in batch if not self._make(_call_of([point]), tries)]

    def _make(self, call: Call, tries: int = TRIES) -> bool:
        """Make a call; false if the tracker refuses it."""
        if call.operation == "log_artifact" and not os.path.exists(call.arguments[0].path):
            self.delivery.warn_once("gone", "%s: %s is gone.", self.tracker.key, call.arguments[0].name)
            return True
        error = self._error(call, tries)
        if error is not None:
            self._note_refusal(call.operation, error)
        return error is None

    def _error(self, call: Call, tries: int = TRIES) -> Exception | None:
        """Make a call; the error with which the tracker refuses it."""
        make = getattr(self._reporter, call.operation)
        error = self._persist(call.operation, lambda: make(*call.arguments), tries)
        if error is None:
            self.delivery.note_success(call)
        return error

    def _note_refusal(self, operation: str, error: Exception) -> None:
        self._refused_because = reason_of(error)
        self.delivery.note_failure(operation, error)

    def _flush(self) -> None:
        """What the tracker says is safe need not be sent again."""
        if self._reporter.has("flush"):
            number, offset = self._reader.number, self._reader.offset
            position = self.delivery.call("flush")
            if position is not FAILED and position is not NotImplemented:
                self._note_durable(number, offset, position)
        self._flushed_at = time.monotonic()

    def _note_durable(self, number: int, offset: int, position: Any = None) -> None:
        self.tracker.durable, self.tracker.offset, self.tracker.position = number, offset, position
        self.keep()

    def keep(self) -> None:
        """Write down what the tracker has. Where that cannot be done, a replay would deliver it again."""
        try:
            self._folder.keep(self.tracker)
        except OSError as error:
            message = "What %s has cannot be written down (%s)."
            self.delivery.warn_once("keep", message, self.tracker.key, reason_of(error))

    def _finish(self) -> None:
        self._flush()
        error = None
        if not self._reporter.adopted:
            error = self._persist("finish", lambda: self._reporter.finish(self._status))
        if error is None:
            self.tracker.status = self._status
            self._note_durable(self._reader.number, self._reader.offset, self.tracker.position)
        else:
            self._note_refusal("finish", error)
        self.trouble = self._refused_because
        self.delivery.conclude()

    def _persist(self, what: str, attempt: Callable[[], None], tries: int = TRIES) -> Exception | None:
        """Try until it works, with growing pauses; the error if it is one that trying again does not mend."""
        refusals = 0
        for pause in pauses():
            error = error_of(attempt)
            if error is None:
                self._note_trouble("")
                return None
            if self._reporter.is_passing(error):
                self._tell_trouble(what, error)
            elif (refusals := refusals + 1) >= tries:
                return error
            self._pause(retry_after(error) or pause)
            if self._is_handed_over:
                raise HandedOver
        return None

    def _tell_trouble(self, what: str, error: Exception) -> None:
        self._note_trouble(reason_of(error))
        about = ("passing", type(error).__name__)
        self.delivery.warn_once(about, "%s: %s has to wait (%s).", self.tracker.key, what, self.trouble)
        self.has_answered.set()  # nobody has to wait for a server that is away

    def _note_trouble(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self._on_trouble(trouble)

    def _pause(self, seconds: float) -> None:
        """Wait; no longer than a second once the end of the training waits for this courier."""
        if not self._closing.wait(seconds):
            return
        time.sleep(min(seconds, 1.0))


def _call_of(points: list[Point]) -> Call:
    return Call("log_points", (points,), sum(len(point.values) for point in points))


def tell_of_late_refusal(courier: Any, key: str) -> None:
    """Warn of a tracker that refuses to start when nobody waits for it any more."""
    if not courier.is_waited_for:
        logger.warning("%s cannot start (%s); what it is owed is kept.", key, courier.trouble)
