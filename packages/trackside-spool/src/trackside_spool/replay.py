"""Replay: what a tracker is owed, or a whole run to another tracker, delivered from the journal."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from trackside import Run, Status, resolve
from trackside.delivery import Delivery, reason_of
from trackside.reporter import Reporter
from trackside_spool.courier import Courier
from trackside_spool.folder import HANDOVER_SECONDS, InUseError, RunFolder, Tracker, run_folders
from trackside_spool.journal import JournalError, Notes, Reader, read_run
from trackside_spool.recipe import build, tracker_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Debt:
    """What one tracker has of one run, and what it is owed."""

    folder: Path
    run: Run
    tracker: Tracker
    records: int
    """How many of the run's records the tracker has not safely got, or has refused."""

    @property
    def is_settled(self) -> bool:
        return self.records == 0 and self.tracker.is_complete


@dataclass(frozen=True)
class Outcome:
    """How the replay to one tracker has ended: `reason` is empty if all was delivered."""

    run: Run
    tracker: Tracker
    delivered: int
    reason: str = ""
    shown_by: str | None = None
    """What shows the run to a person, if all was delivered and the tracker can say so."""
    is_left: bool = False
    """Whether the tracker was no longer waited for."""


def runs_below(below: Path) -> list[RunFolder]:
    """The folders of all runs at or below a folder.

    Raises:
        FileNotFoundError: there is none.
    """
    found = list(run_folders(below))
    if not found:
        raise FileNotFoundError(f"There is no run below {below}.")
    return found


def debts(below: Path) -> Iterator[Debt]:
    """What the trackers of all runs at or below a folder are owed.

    Raises:
        JournalError: a journal cannot be read.
        FileNotFoundError: there is no run.
    """
    for folder in runs_below(below):
        yield from _History(folder).debts()


def replay(
    folder: RunFolder, watch: Callable[[Courier], None] = Courier.join, patience: float | None = None
) -> Iterator[Outcome]:
    """Deliver to each tracker of a run what it is owed, from where all that it has is safe.

    Args:
        folder: of the run.
        watch: is called with each courier while that works, and returns when it is no longer to be waited for.
        patience: seconds after which the couriers of a dead training are asked to leave the rest to this; None: never.

    Raises:
        InUseError: the run is live, or being replayed.
        JournalError: the journal cannot be read.
    """
    history = _History(folder)
    folder.lock(patience)
    try:
        for debt in history.debts():
            if not debt.is_settled:
                yield history.deliver(debt.tracker, watch)
        if all(debt.is_settled for debt in history.debts()):
            shutil.rmtree(folder.artifacts, ignore_errors=True)
    finally:
        folder.unlock()


def replay_to(
    folder: RunFolder, name: str, options: dict[str, Any], watch: Callable[[Courier], None] = Courier.join
) -> Outcome:
    """Send a whole run to a tracker that need not have been there when it was recorded; again, if it has it already."""
    (reporter,) = resolve({name: options})
    history = _History(folder)
    folder.lock()
    try:
        known = {tracker.key for tracker in folder.trackers()}
        key = next(key for key in _numbered(reporter.name) if key not in known)
        return history.deliver(tracker_of(key, reporter), watch, reporter)
    finally:
        folder.unlock()


def prune(below: Path) -> list[Path]:
    """Delete the folders of runs of which every tracker has everything; returns them."""
    gone = []
    for folder in run_folders(below):
        with contextlib.suppress(JournalError, InUseError):
            owed = list(debts(folder.path))
            if owed and all(debt.is_settled for debt in owed):
                folder.lock()
                shutil.rmtree(folder.path)
                folder.unlock()
                gone.append(folder.path)
    return gone


class _History:
    """What the journal of a run holds: which records, for whom, and how the run has ended.

    A run that nobody has ended, or that nobody has ended again since it was resumed, was killed.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._run, self._notes = read_run(folder.journal), Notes.of(folder.journal)
        self._status: Status = "killed"
        resumed = max((first for first, _ in self._notes.resumed), default=0)
        reader = Reader(folder.journal)
        while entries := reader.read(10_000):
            for number, record in entries:
                if number >= resumed:
                    self._status = record.status or self._status
        self._count = reader.number
        if torn := reader.torn + _ends_torn(folder.journal):
            logger.warning("Torn lines of %s, which are left out: %d.", folder.journal, torn)

    def debts(self) -> list[Debt]:
        folder, count = self._folder, self._count
        return [Debt(folder.path, self._run, tracker, tracker.owed(count)) for tracker in folder.trackers()]

    def deliver(self, tracker: Tracker, watch: Callable[[Courier], None], reporter: Reporter | None = None) -> Outcome:
        """Deliver what a tracker is owed, by a reporter that is made as the training had it, if none is given."""
        owed = tracker.owed(self._count)
        try:
            delivery = Delivery(reporter or build(tracker))
        except Exception as error:
            return Outcome(self._run, tracker, 0, reason_of(error))
        is_for = partial(self._notes.is_for, tracker.key)
        courier = Courier(delivery, self._told(tracker), self._folder, tracker, lambda: None, is_for)
        courier.close(self._status)
        courier.start()
        try:
            watch(courier)
        finally:
            is_left = not courier.has_ended.is_set()
            if is_left:  # what is being sent is noted before the folder or the process is given up
                courier.hand_over()
                courier.has_ended.wait(HANDOVER_SECONDS)
        is_left = is_left and not tracker.is_complete  # unless it has come to the end meanwhile
        reason = courier.trouble or ("not waited for" if is_left else "")
        shown_by = None if reason else delivery.where()
        return Outcome(self._run, tracker, owed - tracker.owed(self._count), reason, shown_by, is_left)

    def _told(self, tracker: Tracker) -> Run:
        """The run as its tracker is told of it now: found where its folder is, and set back where it was resumed."""
        return replace(
            self._run,
            output_dir=str(self._folder.path.absolute().parents[1]),
            step=self._notes.step_after(tracker.durable),
            tracker_id=tracker.tracker_id,
            position=tracker.position,
        )


def _ends_torn(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1
