"""The updates of a status: few enough for a controller that serves many jobs, and none in the loop's way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from trackside_kubeflow.progress import Progress, TrainerStatus

SECONDS_BETWEEN = 5.0
LONGEST_PAUSE = 60.0
END_SECONDS = 10.0
SECONDS_BETWEEN_TRIES = 0.5  # at the end, when there is not much time left

CLOCKS = ("lastUpdatedTime", "estimatedRemainingSeconds")


class Updates(threading.Thread):
    """Sends the status of a training: whenever it is asked to, and what is new every five seconds at most.

    It looks at the progress by itself, so that a step of the training costs nothing, and a training that hangs is not
    made to look alive. A controller that does not take it is asked less and less often, down to once a minute.

    Args:
        progress: what to tell.
        send: brings a status to the controller, or raises.
        is_passing: whether what `send` has raised may be over soon.
        complain: told of each error but those of the end, which `end` raises.
    """

    def __init__(
        self,
        progress: Progress,
        send: Callable[[TrainerStatus], None],
        is_passing: Callable[[Exception], bool],
        complain: Callable[[Exception], None],
    ) -> None:
        super().__init__(name="trackside-kubeflow", daemon=True)
        self.progress = progress
        self._send, self._is_passing, self._complain = send, is_passing, complain
        self._asked: SimpleQueue[TrainerStatus | None] = SimpleQueue()
        self._sent = progress.status()  # what is there at the start is no news
        self._pause = SECONDS_BETWEEN
        self._error: Exception | None = None
        self._end_by: float | None = None

    def ask(self) -> None:
        """Send the status as it is now, after what was asked for before. Returns at once."""
        self._asked.put(self.progress.status())

    def end(self) -> None:
        """Send the last status; returns when the controller has it, and raises why it has not."""
        self._end_by = time.monotonic() + END_SECONDS
        self.ask()
        self._asked.put(None)
        self.join(END_SECONDS)
        if self._error is not None:
            raise self._error
        if self.is_alive():
            raise TimeoutError(f"no answer within {END_SECONDS:g} seconds")

    def run(self) -> None:
        while (status := self._next()) is not None and not self._is_late:
            self._try(status)
            if self._error is not None and self._end_by is None:
                self._complain(self._error)
        while self._error is not None and self._is_passing(self._error) and not self._is_late:
            time.sleep(SECONDS_BETWEEN_TRIES)
            self._try(self.progress.status())

    def _next(self) -> TrainerStatus | None:
        """What was asked for, else what is new after some seconds; None at the end."""
        while True:
            with suppress(Empty):
                return self._asked.get(timeout=self._pause)
            status = self.progress.status()
            if _without_clocks(status) != _without_clocks(self._sent):
                return status

    def _try(self, status: TrainerStatus) -> None:
        try:
            self._send(status)
        except Exception as error:  # whatever it is, the next status may arrive
            self._error, self._pause = error, min(2 * self._pause, LONGEST_PAUSE)
        else:
            self._sent, self._error, self._pause = status, None, SECONDS_BETWEEN

    @property
    def _is_late(self) -> bool:
        """Whether nobody waits for the end any more; another run may have begun."""
        return self._end_by is not None and time.monotonic() >= self._end_by


def _without_clocks(status: TrainerStatus) -> TrainerStatus:
    return {name: value for name, value in status.items() if name not in CLOCKS}
