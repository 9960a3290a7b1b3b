"""Couriers in a process of their own, so that the training process imports no SDK and waits for none of its threads.

The training process writes the journal; this one tails it. What is to be done comes as a JSON object a line on standard
input, what has become of it goes back on standard output. How far each reporter was told stands in a small mapped file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import mmap
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from trackside import Run
from trackside.delivery import Delivery, reason_of
from trackside.records import Record
from trackside_spool.budget import BUDGET
from trackside_spool.courier import Courier, tell_of_late_refusal
from trackside_spool.folder import RunFolder, Tracker
from trackside_spool.journal import Notes
from trackside_spool.recipe import build

logger = logging.getLogger(__name__)

# Read from -c, not with -m: a `json.py` in the working directory would take the place of the library's.
BOOT = "import sys; sys.path[:] = {path!r}; from trackside_spool.process import serve; serve()"
MOST_TRACKERS = 64
POLL_SECONDS = 0.1
LEAVE_SECONDS = 3.0
LAST_ORDERS_SECONDS = 3.0
SHARE = 0.25  # of a core that the loop does not use


class Marks:
    """For each tracker, the number of the first record that is not for it yet, and how many skips were written.

    Both processes map the same file: a mark that one sets is seen by the other at once.
    """

    _PAIR = struct.Struct("<QQ")

    def __init__(self, path: Path) -> None:
        size = self._PAIR.size * MOST_TRACKERS
        with open(path, "a+b", buffering=0) as file:
            file.write(bytes(size - file.tell()))  # a hole, for which a full disk has no room, would end the program
            self._map = mmap.mmap(file.fileno(), size)

    def set(self, slot: int, number: int, skips: int) -> None:
        self._PAIR.pack_into(self._map, slot * self._PAIR.size, number, skips)

    def get(self, slot: int) -> tuple[int, int]:
        number, skips = self._PAIR.unpack_from(self._map, slot * self._PAIR.size)
        return number, skips


class CourierProcess:
    """The training process's side: tells the courier process what to do, and hears what has become of it.

    A process that has died is replaced by another one when there is something to do again.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.marks = Marks(folder.path / "marks")
        self._slots: dict[str, int] = {}
        self._remotes: list[RemoteCourier] = []
        self._ordering = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def remote(self, key: str, delivery: Delivery, on_start: Callable[[], None]) -> RemoteCourier:
        """A courier that is about to be ordered, with the mark of the one before it."""
        slot = self._slots.setdefault(key, len(self._slots))
        return RemoteCourier(key, slot, delivery, on_start, self._folder, self)

    def start(self, remote: RemoteCourier, run: Run, is_reopened: bool) -> None:
        """Order a courier for the tracker that the folder keeps under its key, with its mark set."""
        with self._ordering:
            if self._process is None:
                self._process = self._launch()
            remote.number = len(self._remotes)
            self._remotes.append(remote)
            self._say(
                do="open", number=remote.number, folder=str(self._folder.path.absolute()), key=remote.key,
                slot=remote.slot, run=dataclasses.asdict(run), is_reopened=is_reopened,
            )  # fmt: skip

    def say(self, **order: Any) -> None:
        with self._ordering:
            self._say(**order)

    def end(self, patience: float) -> None:
        """Let the process end, once it has delivered what it was ordered to; wait for that some seconds."""
        with self._ordering:
            process = self._process
        if process is None:
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            assert process.stdin is not None
            process.stdin.close()
            process.wait(patience)

    def _launch(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", BOOT.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[self._folder.couriers_lock],
            start_new_session=True,  # Ctrl-C is for the training
            text=True,
        )
        threading.Thread(target=self._listen, args=(process,), name="trackside-courier-process", daemon=True).start()
        return process

    def _say(self, **order: Any) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError, ValueError):  # a process that is gone owes what it owes
            self._process.stdin.write(json.dumps(order, default=str) + "\n")
            self._process.stdin.flush()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        with contextlib.suppress(OSError), process:
            for line in process.stdout or ():
                answer = json.loads(line)
                self._remotes[answer.pop("number")].hear(**answer)
        with self._ordering:
            self._process = None
            orphans = [remote for remote in self._remotes if not remote.has_ended.is_set()]
        if orphans:
            logger.warning("The courier process is gone; what trackers have not got is kept.")
        for remote in orphans:
            remote.hear("gone")


