"""The recorder that writes first and delivers behind."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shlex
import time
import weakref
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson

from trackside.console import say
from trackside.delivery import reason_of
from trackside.recorder import Payload, Recorder, Session, wanted_delivery
from trackside.records import Artifact, Kind, Record, Run, Status, new_id
from trackside.reporter import Reporter
from trackside.state import TrainerState
from trackside.values import scalar
from trackside_spool.budget import BUDGET
from trackside_spool.courier import Courier
from trackside_spool.drain import Drain, drain_seconds, start_seconds, wait_for_all
from trackside_spool.folder import HANDOVER_SECONDS, InUseError, RunFolder, Tracker
from trackside_spool.journal import (
    Journal,
    JournalError,
    Notes,
    count_records,
    decode_record,
    encode,
    encode_record,
    read_run,
    step_of_end,
)
from trackside_spool.process import CourierProcess, RemoteCourier
from trackside_spool.recipe import tracker_of
from trackside_spool.snapshots import Snapshots

logger = logging.getLogger(__name__)

# What the base class of reporters keeps on them; anything else was set by a user's `setup`.
OF_ITS_OWN = {"run", "tracker_id", "adopted", "_session", "_given"}

SENT_POLL_SECONDS = 0.02
MOST_NAMED = 10  # of the params that a resume has changed


class SpoolRecorder(Recorder):
    """Writes each record down before the log call returns, and leaves the rest to a courier for each reporter."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._folder = self._claim()
        self._journal = Journal(self._folder.journal, self.run)
        self._count = count_records(self._folder.journal)
        self._notes = Notes.of(self._folder.journal)
        if self._count:
            self._note_resume()
        self._last_offset = self._journal.end
        self._courier_process: CourierProcess | None = None
        self._couriers: dict[str, Courier | RemoteCourier] = {}
        self._way = wanted_delivery()
        self._start_until: dict[str, float] = {}
        self._drain = Drain(self._couriers)
        self._skips: Counter[str] = Counter()
        self._said_lacking = (0, 0)
        self._snapshots = Snapshots(self._folder.artifacts, self._is_delivered)
        self._numeric: set[type] = {int, float, bool}
        self._last_log = (-1, b"{}")

    def _claim(self) -> RunFolder:
        """The run's folder. A run that is live elsewhere, or has ended beyond this step, is left alone."""
        end, step = step_of_end(RunFolder.of(self.run).journal), self.run.step
        if end is not None and end > step:
            self._branch_off()
            message = "%s has ended at step %d; what goes on from step %d is reported as a new run, %s."
            logger.warning(message, self.run.source["parent"], end, step, self.run.name)
        for other in tuple(_recorders):
            other._make_way(self.run)
        try:
            folder = RunFolder.of(self.run)
            folder.lock(drain_seconds())
        except InUseError:
            logger.warning("%s is at work elsewhere; this training is reported as a new run.", self.run.name)
            self._branch_off()
            folder = RunFolder.of(self.run)
            folder.lock()
        _recorders.add(self)
        return folder

    def _branch_off(self) -> None:
        """Become a new run, which names the one that it goes on from."""
        run, name = self.run, f"{self.run.name}-{os.urandom(2).hex()}"
        self.run = dataclasses.replace(run, id=new_id(), name=name, source={**run.source, "parent": run.name})

    def _note_resume(self) -> None:
        """Write down at which step the run goes on, and what it does with other params than before."""
        note: dict[str, Any] = {"kind": "resumed", "first": self._count, "step": self.run.step}
        with contextlib.suppress(JournalError):  # what the params were is not known any more
            if changed := self._notes.changed(read_run(self._folder.journal), self.run):
                note["params"] = changed
                some = [f"{name} from {_short(old)} to {_short(new)}" for name, (old, new) in changed.items()]
                more = f" and {len(some) - MOST_NAMED} more" if len(some) > MOST_NAMED else ""
                message = "%s is resumed with other params: %s%s."
                logger.warning(message, self.run.name, ", ".join(some[:MOST_NAMED]), more)
        self._note(note)

    def _make_way(self, run: Run) -> None:
        """Let go of a run whose training has ended; if it is to go on as `run`, its couriers leave the rest to that."""
        couriers = list(self._couriers.values())
        if self.is_inherited or not couriers or not all(courier.is_closing for courier in couriers):
            return
        is_same = RunFolder.of(run).path == self._folder.path
        if is_same:
            with BUDGET.lifted():
                wait_for_all(couriers, drain_seconds())
                for courier in couriers:
                    courier.hand_over()
                wait_for_all(couriers, HANDOVER_SECONDS)
        if all(courier.has_ended.is_set() for courier in couriers):
            if self._courier_process is not None:
                self._courier_process.end(HANDOVER_SECONDS if is_same else 0)
                self._courier_process = None
            self._folder.unlock()

    # ---- the tracker's side -------------------------------------------------------------------------------------

    def open(self, session: Session, run: Run, is_reopened: bool) -> None:
        reporter = session.delivery.reporter
        if reporter.live:
            super().open(session, run, is_reopened)
            return
        self._drain.renew()
        before = self._couriers.get(session.key)
        tracker = self._known_of(session.key, before)
        if tracker is None:
            tracker = tracker_of(session.key, reporter)
            tracker.sent = tracker.durable = session.position
            tracker.offset = self._journal.end if session.position == self._count else self._last_offset
        elif not is_reopened:
            run = self._resumed(run, tracker)
        else:
            run = dataclasses.replace(run, tracker_id=run.tracker_id or tracker.tracker_id)
        self._folder.lock()
        with contextlib.suppress(OSError):  # the courier says that it finds nothing to read
            self._journal.restore()
        self._start_until[session.key] = time.monotonic() + start_seconds()
        try:
            self._start_courier(session, run, tracker, is_reopened, before)
        except BaseException:  # interrupted: nobody else knows that a run may be opened
            courier = self._couriers.get(session.key)
            if courier is not None and courier is not before:
                courier.close("killed")
                self._say_owed(courier)
            raise

    def _known_of(self, key: str, before: Courier | RemoteCourier | None) -> Tracker | None:
        """What a tracker has of the run: a replay may have gone on with one that this process had let go of."""
        written = self._folder.tracker(key)
        if before is None:
            return written
        is_ours = written is None or self._folder.is_locked or written.durable < before.tracker.durable
        return before.tracker if is_ours else written

    def _note_start(self, session: Session) -> None:
        session.carry_id()
        if not (self._couriers[session.key].is_waited_for or session.is_reopened):
            session.delivery.reporter.say_where(session)

    def wait_for_start(self, session: Session) -> bool:
        courier = self._couriers.get(session.key)
        if courier is None:
            return True
        until = 0.0 if session.is_reopened else self._start_until[session.key]  # no user's code looks for the run then
        try:
            courier.has_answered.wait(max(0.0, until - time.monotonic()))
        except BaseException:
            self._drain.interrupt()
            raise
        courier.is_waited_for = False
        if courier.refusal is not None and not session.is_reopened:  # what follows an end is owed
            courier.close("failed")
            self._let_go()
            raise courier.refusal
        return courier.has_started

    def _resumed(self, run: Run, tracker: Tracker) -> Run:
        """A run as it goes on in this process, after another one."""
        tracker.has_params = False  # they may have changed
        if tracker.offset > self._journal.end:  # what a full disk has not taken died with the process
            tracker.sent = tracker.durable = self._count
            tracker.offset = self._journal.end
        if run.id != self.run.id:  # the user wants another one there
            return run
        return dataclasses.replace(run, position=tracker.position, tracker_id=run.tracker_id or tracker.tracker_id)

    def _start_courier(
        self,
        session: Session,
        run: Run,
        tracker: Tracker,
        is_reopened: bool,
        before: Courier | RemoteCourier | None,
    ) -> None:
        """Start a courier, in the process for all of them if that is wished and can be, else in a thread of its own."""
        key, tracker.status = session.key, None  # from now on it is owed the end again
        if self._way == "process" and _can_be_described(session.delivery.reporter):
            try:
                self._order_courier(session, run, tracker, is_reopened, before)
                return
            except OSError as error:  # a full disk, or a system that starts no more processes
                message = "%s: no other process can deliver (%s); a thread of this one does."
                logger.warning(message, key, reason_of(error))
                session.delivery.is_elsewhere = False
        elif self._way == "process":
            say(f"{key} cannot be made in another process; it is delivered to by a thread of this one.")
        courier = Courier(
            session.delivery, run, self._folder, tracker, lambda: session.position,
            partial(self._notes.is_for, key), is_reopened,
            journal=self._journal, after=before, on_start=partial(self._note_start, session), on_end=self._let_go,
        )  # fmt: skip
        self._couriers[key] = courier
        courier.keep()  # from now on a replay knows of the tracker, whatever becomes of this process
        courier.start()

    def _order_courier(
        self,
        session: Session,
        run: Run,
        tracker: Tracker,
        is_reopened: bool,
        before: Courier | RemoteCourier | None,
    ) -> None:
        """Let the process for all of them start a courier."""
        if before is None:  # else the process keeps it
            self._folder.keep(tracker)
        self._courier_process = self._courier_process or CourierProcess(self._folder)
        on_start = partial(self._note_start, session)
        self._couriers[session.key] = remote = self._courier_process.remote(session.key, session.delivery, on_start)
        self._set_mark(session, remote)
        self._courier_process.start(remote, run, is_reopened)

    def _set_mark(self, session: Session, remote: RemoteCourier) -> None:
        remote.told(session.position, self._skips[session.key])

    def drain(self, session: Session) -> None:
        """Wait until a tracker has got what it was told of: a user may close its run next, as with `wandb.finish()`."""
        courier = self._couriers.get(session.key)
        if courier is None:
            super().drain(session)
            return
        self._drain.expect(session.key)
        self._drain.wait(
            session.key,
            lambda seconds: (
                courier.tracker.sent < session.position
                and not courier.trouble
                and not courier.has_ended.wait(min(seconds, SENT_POLL_SECONDS))
            ),
        )

    def close(self, session: Session, status: Status) -> None:
        courier = self._couriers.get(session.key)
        if courier is None:
            super().close(session, status)
            return
        self._drain.expect(session.key)
        courier.close(status)

    def wait_for_close(self, session: Session) -> None:
        courier = self._couriers.get(session.key)
        if courier is None:
            return
        try:
            self._drain.wait(session.key, lambda seconds: not courier.has_ended.wait(seconds))
        finally:
            self._say_owed(courier)
            self._snapshots.tidy()
            self._let_go()

    def _say_owed(self, courier: Courier | RemoteCourier) -> None:
        lacking = len(self._journal.unprotected), self._journal.lost
        if any(lacking) and lacking != self._said_lacking:  # once for all couriers
            self._said_lacking = lacking
            message = "%s lacks %d records that the disk did not take, and %d for which there was no memory either."
            logger.warning(message, self._journal.path, *lacking)
        count = courier.owed()
        records = f"{count:,} record{'' if count == 1 else 's'}"
        if count == 0 and courier.has_ended.is_set() and courier.tracker.is_complete:
            return
        logger.warning(
            "%s is owed %s%s; deliver that with: trackside replay %s",
            courier.tracker.key, records if count else "the rest of the run",
            f" ({courier.trouble})" if courier.trouble else "", shlex.quote(str(self._folder.path)),
        )  # fmt: skip

    def _let_go(self) -> None:
        """Leave the run to others once nobody is at work on it here. A courier process keeps it as long as it lives."""
        if self._courier_process is None and all(
            one.is_closing and one.has_ended.is_set() for one in tuple(self._couriers.values())
        ):
            self._folder.unlock()

    # ---- the loop's side ----------------------------------------------------------------------------------------

    def tell(self, session: Session, kind: Kind, state: TrainerState, payload: Payload) -> None:
        line = self._record(session, kind, state, payload)
        courier = self._couriers.get(session.key)
        if isinstance(courier, RemoteCourier):
            self._set_mark(session, courier)
        elif courier is None and line is not None:
            session.delivery.deliver((decode_record(orjson.loads(line)),))

    def _write(self, kind: Kind, state: TrainerState, payload: Payload) -> bytes | None:
        line = self._quick_line(state, payload) if kind == "log" and isinstance(payload, Mapping) else None
        if line is None:
            line = self._careful_line(kind, state, payload)
        begin = self._journal.end
        if not self._journal.append(line):
            return None
        self._last_offset = begin
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
            self._snapshots.take(payload, self._count, state.best_model_checkpoint)
        record: Record = super()._write(kind, state, payload)
        if kind == "log":
            self._last_log = (record.step, encode(record.values))
        return encode_record(record)

    def _couriers_of_files(self) -> list[Courier | RemoteCourier]:
        return [courier for courier in self._couriers.values() if courier.delivery.reporter.takes_artifacts]

    def _is_delivered(self, number: int) -> bool:
        """Whether all who take files have got that of a record."""
        return all(courier.tracker.has(number) for courier in self._couriers_of_files())

    def _pass_over(self, session: Session, numbers: range) -> None:
        self._skips[session.key] += 1
        self._note({"kind": "skip", "tracker": session.key, "first": numbers.start, "end": numbers.stop})

    def _note(self, entry: Mapping[str, Any]) -> None:
        self._notes.take(entry)
        self._journal.append(encode(entry))


# Those of this process, which keep a run from each other as long as they are at work on it.
_recorders: weakref.WeakSet[SpoolRecorder] = weakref.WeakSet()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]} ..."


def _can_be_described(reporter: Reporter) -> bool:
    """Whether another process could make such a reporter: of its class and plain options, and nothing else."""
    kind, given = type(reporter), reporter._as_given()
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__ or any(map(given.get, reporter.handles)):
        return False
    is_plain = given.keys().isdisjoint(tracker_of("", reporter).withheld)
    from_setup = {name for name in vars(reporter).keys() - given.keys() if vars(reporter)[name] is not None}
    return is_plain and from_setup <= OF_ITS_OWN


def _item(value: Any) -> Any:
    """The number of an array or a tensor of one element, for orjson."""
    return value.item()
