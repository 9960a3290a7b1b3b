"""The CPU time of couriers, while there is a loop that needs it more."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Budget:
    """The share of time in which all couriers of a process together may compute while a loop runs.

    Threads that compute take the interpreter from the loop; a thread that waits for a server does not, so what counts
    is CPU time. A courier reserves what its batch will take, so that no two of them count on the same time, and
    settles afterwards what it really took.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.renew()

    def renew(self) -> None:
        """Begin anew in a forked child, which would wait for ever for a lock that a thread of its parent held."""
        self._free_at = 0.0
        self._lifted = 0
        self._lock = threading.Lock()

    def reserve(self, seconds: float) -> float:
        """Reserve CPU time; returns the seconds to wait until it may be used."""
        if self._lifted:
            return 0.0
        with self._lock:
            now = time.monotonic()
            begins = max(self._free_at, now)
            self._free_at = begins + seconds / self.share
            return begins - now

    def settle(self, seconds: float) -> None:
        """Give back CPU time that was reserved and not used, or pay for more."""
        with self._lock:
            self._free_at -= seconds / self.share

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """While a loop waits for its couriers, there is nobody to be polite to."""
        self._lifted += 1
        try:
            yield
        finally:
            self._lifted -= 1


BUDGET = Budget(share=0.05)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=BUDGET.renew)
