"""The drain: how long a training waits at its end for the couriers, what a person sees of that, and what ends it."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trackside_spool.budget import BUDGET
from trackside_spool.progress import DrainLine

logger = logging.getLogger(__name__)

LONGEST_WAIT = 1e8  # seconds, which every clock can count
LEAST_SECONDS = 0.5  # for each courier, when one before it has used up the time of all
SECONDS_BETWEEN_LOOKS = 0.5


def start_seconds() -> float:
    """How long a training waits at its beginning for trackers that start."""
    return _seconds_of("TRACKSIDE_START_SECONDS", 10)


def drain_seconds() -> float:
    """How long a training waits at its end for all couriers together."""
    return _seconds_of("TRACKSIDE_DRAIN_SECONDS", 10)


def _seconds_of(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    try:
        seconds = float(text or default)
    except ValueError:
        seconds = math.nan
    if math.isnan(seconds):
        logger.warning("%s=%r is no number of seconds; %g are taken.", variable, text, default)
        seconds = default
    return min(max(0.0, seconds), LONGEST_WAIT)


class Drain:
    """Waits for the couriers of a run, which have one deadline together; who interrupts that waits for none of them.

    Args:
        couriers: those of the run, by their trackers, as they come and go.
    """

    def __init__(self, couriers: Mapping[str, Any]) -> None:
        self._couriers = couriers
        self._awaited: set[str] = set()
        self._until: float | None = None
        self._is_interrupted = False

    def renew(self) -> None:
        """Have patience again, and a new time for all."""
        self._until, self._is_interrupted = None, False

    def interrupt(self) -> None:
        """Have no patience any more."""
        self._is_interrupted = True

    def expect(self, key: str) -> None:
        """Count a courier among those that are waited for; the first of them begins a new time for all."""
        if not self._awaited:
            self._until = None
        self._awaited.add(key)

    def wait(self, key: str, is_at_work: Callable[[float], bool]) -> None:
        """Wait for a courier as long as it is at work, which `is_at_work` says after some seconds at the latest."""
        until = self._deadline()
        line = DrainLine(begin=time.monotonic())
        try:
            with BUDGET.lifted():
                while is_at_work(min(SECONDS_BETWEEN_LOOKS, max(0.0, until - time.monotonic()))):
                    if time.monotonic() >= until:
                        return
                    line.show(one for one in tuple(self._couriers.values()) if not one.has_ended.is_set())
        except BaseException:
            self.interrupt()
            raise
        finally:
            line.clear()
            self._awaited.discard(key)

    def _deadline(self) -> float:
        seconds, now = drain_seconds(), time.monotonic()
        if self._is_interrupted:
            return now
        if self._until is None:
            self._until = now + seconds
        return max(self._until, now + min(LEAST_SECONDS, seconds))


def wait_for_all(couriers: Iterable[Any], seconds: float) -> None:
    """Wait until couriers have ended, some seconds at the most."""
    until = time.monotonic() + seconds
    for courier in couriers:
        courier.has_ended.wait(max(0.0, until - time.monotonic()))
