"""The recorder: one sequence of records for all reporters of a run."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from trackside.delivery import Delivery, reason_of
from trackside.records import STATE_KEY, Artifact, Kind, Record, Run, Status, carried_by
from trackside.state import TrainerState
from trackside.values import Redaction, describe, flatten

if TYPE_CHECKING:
    from trackside.reporter import Reporter

logger = logging.getLogger(__name__)

DELIVERIES = ("inline", "thread", "process")

Value = TypeVar("Value")

# Records that can still be recognised: more than the events that callbacks can nest within one another.
WINDOW = 16


class ByIdentity(Generic[Value]):
    """Values of objects that cannot be hashed, such as a state, as long as these live: equal ones are not the same."""

    def __init__(self) -> None:
        self._table: dict[int, tuple[weakref.ref[Any], Value]] = {}

    def get(self, owner: Any) -> Value | None:
        reference, value = self._table.get(id(owner), (None, None))
        return value if reference is not None and reference() is owner else None

    def set(self, owner: Any, value: Value) -> None:
        key, table = id(owner), self._table
        table[key] = (weakref.ref(owner, lambda _: table.pop(key, None)), value)


def _nothing() -> None:
    """What is left of a reference whose object is gone."""


def wanted_delivery() -> str:
    """How the environment wants records to be delivered: "inline", by a "thread", or by a "process"."""
    return os.environ.get("TRACKSIDE_DELIVERY", "").strip().lower() or "thread"


@dataclass
class Session:
    """One reporter's part in one run: its place in the sequence, and how far the run has come with it.

    Attributes:
        key: the reporter's name, with a number if several have it; the tracker's id of the run is kept under it.
        position: the number of the next record that it has not been told of; earlier ones are told or passed over.
        phase: "waiting" for the first event, "starting" or "open" at the tracker, "closed" there, or "silent" for good.
        has_begun, has_ended: whether it was told of the beginning and the end of the training.
        is_reopened: whether the run is started at the tracker once more.
        is_ending: whether nobody has waited yet for what its training has left to be done at its end.
        is_attached: whether the tracker's run is what a user's own code finds, if the tracker has such a thing.
        status: with which the run was closed, or will be if nothing else is said.
    """

    recorder: Recorder
    delivery: Delivery
    key: str
    position: int
    phase: Literal["waiting", "starting", "open", "closed", "silent"] = "waiting"
    has_begun: bool = False
    has_ended: bool = False
    is_reopened: bool = False
    is_ending: bool = False
    is_attached: bool = False
    status: Status = "finished"

    @property
    def is_open(self) -> bool:
        return self.phase in ("starting", "open")

    @property
    def is_unfinished(self) -> bool:
        """Whether a training has begun and nobody has told of its end."""
        return self.has_begun and not self.has_ended

    @property
    def has_yet_to_end(self) -> bool:
        """Whether the reporter has yet to be told of an end: of a training, or of what has opened a closed run."""
        return self.is_unfinished or (self.is_open and self.is_reopened and self.has_ended)

    @property
    def carried_id(self) -> Any:
        """The tracker's id of this run that the loop's state has brought along, if any."""
        state = self.recorder.state
        carried = {} if state is None else carried_by(state)
        return carried.get("trackers", {}).get(self.key) if carried.get("run") == self.recorder.run.id else None

    def carry_id(self) -> None:
        """Let the loop's state, and so each checkpoint, know the run and the tracker's id of it."""
        state, run = self.recorder.state, self.recorder.run
        if state is None:
            return
        with self.recorder.carrying:
            carried = carried_by(state)
            trackers = dict(carried.get("trackers", {})) if carried.get("run") == run.id else {}
            if (tracker_id := self.delivery.reporter.tracker_id) is not None:
                trackers[self.key] = tracker_id
            state.stateful_callbacks[STATE_KEY] = {"run": run.id, "name": run.name, "trackers": trackers}


class Ending(NamedTuple):
    """How a training has ended, by what exception if by one, and what was measured of it."""

    status: Status
    reason: str = ""
    measured: Mapping[str, int | float] = {}


Payload = Mapping[str, Any] | Artifact | Ending


class _Told(NamedTuple):
    number: int
    payload: Payload
    """Stands for the event: a mapping by what it is, held so that no other can take its address; a tuple by value."""
    kind: Kind
    step: int
    written: Any

    def is_of(self, kind: Kind, step: int, payload: Payload) -> bool:
        is_same = self.payload is payload or (isinstance(payload, tuple) and self.payload == payload)
        return is_same and self.kind == kind and self.step == step


class Recorder:
    """The records of one run, in order, written once and handed to each reporter that is told of them.

    Whichever handler calls it, each reporter tells the recorder of each event. The first one makes the record, the
    others recognise it by its event: the `logs` or `metrics` object itself, or a name where there is none. A reporter
    that is told of one object twice, or of one that nobody has told yet, makes a new record; so a reporter that joins
    late, is removed, or swallows an event shifts nothing.
    """

    _of_state: ClassVar[ByIdentity[Recorder]] = ByIdentity()

    def __init__(self, run: Run) -> None:
        self.run = run
        self._process = os.getpid()
        self._state: Callable[[], TrainerState | None] = _nothing
        self._recording = threading.RLock()
        self.carrying = threading.Lock()
        self._reporters: list[weakref.ref[Reporter]] = []
        self.is_training = False
        self._measured: dict[str, int | float] | None = None
        self._count = 0
        self._recent: deque[_Told] = deque(maxlen=WINDOW)
        self._logged: tuple[int, Mapping[str, Any]] = (-1, {})
        self._warned: set[str] = set()
        self._redact = Redaction()

    @classmethod
    def make(cls, run: Run) -> Recorder:
        """The recorder of a new run: the one that is installed; with `TRACKSIDE_DELIVERY=inline` this one."""
        if (wanted := wanted_delivery()) == "inline":
            return Recorder(run)
        if wanted not in DELIVERIES:
            logger.warning("TRACKSIDE_DELIVERY=%s is none of %s; threads deliver.", wanted, ", ".join(DELIVERIES))
        from importlib.metadata import entry_points

        try:
            for point in entry_points(group="trackside.recorder"):
                recorder: Recorder = point.load()(run)
                return recorder
        except (ImportError, OSError) as error:  # a folder that cannot be written to, a system without file locks
            logger.warning("No journal can be kept (%s); log calls wait for their trackers.", reason_of(error))
        return Recorder(run)

    @classmethod
    def find(cls, state: TrainerState) -> Recorder | None:
        """The recorder of the run whose state object this is."""
        recorder = cls._of_state.get(state)
        return None if recorder is None or recorder.is_inherited else recorder

    @property
    def is_inherited(self) -> bool:
        """Whether another process has started the run, and this one was forked from it."""
        return self._process != os.getpid()

    def belong_to(self, state: TrainerState) -> None:
        """From now on this is the recorder of `state`, as long as that lives, and nobody else is."""
        if (before := self._of_state.get(state)) is not None:
            before._state = _nothing
        self._state = weakref.ref(state)
        self._of_state.set(state, self)

    @property
    def state(self) -> TrainerState | None:
        """The state that it belongs to, if that still lives."""
        return self._state()

    def is_of(self, state: TrainerState) -> bool:
        """Whether this process records the run whose state object this is."""
        return self._state() is state and self._process == os.getpid()

    def join(self, reporter: Reporter) -> Session:
        """A session for a reporter; the record that was written last may be of the event that it is being told of."""
        namesakes = sum(other.name == reporter.name for other in self._others(reporter))
        self._reporters.append(weakref.ref(reporter))
        key = f"{reporter.name}-{namesakes + 1}" if namesakes else reporter.name
        return Session(self, Delivery(reporter), key, self._count - (1 if self._recent else 0))

    def has_duplicate(self, reporter: Reporter) -> bool:
        """Whether another reporter reports this run to the same place."""
        return any(other.is_duplicate_of(reporter) for other in self._others(reporter))

    def measured(self) -> Mapping[str, int | float]:
        """What live reporters have measured of the training: asked when the first reporter is told of its end."""
        if self._measured is None:
            self._measured = {}
            for reporter in self._others():
                self._measured.update(reporter.measured_of(self))
        return self._measured

    def _others(self, reporter: Reporter | None = None) -> list[Reporter]:
        found = (reference() for reference in self._reporters)
        return [other for other in found if other is not None and other is not reporter]

    def open(self, session: Session, run: Run, is_reopened: bool) -> None:
        """Begin to start the run at a tracker, or to reopen it: here at once. Raises what that raises."""
        session.delivery.begin(run, is_reopened)

    def wait_for_start(self, session: Session) -> bool:
        """Give a tracker the time to start that is left to it; whether it has. Raises what its start has raised."""
        return True

    def tell(self, session: Session, kind: Kind, state: TrainerState, payload: Payload) -> None:
        """Record an event that a reporter is told of, and deliver it. A mapping is the loop's own object."""
        session.delivery.deliver((self._record(session, kind, state, payload),))

    def drain(self, session: Session) -> None:
        """Give a tracker whose run stays open the time that is left to it to get what it was told of so far."""
        session.delivery.call("flush")

    def close(self, session: Session, status: Status) -> None:
        """Begin to close the run at a tracker: here at once. Never raises."""
        session.delivery.end(status)

    def wait_for_close(self, session: Session) -> None:
        """Give a tracker the time to close the run that is left to it, and say what it is owed then."""

    def _record(self, session: Session, kind: Kind, state: TrainerState, payload: Payload) -> Any:
        """The record of an event, made now or recognised, as `_write` has returned it; None if there was no room."""
        step = state.global_step
        if self._recent and (last := self._recent[-1]).number == session.position and last.is_of(kind, step, payload):
            session.position += 1
            return last.written
        with self._recording:
            found = self._recognise(session, kind, step, payload) if session.position < self._count else None
            if found is None:
                written = self._write(kind, state, payload)
                if written is None:
                    return None
                found = _Told(self._count, payload, kind, step, written)
                self._recent.append(found)
                self._count += 1
            if found.number > session.position:
                self._pass_over(session, range(session.position, found.number))
            session.position = found.number + 1
            return found.written

    def _recognise(self, session: Session, kind: Kind, step: int, payload: Payload) -> _Told | None:
        """The first of the records that a reporter was not told of yet which is of this event."""
        found = None
        for told in reversed(self._recent):
            if told.number < session.position:
                break
            if told.is_of(kind, step, payload):
                found = told
        return found

    def _write(self, kind: Kind, state: TrainerState, payload: Payload) -> Any:
        """Make the next record of the sequence."""
        now, step, epoch = time.time(), state.global_step, state.epoch
        if isinstance(payload, Artifact):
            return Record(kind, step, epoch, now, artifact=payload)
        if isinstance(payload, Ending):
            reason = {"exception": payload.reason} if payload.reason else {}
            values = self._snapshot(kind, {**payload.measured, **reason}, step)
            return Record(kind, step, epoch, now, values, status=payload.status)
        return Record(kind, step, epoch, now, self._snapshot(kind, payload, step))

    def _pass_over(self, session: Session, numbers: range) -> None:
        """These records are not for the reporter at `session`, which was not told of them."""

    def _snapshot(self, kind: Kind, values: Mapping[str, Any], step: int) -> Mapping[str, Any]:
        """Values as plain data of their own. Of an evaluation only what the log before it did not hold already."""
        plain = flatten(self._redact(describe(values)), expand=True)
        self._warn_of_non_finite(plain, step)
        if kind == "log":
            self._logged = (step, plain)
        elif kind == "evaluate" and self._logged[0] == step:
            plain = {key: value for key, value in plain.items() if key not in self._logged[1]}
        return plain

    def _warn_of_non_finite(self, values: Mapping[str, Any], step: int) -> None:
        for key, value in values.items():
            if isinstance(value, float) and not math.isfinite(value) and key not in self._warned:
                self._warned.add(key)
                logger.warning("%s is %s at step %d.", key, value, step)
