"""What a person at a terminal sees of a drain that takes long."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterable
from typing import Any

PATIENCE_SECONDS = 2.0
_START_OF_LINE = "\r\x1b[K"  # and erase what stands there


class DrainLine:
    """One line that says what is still to be delivered; nothing where standard error is no terminal.

    Args:
        begin: when the drain began, by the monotonic clock; it is shown some seconds later.
    """

    def __init__(self, begin: float) -> None:
        self._begin = begin
        self._is_shown = False

    def show(self, couriers: Iterable[Any]) -> None:
        """Say how many records each courier has still to deliver."""
        if time.monotonic() - self._begin < PATIENCE_SECONDS or not _is_terminal():
            return
        left = ", ".join(f"{courier.tracker.key} {courier.owed():,}" for courier in couriers)
        line = f"Records still to be delivered: {left}. Ctrl-C leaves them to a replay."
        self._write(line[: shutil.get_terminal_size().columns - 1])
        self._is_shown = True

    def clear(self) -> None:
        if self._is_shown:
            self._write("")
            self._is_shown = False

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a terminal that is gone
            sys.stderr.write(_START_OF_LINE + line)
            sys.stderr.flush()


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False