class RemoteCourier:
    """A courier in the courier process, as its recorder sees it."""

    def __init__(
        self,
        key: str,
        slot: int,
        delivery: Delivery,
        on_start: Callable[[], None],
        folder: RunFolder,
        process: CourierProcess,
    ) -> None:
        self.key, self.slot, self.number, self.delivery, self._on_start = key, slot, -1, delivery, on_start
        delivery.is_elsewhere = True
        self._folder, self._process = folder, process
        self._known = Tracker(key, "")
        self.has_answered, self.has_ended = threading.Event(), threading.Event()
        self.has_started = False
        self.is_waited_for, self.is_closing = True, False
        self.refusal: Exception | None = None
        self.trouble = ""

    @property
    def tracker(self) -> Tracker:
        """What the tracker has, as the courier process has written it down, or had as long as that could be read."""
        self._known = self._folder.tracker(self.key) or self._known
        return self._known

    def told(self, number: int, skips: int) -> None:
        """Let records below `number` be delivered, but for those of which `skips` lines in the journal tell."""
        self._process.marks.set(self.slot, number, skips)

    def owed(self) -> int:
        tracker = self.tracker
        return max(0, self._process.marks.get(self.slot)[0] - tracker.sent) + tracker.refusals

    def hear(self, event: str, **facts: Any) -> None:
        if event == "started":
            self.delivery.reporter.tracker_id, self.delivery.shown_by = facts["tracker_id"], facts["shown_by"]
            self.trouble, self.has_started = "", True
            self._on_start()
        elif event == "waits":
            self.trouble = facts["trouble"]
        elif event == "refused":
            self.refusal, self.trouble = RuntimeError(facts["reason"]), facts["trouble"]
            tell_of_late_refusal(self, self.key)
        elif event == "ended":
            self.delivery.sent += facts["sent"]
            self.trouble = facts["trouble"]
            self.has_ended.set()
        else:
            self.trouble = "its process is gone"
            self.has_ended.set()
        self.has_answered.set()

    def close(self, status: str) -> None:
        self.is_closing = True
        self._process.say(do="close", number=self.number, status=status)

    def hand_over(self) -> None:
        """Leave the rest to another courier, after the call that is being made. Returns at once."""
        self.is_closing = True
        self._process.say(do="hand_over", number=self.number)


# ---- the courier process ------------------------------------------------------------------------------------------


def serve() -> None:
    """Do what is ordered, until nobody can order any more and all that was recorded is delivered."""
    _be_polite()
    BUDGET.share = SHARE
    server, parent = _Server(_answers()), os.getppid()
    threading.Thread(target=server.take_orders, args=(sys.stdin,), daemon=True).start()
    while os.getppid() == parent and not server.is_over.wait(POLL_SECONDS):
        pass  # a pipe that stays open is no sign of life: workers of a data loader may hold it
    server.is_over.wait(LAST_ORDERS_SECONDS)  # what was ordered before that is still in the pipe
    if server.has_open_runs():  # a process that dies closes its pipes first
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        server.inherit()
    server.finish()


def _answers() -> IO[str]:
    """Standard output for the answers alone: what an SDK prints goes where errors go."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _be_polite() -> None:
    """Take only the time that nobody else wants."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):  # not on this system, or not in this container
        os.nice(19)


