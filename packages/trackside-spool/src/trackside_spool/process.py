"""Couriers in a process of their own, so that the training process imports no SDK and waits for none of its threads.

The training process writes the journal; this one tails it. What is to be done comes as a JSON object a line on standard
input, what has become of it goes back on standard output. How far each reporter was told stands in a small mapped file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from trackside import Run
from trackside.delivery import Delivery, reason_of
from trackside.records import Record
from trackside_spool import courier
from trackside_spool.courier import Courier, tell_of_late_refusal
from trackside_spool.folder import RunFolder, Tracker
from trackside_spool.journal import Notes
from trackside_spool.recipe import build

# Read from -c, not with -m: a `json.py` in the working directory would take the place of the library's.
BOOT = "import sys; sys.path[:] = {path!r}; from trackside_spool.process import serve; serve()"
MOST_TRACKERS = 64
POLL_SECONDS = 0.1
SHARE = 0.25  # of a core that the loop does not use


class Marks:
    """For each tracker, the number of the first record that is not for it yet, and how many skips were written.

    Both processes map the same file: a mark that one sets is seen by the other at once.
    """

    _PAIR = struct.Struct("<QQ")

    def __init__(self, path: Path) -> None:
        size = self._PAIR.size * MOST_TRACKERS
        with open(path, "a+b") as file:
            file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)

    def set(self, slot: int, number: int, skips: int) -> None:
        self._PAIR.pack_into(self._map, slot * self._PAIR.size, number, skips)

    def get(self, slot: int) -> tuple[int, int]:
        number, skips = self._PAIR.unpack_from(self._map, slot * self._PAIR.size)
        return number, skips


class CourierProcess:
    """The training process's side: tells the courier process what to do, and hears what has become of it."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.marks = Marks(folder.path / "marks")
        self._remotes: dict[str, RemoteCourier] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-c", BOOT.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=folder.lock(),  # the run is in use as long as one of the two processes lives
            start_new_session=True,  # Ctrl-C is for the training
            text=True,
        )
        threading.Thread(target=self._listen, name="trackside-courier-process", daemon=True).start()

    def remote(self, key: str, delivery: Delivery) -> RemoteCourier:
        """A courier that is about to be ordered, with the slot of the one before it."""
        before = self._remotes.get(key)
        slot = len(self._remotes) if before is None else before.slot
        self._remotes[key] = RemoteCourier(key, slot, delivery, self._folder, self)
        return self._remotes[key]

    def start(self, remote: RemoteCourier, run: Run, is_reopened: bool) -> None:
        """Order a courier for the tracker that the folder keeps under its key, with its mark set."""
        self.say(
            do="open", folder=str(self._folder.path.absolute()), key=remote.key, slot=remote.slot,
            run=dataclasses.asdict(run), is_reopened=is_reopened,
        )  # fmt: skip

    def say(self, **order: Any) -> None:
        with contextlib.suppress(OSError, ValueError):  # a process that is gone owes what it owes
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order, default=str) + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._remotes[answer.pop("key")].hear(**answer)
        for remote in self._remotes.values():
            remote.hear(event="gone")


class RemoteCourier:
    """A courier in the courier process, as its recorder sees it."""

    def __init__(self, key: str, slot: int, delivery: Delivery, folder: RunFolder, process: CourierProcess) -> None:
        self.key, self.slot, self.delivery = key, slot, delivery
        self._folder, self._process = folder, process
        self.has_started, self.has_ended = threading.Event(), threading.Event()
        self.is_waited_for, self.is_closing = True, False
        self.refusal: Exception | None = None
        self.trouble = ""

    @property
    def tracker(self) -> Tracker:
        """What the tracker has, as the courier process has written it down."""
        return next(tracker for tracker in self._folder.trackers() if tracker.key == self.key)

    def told(self, number: int, skips: int) -> None:
        """Let records below `number` be delivered, but for those of which `skips` lines in the journal tell."""
        self._process.marks.set(self.slot, number, skips)

    def owed(self) -> int:
        tracker = self.tracker
        return max(0, self._process.marks.get(self.slot)[0] - tracker.sent) + tracker.refusals

    def hear(self, event: str, **facts: Any) -> None:
        if event == "started":
            self.delivery.reporter.tracker_id = facts["tracker_id"]
        elif event == "refused":
            self.refusal, self.trouble = RuntimeError(facts["reason"]), facts["trouble"]
            tell_of_late_refusal(self, self.key)
        elif event == "ended":
            self.delivery.sent += facts["sent"]
            self.trouble = facts["trouble"]
            self.has_ended.set()
        elif not self.has_ended.is_set():
            self.trouble = "its process is gone"
        self.has_started.set()

    def close(self, status: str) -> None:
        self.is_closing = True
        self._process.say(do="close", key=self.key, status=status)


