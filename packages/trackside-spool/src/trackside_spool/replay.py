"""Replay: what a tracker is owed, or a whole run to another tracker, delivered from the journal."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trackside import Run, Status, resolve
from trackside.delivery import Delivery
from trackside.reporter import Reporter
from trackside_spool.courier import Courier
from trackside_spool.folder import RunFolder, Tracker, run_folders
from trackside_spool.journal import Reader, read_run, skipped


@dataclass(frozen=True)
class Debt:
    """What one tracker has of one run, and what it is owed."""

    folder: Path
    run: Run
    tracker: Tracker
    records: int
    """How many of the run's records the tracker has not safely got."""

    @property
    def is_settled(self) -> bool:
        return self.records == 0 and self.tracker.status is not None


@dataclass(frozen=True)
class Outcome:
    """How the replay to one tracker has ended: `reason` is empty if all was delivered."""

    run: Run
    tracker: Tracker
    delivered: int
    reason: str = ""


def debts(below: Path) -> Iterator[Debt]:
    """What the trackers of all runs at or below a folder are owed.

    Raises:
        JournalError: a journal cannot be read.
        FileNotFoundError: there is no run.
    """
    found = False
    for folder in run_folders(below):
        found = True
        run, (count, _) = read_run(folder.journal), _extent(folder)
        for tracker in folder.trackers():
            yield Debt(folder.path, run, tracker, count - tracker.durable)
    if not found:
        raise FileNotFoundError(f"There is no run below {below}.")


def replay(folder: RunFolder, watch: Callable[[Courier], None] = Courier.join) -> Iterator[Outcome]:
    """Deliver to each tracker of a run what it is owed, from where all that it has is safe.

    `watch` is called with each courier while that works, and returns when it is no longer to be waited for.

    Raises:
        InUseError: the run is live, or being replayed.
        JournalError: the journal cannot be read.
    """
    run, left_out = read_run(folder.journal), skipped(folder.journal)
    folder.lock()
    try:
        count, status = _extent(folder)
        for tracker in folder.trackers():
            if tracker.durable < count or tracker.status is None:
                yield _deliver(folder, run, tracker, build(tracker), left_out.get(tracker.key, set()), status, watch)
    finally:
        folder.unlock()


def replay_to(
    folder: RunFolder, name: str, options: dict[str, Any], watch: Callable[[Courier], None] = Courier.join
) -> Outcome:
    """Send a whole run to a tracker that need not have been there when it was recorded; again, if it has it already."""
    (reporter,) = resolve({name: options})
    run = read_run(folder.journal)
    folder.lock()
    try:
        known = {tracker.key for tracker in folder.trackers()}
        key = next(key for key in _numbered(reporter.name) if key not in known)
        tracker = Tracker(key, f"{type(reporter).__module__}:{type(reporter).__qualname__}", options)
        _, status = _extent(folder)
        return _deliver(folder, run, tracker, reporter, set(), status, watch)
    finally:
        folder.unlock()


def prune(below: Path) -> list[Path]:
    """Delete the folders of runs of which every tracker has everything; returns them."""
    gone = []
    for folder in run_folders(below):
        count, _ = _extent(folder)
        trackers = folder.trackers()
        if trackers and all(tracker.durable >= count and tracker.status is not None for tracker in trackers):
            folder.lock()
            shutil.rmtree(folder.path)
            folder.unlock()
            gone.append(folder.path)
    return gone


def _deliver(
    folder: RunFolder,
    run: Run,
    tracker: Tracker,
    reporter: Reporter,
    left_out: set[int],
    status: Status,
    watch: Callable[[Courier], None],
) -> Outcome:
    before = tracker.durable
    told = replace(run, step=0, tracker_id=tracker.tracker_id, position=tracker.position)
    courier = Courier(Delivery(reporter), told, folder, tracker, lambda: None, left_out, tracker.tracker_id is not None)
    courier.close(status)
    courier.start()
    watch(courier)
    reason = courier.trouble
    if courier.refusal is not None:
        reason = f"{type(courier.refusal).__name__}: {courier.refusal}"
    elif not courier.has_ended.is_set():
        reason = reason or "not waited for"
    return Outcome(run, tracker, tracker.durable - before, reason)


def build(tracker: Tracker) -> Reporter:
    """Make the reporter that a tracker was reported to by."""
    module, _, name = tracker.reporter.partition(":")
    kind = importlib.import_module(module)
    for part in name.split("."):
        kind = getattr(kind, part)
    reporter: Reporter = kind(**tracker.options)  # type: ignore[operator]
    return reporter


def _extent(folder: RunFolder) -> tuple[int, Status]:
    """How many records a journal holds, and how its run has ended: one that nobody has ended was killed."""
    reader = Reader(folder.journal)
    status: Status = "killed"
    while entries := reader.read(10_000):
        for _, record in entries:
            status = record.status or status
    return reader.number, status


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1