class _Server:
    def __init__(self, answers: IO[str]) -> None:
        self.is_over = threading.Event()
        self._answers, self._answering = answers, threading.Lock()
        self._couriers: dict[int, Courier] = {}
        self._of_key: dict[str, Courier] = {}
        self._folders: dict[str, RunFolder] = {}
        self._is_orphan = False

    def take_orders(self, orders: IO[str]) -> None:
        for line in orders:
            order = json.loads(line)
            getattr(self, order.pop("do"))(**order)
        self.is_over.set()

    def open(self, number: int, **order: Any) -> None:
        try:
            self._couriers[number] = one = self._courier(number, **order)
        except Exception as error:
            self._refuse(number, error)
            self._answer(number, "ended", sent=0, trouble=reason_of(error))
            return
        threading.Thread(target=self._follow, args=(number, one), daemon=True).start()

    def _courier(
        self, number: int, folder: str, key: str, slot: int, run: dict[str, Any], is_reopened: bool
    ) -> Courier:
        place, before = self._folders.setdefault(folder, RunFolder(Path(folder))), self._of_key.get(key)
        tracker = place.tracker(key) if before is None else before.tracker
        if tracker is None:
            raise FileNotFoundError(f"{folder} does not say how to reach {key}")
        marks, notes = Marks(place.path / "marks"), _Known(place, key)

        def limit() -> int | None:
            told, skips = marks.get(slot)
            notes.look(skips)
            return None if self._is_orphan else told

        delivery = Delivery(build(tracker))
        reporter = delivery.reporter
        reporter.tracker_id = tracker.tracker_id if is_reopened else None
        self._of_key[key] = one = Courier(
            delivery, Run(**run), place, tracker, limit, notes.is_for, is_reopened, after=before,
            on_start=lambda: self._answer(
                number, "started", tracker_id=reporter.tracker_id, shown_by=delivery.where()
            ),
            on_trouble=lambda trouble: self._answer(number, "waits", trouble=trouble),
        )  # fmt: skip
        return one

    def _follow(self, number: int, one: Courier) -> None:
        one.start()
        one.has_ended.wait()
        if one.refusal is not None:
            self._refuse(number, one.refusal)
        self._answer(number, "ended", sent=one.delivery.sent, trouble=one.trouble)

    def _refuse(self, number: int, error: Exception) -> None:
        self._answer(number, "refused", reason=str(error), trouble=reason_of(error))

    def _answer(self, number: int, event: str, **facts: Any) -> None:
        with self._answering, contextlib.suppress(OSError):
            self._answers.write(json.dumps({"number": number, "event": event, **facts}) + "\n")
            self._answers.flush()

    def close(self, number: int, status: Any) -> None:
        if number in self._couriers:
            self._couriers[number].close(status)

    def hand_over(self, number: int) -> None:
        if number in self._couriers:
            self._couriers[number].hand_over()

    def has_open_runs(self) -> bool:
        return any(not one.is_closing for one in self._couriers.values())

    def inherit(self) -> None:
        """Take over from a training that was killed: all that the journals hold is to be delivered."""
        self._is_orphan = True
        for one in self._couriers.values():
            if not one.is_closing:
                one.close("killed")

    def finish(self) -> None:
        """Wait until all is delivered, also when the training has ended before that, or another one wants to do it."""
        if self._at_work():
            self._write_to_a_file()
        while self._at_work():
            if any(folder.is_wanted for folder in self._folders.values()):
                self._leave()
            time.sleep(POLL_SECONDS)

    def _at_work(self) -> list[Courier]:
        return [one for one in self._couriers.values() if not one.has_ended.is_set()]

    def _write_to_a_file(self) -> None:
        """Let go of the terminal or the pipe of a training that has ended, for whose end others may wait."""
        with contextlib.suppress(OSError):
            path = next(iter(self._folders.values())).path / "couriers.log"
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            for stream in (1, 2):
                os.dup2(log, stream)
            os.close(log)

    def _leave(self) -> None:
        until = time.monotonic() + LEAVE_SECONDS
        for one in self._at_work():
            one.hand_over()
        for one in self._at_work():
            one.has_ended.wait(max(0.0, until - time.monotonic()))
        os._exit(0)  # a call that hangs, or an SDK that is not done, is not waited for


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
