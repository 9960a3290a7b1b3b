"""A courier: brings the records of a journal to one tracker, in order, behind the loop's back."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from trackside import Run, Status
from trackside.delivery import FAILED, Call, Delivery, reason_of
from trackside.records import Record
from trackside_spool.folder import RunFolder, Tracker
from trackside_spool.journal import Reader
from trackside_spool.snapshots import snapshot_of

logger = logging.getLogger(__name__)

LARGEST_BATCH = 500
SLICE_SECONDS = 0.01  # of CPU time, which a batch is to take while the loop runs
POLL_SECONDS = 0.2
FLUSH_SECONDS = 5.0
SHARE = 0.05
TRIES = 3
LONGEST_PAUSE = 30.0


class Budget:
    """The share of time in which all couriers of a process together may compute while a loop runs.

    Threads that compute take the interpreter from the loop; a thread that waits for a server does not, so what counts
    is CPU time. A courier reserves what its batch will take, so that no two of them count on the same time, and
    settles afterwards what it really took.
    """

    def __init__(self, share: float = SHARE) -> None:
        self._share = share
        self._free_at = 0.0
        self._lock = threading.Lock()

    def reserve(self, seconds: float) -> float:
        """Reserve CPU time; returns the seconds to wait until it may be used."""
        with self._lock:
            now = time.monotonic()
            begins = max(self._free_at, now)
            self._free_at = begins + seconds / self._share
            return begins - now

    def settle(self, seconds: float) -> None:
        """Give back CPU time that was reserved and not used, or pay for more."""
        with self._lock:
            self._free_at -= seconds / self._share


BUDGET = Budget()


class Courier(threading.Thread):
    """Starts a run at one tracker, delivers its records, finishes it, and writes down how far it has come.

    It reads the journal, so that its memory does not grow however far it lags. What fails is tried again: as long as it
    takes if the tracker cannot be reached, a few times if it refuses.

    Args:
        delivery: to the tracker; the reporter's operations are called in this thread only.
        run: as the tracker is to be told of it.
        folder: of the run.
        tracker: what the tracker has of the run; kept up to date.
        limit: the number of the first record that is not to be delivered yet.
        left_out: numbers of records that are not for this tracker.
        is_reopened: whether the run was closed there before, by this process.
    """

    def __init__(
        self,
        delivery: Delivery,
        run: Run,
        folder: RunFolder,
        tracker: Tracker,
        limit: Callable[[], int | None],
        left_out: Collection[int],
        is_reopened: bool = False,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name=f"trackside-{tracker.key}", daemon=True)
        self.delivery, self.tracker = delivery, tracker
        self._reporter = delivery.reporter
        self._run, self._folder = run, folder
        self._limit, self._left_out = limit, left_out
        self._is_reopened, self._on_start = is_reopened, on_start
        self._reader = Reader(folder.journal, tracker.durable, tracker.offset)
        self._flushed_at = time.monotonic()
        self._batch, self._took = 1, SLICE_SECONDS
        self._status: Status = "finished"
        self._closing = threading.Event()
        self.has_started = threading.Event()
        self.has_ended = threading.Event()
        self.refusal: Exception | None = None
        self.trouble = ""

    def close(self, status: Status) -> None:
        """Deliver the rest at full speed, then finish the run. Returns at once; `has_ended` tells when it is done."""
        self._status = status
        self._closing.set()

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def owed(self) -> int:
        """How many records the tracker has not got yet."""
        limit = self._limit()
        return (self._reader.number if limit is None else limit) - self.tracker.sent

    def run(self) -> None:
        try:
            if self._begin():
                self._deliver()
                self._finish()
        except Exception:
            logger.exception("%s: the delivery has failed.", self.tracker.key)
        finally:
            self.has_started.set()
            self.has_ended.set()

    def _begin(self) -> bool:
        def begin() -> None:
            self.delivery.begin(self._run, self._is_reopened)

        self.refusal = self._persist("start", begin, tries=1)
        if self.refusal is not None:
            return False
        self.tracker.tracker_id, self.tracker.status = self._reporter.tracker_id, None
        self._flush()
        self._folder.keep(self.tracker)
        self._on_start()
        self.has_started.set()
        return True

    def _deliver(self) -> None:
        while True:
            is_last = self._closing.is_set()  # asked before reading: what is told before it is read below
            records = self._reader.read(LARGEST_BATCH if is_last else self._batch, self._limit())
            if records:
                mine = [
                    self._with_snapshot(number, record) for number, record in records if number not in self._left_out
                ]
                self._deliver_batch(mine)
                self.tracker.sent = self._reader.number
                self._folder.keep(self.tracker)
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
        return record._replace(artifact=record.artifact._replace(path=str(path))) if path.exists() else record

    def _deliver_batch(self, records: list[Record]) -> None:
        """Deliver in slices of the budget, which the size of a batch is fitted to; at full speed at the end."""
        if not self._closing.is_set():
            self._closing.wait(BUDGET.reserve(self._took))
        begin = time.thread_time()
        for call in self.delivery.calls(records):
            self._make(call)
        if not self._closing.is_set():
            took = max(time.thread_time() - begin, 1e-5)
            BUDGET.settle(self._took - took)
            self._batch = max(1, min(LARGEST_BATCH, round(len(records) * SLICE_SECONDS / took)))
            self._took = took * self._batch / max(1, len(records))

    def _make(self, call: Call) -> None:
        if call.operation == "log_artifact" and not os.path.exists(call.arguments[0].path):
            self.delivery.warn_once("gone", "%s: %s is gone.", self.tracker.key, call.arguments[0].name)
            return
        error = self._persist(call.operation, lambda: getattr(self._reporter, call.operation)(*call.arguments))
        if error is None:
            self.delivery.note_success(call)
        else:
            self.delivery.note_failure(call.operation, error)

    def _flush(self) -> None:
        """What the tracker says is safe need not be sent again."""
        if self._reporter.has("flush"):
            number, offset = self._reader.number, self._reader.offset
            position = self.delivery.call("flush")
            if position is not FAILED:
                self._note_durable(number, offset, position)
        self._flushed_at = time.monotonic()

    def _note_durable(self, number: int, offset: int, position: Any = None) -> None:
        self.tracker.durable, self.tracker.offset, self.tracker.position = number, offset, position
        self._folder.keep(self.tracker)

    def _finish(self) -> None:
        self._flush()
        self.delivery.end(self._status)
        self.tracker.status = self._status
        self._note_durable(self._reader.number, self._reader.offset, self.tracker.position)

    def _persist(self, what: str, attempt: Callable[[], None], tries: int = TRIES) -> Exception | None:
        """Try until it works, with growing pauses; the error if it is one that trying again does not mend."""
        refusals = 0
        for pause in _pauses():
            error = _error_of(attempt)
            if error is None:
                self.trouble = ""
                return None
            if self._reporter.is_passing(error):
                self._tell_trouble(what, error)
            elif (refusals := refusals + 1) >= tries:
                return error
            self._pause(_retry_after(error) or pause)
        return None

    def _tell_trouble(self, what: str, error: Exception) -> None:
        self.trouble = reason_of(error)
        about = ("passing", type(error).__name__)
        self.delivery.warn_once(about, "%s: %s has to wait (%s).", self.tracker.key, what, self.trouble)

    def _pause(self, seconds: float) -> None:
        """Wait; no longer than a second once the end of the training waits for this courier."""
        if not self._closing.wait(seconds):
            return
        time.sleep(min(seconds, 1.0))


def _pauses() -> Iterator[float]:
    """Seconds between tries: doubled each time, up to half a minute, each somewhere around that so as not to crowd."""
    pause = 0.5
    while True:
        yield pause * random.uniform(0.5, 1.5)
        pause = min(2 * pause, LONGEST_PAUSE)


def _error_of(attempt: Callable[[], None]) -> Exception | None:
    try:
        attempt()
    except Exception as error:
        return error
    return None


def _retry_after(error: Exception) -> float | None:
    """The seconds that a server has asked to be left alone for, as the HTTP libraries show it."""
    headers = getattr(getattr(error, "response", error), "headers", None) or {}
    try:
        return min(float(headers.get("Retry-After", "")), 10 * LONGEST_PAUSE)
    except ValueError:
        return None
