"""Trying again: what has gone wrong, and when to try the next time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from trackside.delivery import said_by

LONGEST_PAUSE = 30.0


def pauses() -> Iterator[float]:
    """Seconds between tries: doubled each time, up to half a minute, each somewhere around that so as not to crowd."""
    pause = 0.5
    while True:
        yield pause * random.uniform(0.5, 1.5)
        pause = min(2 * pause, LONGEST_PAUSE)


def error_of(attempt: Callable[[], None]) -> Exception | None:
    try:
        attempt()
    except Exception as error:
        return error
    except BaseException as error:  # an SDK that would end the program, which is not its own
        return RuntimeError(said_by(error))
    return None


def retry_after(error: Exception) -> float | None:
    """The seconds that a server has asked to be left alone for, as the HTTP libraries show it."""
    headers = getattr(getattr(error, "response", error), "headers", None) or {}
    try:
        seconds = float(headers.get("Retry-After", ""))
    except ValueError:
        return None
    return min(seconds, 10 * LONGEST_PAUSE) if seconds > 0 else None