# ---- the courier process ------------------------------------------------------------------------------------------


def serve(orders: IO[str] = sys.stdin) -> None:
    """Do what is ordered, until nobody can order any more and all that was recorded is delivered."""
    _be_polite()
    courier.BUDGET = courier.Budget(SHARE)
    server, parent = _Server(), os.getppid()
    threading.Thread(target=server.take_orders, args=(orders,), daemon=True).start()
    while os.getppid() == parent and not server.is_over.wait(POLL_SECONDS):
        pass  # a pipe that stays open is no sign of life: workers of a data loader may hold it
    if server.has_open_runs():  # a process that dies closes its pipes first
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        server.inherit()
    server.finish()


def _be_polite() -> None:
    """Take only the time that nobody else wants."""
    if hasattr(os, "sched_setscheduler") and hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)


class _Server:
    def __init__(self) -> None:
        self.is_over = threading.Event()
        self._couriers: dict[str, Courier] = {}
        self._is_orphan = False

    def take_orders(self, orders: IO[str]) -> None:
        for line in orders:
            order = json.loads(line)
            getattr(self, order.pop("do"))(**order)
        self.is_over.set()

    def open(self, folder: str, key: str, slot: int, run: dict[str, Any], is_reopened: bool) -> None:
        place = RunFolder(Path(folder))
        tracker = next(tracker for tracker in place.trackers() if tracker.key == key)
        marks, notes = Marks(place.path / "marks"), _Known(place, key)

        def limit() -> int | None:
            number, skips = marks.get(slot)
            notes.look(skips)
            return None if self._is_orphan else number

        delivery = Delivery(build(tracker))
        delivery.reporter.tracker_id = tracker.tracker_id if is_reopened else None
        one = Courier(
            delivery, Run(**run), place, tracker, limit, notes.is_for, is_reopened, after=self._couriers.get(key),
            on_start=lambda: _answer(key, "started", tracker_id=delivery.reporter.tracker_id),
        )  # fmt: skip
        self._couriers[key] = one
        threading.Thread(target=self._follow, args=(key, one), daemon=True).start()

    def _follow(self, key: str, one: Courier) -> None:
        one.start()
        one.has_ended.wait()
        if one.refusal is not None:
            _answer(key, "refused", reason=str(one.refusal), trouble=reason_of(one.refusal))
        _answer(key, "ended", sent=one.delivery.sent, trouble=one.trouble)

    def close(self, key: str, status: Any) -> None:
        if key in self._couriers:
            self._couriers[key].close(status)

    def has_open_runs(self) -> bool:
        return any(not one.is_closing for one in self._couriers.values())

    def inherit(self) -> None:
        """Take over from a training that was killed: all that the journals hold is to be delivered."""
        self._is_orphan = True
        for one in self._couriers.values():
            if not one.is_closing:
                one.close("killed")

    def finish(self) -> None:
        """Wait until all is delivered, also when the training has ended before that."""
        for one in self._couriers.values():
            one.has_ended.wait()


class _Known:
    """What the notes in a journal say of a tracker's records, read again when there are new ones."""

    def __init__(self, folder: RunFolder, key: str) -> None:
        self._folder, self._key = folder, key
        self._count, self._notes = 0, Notes.of(folder.journal)

    def look(self, count: int) -> None:
        if count != self._count:
            self._count, self._notes = count, Notes.of(self._folder.journal)

    def is_for(self, number: int, record: Record) -> bool:
        return self._notes.is_for(self._key, number, record)


_answering = threading.Lock()


def _answer(key: str, event: str, **facts: Any) -> None:
    with _answering, contextlib.suppress(OSError):
        sys.stdout.write(json.dumps({"key": key, "event": event, **facts}) + "\n")
        sys.stdout.flush()
