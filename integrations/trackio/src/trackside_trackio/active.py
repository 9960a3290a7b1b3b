"""The run that `trackio.log` means, of which each thread has one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

SETTLE_SECONDS = 5  # of which trackio needs half a second

# Runs that reporters have opened: those that a user has opened are adopted.
_reported: WeakSet[Any] = WeakSet()


def run_of_user() -> Any:
    """The run that the user has open in this thread. Where nobody has imported trackio there is none."""
    context = sys.modules.get("trackio.context_vars")
    run = None if context is None else context.current_run.get()
    return None if run in _reported else run


def note_reported(run: Any) -> None:
    """From now on this run is known as one that a reporter has opened."""
    _reported.add(run)


def settle(run: Any) -> None:
    """Let a run of the user's write the rows that wait in it: with the first of them, it writes its whole config."""
    until = time.monotonic() + SETTLE_SECONDS
    while run._queued_logs and time.monotonic() < until:
        time.sleep(0.05)
    with run._client_lock:  # which it holds while it writes
        pass


def make_active(run: Any) -> Callable[[], None] | None:
    """Let `trackio.log` and the others log to `run` in this thread, unless the user has one open.

    Returns what undoes it, in the same thread.
    """
    import trackio
    from trackio import context_vars

    if context_vars.current_run.get() is not None:
        return None
    project, config = context_vars.current_project.get(), trackio.config
    context_vars.current_run.set(run)
    context_vars.current_project.set(run.project)
    trackio.config = run.config

    def undo() -> None:
        if context_vars.current_run.get() is run:
            context_vars.current_run.set(None)
            context_vars.current_project.set(project)
            trackio.config = config

    return undo
