"""The folder of a run: its journal, and what is known of each tracker that is to get it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from trackside import Run
from trackside.console import say
from trackside_spool.journal import NAME

# Characters of a name in a path: of 255 bytes, of which one character may take four.
LONGEST_NAME = 60
POLL_SECONDS = 0.05
HANDOVER_SECONDS = 5.0  # for the call that a courier is making, after which it leaves the rest to another one
FOLDER = "_trackside"  # the underscore keeps it out of what transformers pushes to a hub


class InUseError(RuntimeError):
    """Another process is at work on a run."""


@dataclass
class Tracker:
    """What a tracker has of a run.

    Attributes:
        key: the reporter's name, with a number if there are several of one name.
        reporter: the class, as `module:Class`.
        options: those that the user or the environment gave, secrets left out.
        withheld: the names of those that were left out.
        tracker_id: the tracker's own id of the run, once it is known.
        sent: the number of the first record that was not sent.
        durable: the number of the first record that may be lost if the tracker's process dies; a replay begins there.
        offset: where that record begins in the journal, in bytes.
        position: what the tracker's `flush` has said of where it was at `durable`.
        refused: the first and the end of each range of records that it has refused; they are owed to it as well.
        has_params: whether it has the parameters of the run.
        status: with which the run was closed there, None while it is open.
    """

    key: str
    reporter: str
    options: dict[str, Any] = field(default_factory=dict)
    tracker_id: str | None = None
    sent: int = 0
    durable: int = 0
    offset: int = 0
    position: Any = None
    refused: list[tuple[int, int]] = field(default_factory=list)
    has_params: bool = False
    withheld: list[str] = field(default_factory=list)
    status: str | None = None

    def has(self, number: int) -> bool:
        """Whether it has taken a record."""
        return number < self.sent and not any(first <= number < end for first, end in self.refused)

    @property
    def refusals(self) -> int:
        """How many records it has refused."""
        return sum(end - first for first, end in self.refused)

    def refuse(self, first: int, end: int) -> None:
        """Note that it has refused the records from `first` up to `end`."""
        if self.refused and self.refused[-1][1] == first:
            first, _ = self.refused.pop()
        self.refused.append((first, end))

    def owed(self, count: int) -> int:
        """How many of the first `count` records it has not safely got; what followed its end was not for it."""
        return (max(0, count - self.durable) if self.status is None else 0) + self.refusals

    @property
    def is_complete(self) -> bool:
        """Whether it has all but records: the parameters, and how the run has ended."""
        return self.has_params and self.status is not None


class RunFolder:
    """`<output_dir>/_trackside/<run>/`: `journal.jsonl`, `artifacts`, locks, and `<tracker>.json` for each tracker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / NAME
        self.artifacts = path / "artifacts"
        self._locks: list[int] = []
        self._unlocking = threading.Lock()
        _folders.add(self)

    @classmethod
    def of(cls, run: Run) -> RunFolder:
        readable = re.sub(r"[^\w.-]", "_", run.name)[:LONGEST_NAME]
        return cls(Path(os.path.abspath(run.output_dir)) / FOLDER / f"{readable}-{run.id}")

    def lock(self, patience: float | None = None) -> None:
        """Claim the run for this process, until it dies or unlocks.

        A training that is dead may have left a courier process. With `patience` that is given so many seconds to
        deliver the rest, and is then asked to leave it to this process.

        Raises:
            InUseError: another process has it.
        """
        if self._locks:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        for claim in (lambda: _locked(self.path / "lock"), lambda: self._lock_of_couriers(patience)):
            lock = claim()
            if lock is None:
                self.unlock()
                raise InUseError(f"{self.path} is in use by another process; wait until that has ended.")
            self._locks.append(lock)

    def _lock_of_couriers(self, patience: float | None) -> int | None:
        """What a courier process holds as long as it lives; None if there is one."""
        path, request = self.path / "couriers.lock", self.path / "handover"
        request.unlink(missing_ok=True)
        lock = _locked(path)
        if lock is not None or patience is None:
            return lock
        if patience > 0:
            say(f"Waiting for what the training before has left to be delivered from {self.path}.")
        lock = _locked(path, patience)
        if lock is None:
            request.touch()
            lock = _locked(path, HANDOVER_SECONDS)
            request.unlink(missing_ok=True)
        return lock

    @property
    def is_live(self) -> bool:
        """Whether a training or a replay is at work on the run; asked without claiming it."""
        try:
            file = os.open(self.path / "lock", os.O_RDONLY)
        except OSError:
            return False
        try:
            return not _lock(file)
        except (ImportError, OSError):  # a system or a disk without locks
            return False
        finally:
            os.close(file)

    @property
    def is_locked(self) -> bool:
        """Whether it is claimed by this process."""
        return bool(self._locks)

    @property
    def couriers_lock(self) -> int:
        """The descriptor that a courier process inherits, so that the run is in use as long as it lives."""
        _, couriers = self._locks
        return couriers

    @property
    def is_wanted(self) -> bool:
        """Whether another process waits for the couriers of a dead training to leave the rest to it."""
        return (self.path / "handover").exists()

    def unlock(self) -> None:
        with self._unlocking:  # who comes second returns when the run is free as well
            while self._locks:
                os.close(self._locks.pop())

    def trackers(self) -> list[Tracker]:
        """What the trackers of this run have of it."""
        found = []
        for path in sorted(self.path.glob("*.json")):
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                known = json.loads(path.read_bytes()).items()
                found.append(Tracker(**{name: value for name, value in known if name in _FIELDS}))
        return found

    def tracker(self, key: str) -> Tracker | None:
        return next((tracker for tracker in self.trackers() if tracker.key == key), None)

    def keep(self, tracker: Tracker) -> None:
        """Write down what a tracker has, whole or not at all."""
        path = self.path / f"{tracker.key}.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(tracker), indent=2, default=str))
        os.replace(partial, path)


def _locked(path: Path, patience: float = 0.0) -> int | None:
    """A descriptor that holds the lock of a file, or None if nobody has let go of it within `patience` seconds."""
    until = time.monotonic() + patience
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while not _lock(file):
            if time.monotonic() >= until:
                os.close(file)
                return None
            time.sleep(POLL_SECONDS)
    except BaseException:  # interrupted, or on a disk without locks
        os.close(file)
        raise
    return file


def _lock(file: int) -> bool:
    """Lock an open file; false if another one has."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_FIELDS = {spec.name for spec in fields(Tracker)}
_folders: weakref.WeakSet[RunFolder] = weakref.WeakSet()


def _unlock_in_child() -> None:
    """A forked child would hold the locks of its parent, also after that has died."""
    for folder in list(_folders):
        folder._unlocking = threading.Lock()
        folder.unlock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_in_child)


def run_folders(below: Path) -> Iterator[RunFolder]:
    """The folders of all runs at or below a folder."""
    for journal in sorted(below.rglob(NAME)):
        yield RunFolder(journal.parent)
