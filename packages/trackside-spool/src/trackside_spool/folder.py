"""The folder of a run: its journal, and what is known of each tracker that is to get it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from trackside import Run
from trackside_spool.journal import NAME

FOLDER = "_trackside"  # the underscore keeps it out of what transformers pushes to a hub


class InUseError(RuntimeError):
    """Another process is at work on a run."""


@dataclass
class Tracker:
    """What a tracker has of a run.

    Attributes:
        key: the reporter's name, with a number if there are several of one name.
        reporter: the class, as `module:Class`.
        options: those that the user gave, secrets left out.
        tracker_id: the tracker's own id of the run, once it is known.
        sent: the number of the first record that was not sent.
        durable: the number of the first record that may be lost if the tracker's process dies; a replay begins there.
        offset: where that record begins in the journal, in bytes.
        position: what the tracker's `flush` has said of where it was at `durable`.
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
    status: str | None = None


class RunFolder:
    """`<output_dir>/_trackside/<run>/`: `journal.jsonl`, `lock`, `artifacts`, and `<tracker>.json` for each tracker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / NAME
        self.artifacts = path / "artifacts"
        self._lock: int | None = None

    @classmethod
    def of(cls, run: Run) -> RunFolder:
        readable = re.sub(r"[^\w.-]", "_", run.name)[:80]
        return cls(Path(run.output_dir) / FOLDER / f"{readable}-{run.id}")

    def lock(self) -> tuple[int]:
        """Claim the run for this process, until it dies or unlocks; returns the descriptor that holds the claim.

        Raises:
            InUseError: another process has it.
        """
        import fcntl

        if self._lock is not None:
            return (self._lock,)
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise InUseError(f"{self.path} is in use by another process; wait until that has ended.") from None
        self._lock = lock
        return (lock,)

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def trackers(self) -> list[Tracker]:
        """What the trackers of this run have of it."""
        found = []
        for path in sorted(self.path.glob("*.json")):
            with contextlib.suppress(ValueError, TypeError):
                found.append(Tracker(**orjson.loads(path.read_bytes())))
        return found

    def tracker(self, key: str) -> Tracker | None:
        return next((tracker for tracker in self.trackers() if tracker.key == key), None)

    def keep(self, tracker: Tracker) -> None:
        """Write down what a tracker has, whole or not at all."""
        path = self.path / f"{tracker.key}.json"
        partial = path.with_suffix(".partial")
        partial.write_bytes(orjson.dumps(asdict(tracker), option=orjson.OPT_INDENT_2, default=str))
        os.replace(partial, path)


def run_folders(below: Path) -> Iterator[RunFolder]:
    """The folders of all runs at or below a folder."""
    for journal in sorted(below.rglob(NAME)):
        yield RunFolder(journal.parent)
