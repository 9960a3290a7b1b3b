"""The recorder that writes first and delivers behind."""

from __future__ import annotations

import dataclasses
import logging
import os
import shlex
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import orjson

from trackside.console import say
from trackside.recorder import Payload, Recorder, Session
from trackside.records import Artifact, Kind, Record, Run, Status, new_id
from trackside.reporter import Reporter
from trackside.state import TrainerState
from trackside.values import REDACTED, describe, redact, scalar
from trackside_spool.courier import Courier
from trackside_spool.folder import InUseError, RunFolder, Tracker
from trackside_spool.journal import Journal, Reader, count_records, decode_record, encode, encode_record
from trackside_spool.process import CourierProcess, RemoteCourier
from trackside_spool.snapshots import Snapshots

logger = logging.getLogger(__name__)

# What the base class of reporters keeps on them; anything else was set by a user's `setup`.
OF_ITS_OWN = {"run", "tracker_id", "adopted", "_session", "_given"}


def seconds_of(variable: str, default: float) -> float:
    """A number of seconds from the environment."""
    try:
        return float(os.environ.get(variable, default))
    except ValueError:
        return default


class SpoolRecorder(Recorder):
    """Writes each record down before the log call returns, and leaves the rest to a courier for each reporter."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._folder = self._claim()
        self._journal = Journal(self._folder.journal, self.run)
        self._count = count_records(self._folder.journal)
        self._last_offset = self._journal.end
        self._courier_process: CourierProcess | None = None
        self._couriers: dict[str, Courier | RemoteCourier] = {}
        self._unfinished: list[Courier | RemoteCourier] = []
        self._skips: dict[str, int] = {}
        self._left_out: dict[str, set[int]] = {}
        self._snapshots = Snapshots(self._folder.artifacts, self._is_delivered)
        self._numeric: set[type] = {int, float, bool}
        self._last_log = (-1, b"{}")

    def _claim(self) -> RunFolder:
        """The run's folder. A run that is live in another process is left to it, and this becomes a new one."""
        try:
            folder = RunFolder.of(self.run)
            folder.lock()
        except InUseError:
            self.run = dataclasses.replace(self.run, id=new_id())
            folder = RunFolder.of(self.run)
            folder.lock()
        return folder

    # ---- the tracker's side -------------------------------------------------------------------------------------

    def open(self, session: Session, run: Run, is_reopened: bool) -> None:
        reporter = session.delivery.reporter
        if reporter.live:
            super().open(session, run, is_reopened)
            return
        left_out = self._left_out.setdefault(session.key, set())
        tracker = self._folder.tracker(session.key)
        if tracker is None:
            offset = self._journal.end if session.position == self._count else self._last_offset
            tracker = Tracker(session.key, *_recipe(reporter), None, session.position, session.position, offset)
        elif not is_reopened:
            superseded = self._superseded(tracker, run.step)
            left_out |= superseded
            self._write_skips(session.key, superseded)
            run = dataclasses.replace(run, position=tracker.position)
        self._folder.lock()
        self._folder.keep(tracker)
        courier = self._start_courier(session, run, tracker, left_out, is_reopened)
        courier.has_started.wait(seconds_of("TRACKSIDE_START_SECONDS", 10))
        if courier.refusal is not None:
            del self._couriers[session.key]
            raise courier.refusal

    def _start_courier(
        self, session: Session, run: Run, tracker: Tracker, left_out: set[int], is_reopened: bool
    ) -> Courier | RemoteCourier:
        """A courier in the process for all of them if that is wished and can be, else in a thread of its own."""
        if os.environ.get("TRACKSIDE_DELIVERY", "").strip().lower() == "process":
            if _can_be_described(session.delivery.reporter):
                self._courier_process = self._courier_process or CourierProcess(self._folder)
                remote = self._courier_process.remote(session.key, session.delivery)
                self._couriers[session.key] = remote
                self._set_mark(session, remote)
                self._courier_process.start(remote, run, is_reopened)
                return remote
            say(f"{session.key} cannot be made in another process; it is delivered to by a thread of this one.")
        courier = Courier(session.delivery, run, self._folder, tracker, lambda: session.position, left_out, is_reopened)
        self._couriers[session.key] = courier
        courier.start()
        return courier

    def _set_mark(self, session: Session, remote: RemoteCourier) -> None:
        remote.told(session.position, self._skips.get(session.key, 0))

    def _superseded(self, tracker: Tracker, step: int) -> set[int]:
        """What was not sent of an interrupted training that is resumed at an earlier `step`."""
        reader = Reader(self._folder.journal, tracker.durable, tracker.offset)
        found: set[int] = set()
        while entries := reader.read(10_000):
            found |= {number for number, record in entries if number >= tracker.sent and record.step > step}
        return found

    def close(self, session: Session, status: Status) -> None:
        courier = self._couriers.pop(session.key, None)
        if courier is None:
            super().close(session, status)
            return
        courier.close(status)
        try:
            self._wait_for(courier)
        finally:
            self._unfinished = [one for one in [*self._unfinished, courier] if not one.has_ended.is_set()]
            self._say_owed(courier)
            self._snapshots.tidy()
            if not self._couriers and not self._unfinished and self._courier_process is None:
                self._folder.unlock()

    def _wait_for(self, courier: Courier | RemoteCourier) -> None:
        deadline = time.monotonic() + seconds_of("TRACKSIDE_DRAIN_SECONDS", 10)
        while not courier.has_ended.wait(min(1.0, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return

    def _say_owed(self, courier: Courier | RemoteCourier) -> None:
        if courier.has_ended.is_set():
            return
        reason = f" ({courier.trouble})" if courier.trouble else ""
        logger.warning(
            "%s is owed %d records%s; deliver them with: trackside replay %s",
            courier.tracker.key, courier.owed(), reason, shlex.quote(str(self._folder.path)),
        )  # fmt: skip

    # ---- the loop's side ----------------------------------------------------------------------------------------

    def tell(self, session: Session, kind: Kind, state: TrainerState, payload: Payload) -> None:
        line = self._record(session, kind, state, payload)
        courier = self._couriers.get(session.key)
        if isinstance(courier, RemoteCourier):
            self._set_mark(session, courier)
        elif courier is None:
            session.delivery.deliver((decode_record(orjson.loads(line)),))

    def _write(self, kind: Kind, state: TrainerState, payload: Payload) -> bytes:
        line = self._quick_line(state, payload) if kind == "log" and isinstance(payload, Mapping) else None
        if line is None:
            line = self._careful_line(kind, state, payload)
        self._last_offset = self._journal.end
        self._journal.append(line)
        return line

    def _quick_line(self, state: TrainerState, values: Mapping[str, Any]) -> bytes | None:
        """The line of a log that holds nothing but finite numbers under names seen before; None of any other."""
        if not values.keys() <= self._redact.harmless:
            return None
        if not all(map(self._numeric.__contains__, map(type, values.values()))):
            new = {type(value) for value in values.values() if scalar(value) is not None}
            if not new - self._numeric:
                return None
            self._numeric |= new
            return self._quick_line(state, values)
        try:
            body = orjson.dumps(values, default=_item)
        except TypeError:
            return None
        if b"null" in body:  # nan or an infinity
            return None
        step, epoch = state.global_step, state.epoch
        self._last_log = (step, body)
        return b'{"kind":"log","step":%d,"epoch":%b,"time":%.6f,"values":%b}\n' % (
            step, b"null" if epoch is None else b"%.9g" % epoch, time.time(), body,
        )  # fmt: skip

    def _careful_line(self, kind: Kind, state: TrainerState, payload: Payload) -> bytes:
        step, body = self._last_log
        if kind == "evaluate" and step == state.global_step:
            self._logged = (step, orjson.loads(body))
        if isinstance(payload, Artifact) and self._couriers_of_files():
            self._snapshots.take(payload, self._count)
        record: Record = super()._write(kind, state, payload)
        if kind == "log":
            self._last_log = (record.step, encode(record.values))
        return encode_record(record)

    def _couriers_of_files(self) -> list[Courier | RemoteCourier]:
        couriers = [*self._couriers.values(), *self._unfinished]
        return [courier for courier in couriers if courier.delivery.reporter.takes_artifacts]

    def _is_delivered(self, number: int) -> bool:
        """Whether all who take files have got that of a record."""
        return all(courier.tracker.sent > number for courier in self._couriers_of_files())

    def _pass_over(self, session: Session, numbers: range) -> None:
        self._left_out.setdefault(session.key, set()).update(numbers)
        self._write_skips(session.key, numbers)

    def _write_skips(self, key: str, numbers: Collection[int]) -> None:
        """Write down which records a tracker is not to get, a line for each row of them."""
        self._skips[key] = self._skips.get(key, 0) + bool(numbers)
        for first, end in _rows(numbers):
            self._journal.append(encode({"kind": "skip", "tracker": key, "first": first, "end": end}))


def _rows(numbers: Collection[int]) -> Iterator[tuple[int, int]]:
    """Numbers as rows without a gap: the first of each, and the one behind its last."""
    first = last = None
    for number in sorted(numbers):
        if first is None or last is None or number > last + 1:
            if first is not None and last is not None:
                yield first, last + 1
            first = number
        last = number
    if first is not None and last is not None:
        yield first, last + 1


def _can_be_described(reporter: Reporter) -> bool:
    """Whether another process could make such a reporter: of its class and plain options, and nothing else."""
    kind, given = type(reporter), reporter._as_given()
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__ or any(map(given.get, reporter.handles)):
        return False
    _, options = _recipe(reporter)
    from_setup = {name for name in vars(reporter).keys() - given.keys() if vars(reporter)[name] is not None}
    return options.keys() == given.keys() - set(reporter.handles) and from_setup <= OF_ITS_OWN


def _item(value: Any) -> Any:
    """The number of an array or a tensor of one element, for orjson."""
    return value.item()


def _recipe(reporter: Reporter) -> tuple[str, dict[str, Any]]:
    """How to make such a reporter in another process: its class, and the options that are plain and no secret."""
    kind = type(reporter)
    given = {name: value for name, value in reporter._as_given().items() if name not in reporter.handles}
    plain = redact(describe(given))
    options = {name: value for name, value in plain.items() if value == given[name] and value != REDACTED}
    return f"{kind.__module__}:{kind.__qualname__}", options
