"""The recorder: one sequence of records for all reporters of a run."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from trackside.records import Artifact, Kind, Record, Run, Status
from trackside.state import TrainerState
from trackside.values import Redaction, describe, flatten

if TYPE_CHECKING:
    from trackside.reporter import Reporter

logger = logging.getLogger(__name__)

# Records that can still be recognised: more than the events that callbacks can nest within one another.
WINDOW = 16


@dataclass
class Seat:
    """A reporter's place at the sequence of one run, and how far it has come with it."""

    recorder: Recorder
    key: str
    """The reporter's name, with a number if there are several of one name; the tracker's id is kept under it."""
    position: int
    """The number of the next record that it has not been told of; earlier ones are told or passed over."""
    has_begun: bool = False
    has_ended: bool = False
    is_open: bool = False
    was_closed: bool = False
    is_silent: bool = False
    status: Status = "finished"
    """With which the run was closed, or will be if nothing else is said."""

    @property
    def is_unfinished(self) -> bool:
        """Whether a training has begun and nobody has told of its end."""
        return self.has_begun and not self.has_ended


class _Told(NamedTuple):
    number: int
    event: Any
    """The payload itself, which stands for the event and is held so that no other can take its address; or a tuple."""
    record: Record

    def is_of(self, kind: Kind, step: int, event: Any) -> bool:
        is_same = self.event is event or (isinstance(event, tuple) and self.event == event)
        return is_same and self.record.kind == kind and self.record.step == step


class Recorder:
    """The records of one run, in order, written once and handed to each reporter that is told of them.

    Whichever handler calls it, each reporter tells the recorder of each event. The first one makes the record, the
    others recognise it by its event: the `logs` or `metrics` object itself, or a name where there is none. A reporter
    that is told of one object twice, or of one that nobody has told yet, makes a new record; so a reporter that joins
    late, is removed, or swallows an event shifts nothing.
    """

    _of_state: ClassVar[dict[int, tuple[weakref.ref[Any], Recorder]]] = {}

    def __init__(self, run: Run) -> None:
        self.run = run
        self._process = os.getpid()
        self._telling = threading.RLock()
        self._reporters: list[weakref.ref[Reporter]] = []
        self.is_training = False
        self._count = 0
        self._recent: deque[_Told] = deque(maxlen=WINDOW)
        self._logged: tuple[int, Mapping[str, Any]] = (-1, {})
        self._warned: set[str] = set()
        self._redact = Redaction()

    @classmethod
    def find(cls, state: TrainerState) -> Recorder | None:
        """The recorder of the run whose state object this is; equal states are not the same run."""
        owner, recorder = cls._of_state.get(id(state), (lambda: None, None))
        return None if recorder is None or owner() is not state or recorder.is_inherited else recorder

    @property
    def is_inherited(self) -> bool:
        """Whether another process has started the run, and this one was forked from it."""
        return self._process != os.getpid()

    def belong_to(self, state: TrainerState) -> None:
        """From now on this is the recorder of `state`, as long as that lives."""
        key, table = id(state), self._of_state
        table[key] = (weakref.ref(state, lambda _: table.pop(key, None)), self)

    def join(self, reporter: Reporter) -> Seat:
        """A place for a reporter; the record that was written last may be of the event that it is being told of."""
        namesakes = sum(other.name == reporter.name for other in self._others(reporter))
        self._reporters.append(weakref.ref(reporter))
        key = f"{reporter.name}-{namesakes + 1}" if namesakes else reporter.name
        return Seat(self, key, max(0, self._count - 1))

    def has_twin(self, reporter: Reporter) -> bool:
        """Whether another reporter reports this run to the same place."""
        return any(other.is_twin(reporter) for other in self._others(reporter))

    def _others(self, reporter: Reporter) -> list[Reporter]:
        found = (reference() for reference in self._reporters)
        return [other for other in found if other is not None and other is not reporter]

    def tell(
        self,
        seat: Seat,
        kind: Kind,
        state: TrainerState,
        values: Mapping[str, Any] | None = None,
        artifact: Artifact | None = None,
        status: Status | None = None,
    ) -> Record:
        """The record of an event: recognised, or made now from `values` (the loop's own object) or the rest."""
        event = values if values is not None else (artifact and artifact.path, status)
        with self._telling:
            for told in self._recent:
                if told.number >= seat.position and told.is_of(kind, state.global_step, event):
                    seat.position = told.number + 1
                    return told.record
            record = Record(
                kind, state.global_step, state.epoch, time.time(), self._snapshot(kind, values, state), artifact, status
            )
            self._recent.append(_Told(self._count, event, record))
            self._count += 1
            seat.position = self._count
            return record

    def deliver(self, reporter: Reporter, record: Record) -> None:
        """Hand a record to a reporter that was told of it; here at once."""
        reporter.deliver((record,))

    def _snapshot(self, kind: Kind, values: Mapping[str, Any] | None, state: TrainerState) -> Mapping[str, Any]:
        """Values as plain data of their own. Of an evaluation only what the log before it did not hold already."""
        if values is None:
            return {}
        plain = flatten(self._redact(describe(values)), expand=True)
        self._warn_of_non_finite(plain, state.global_step)
        if kind == "log":
            self._logged = (state.global_step, plain)
        elif kind == "evaluate" and self._logged[0] == state.global_step:
            plain = {key: value for key, value in plain.items() if key not in self._logged[1]}
        return plain

    def _warn_of_non_finite(self, values: Mapping[str, Any], step: int) -> None:
        for key, value in values.items():
            if isinstance(value, float) and not math.isfinite(value) and key not in self._warned:
                self._warned.add(key)
                logger.warning("%s is %s at step %d.", key, value, step)
