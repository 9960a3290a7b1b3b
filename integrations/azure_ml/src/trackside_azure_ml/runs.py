"""Runs of the SDK: what kind they are, and how they end."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from trackside import Status

HAS_ENDED = ("Completed", "Failed", "Canceled")


def is_offline(run: Any) -> bool:
    """Whether a run is what the SDK makes where no job runs: it prints and keeps nothing."""
    return not hasattr(run, "experiment")


def end(run: Any, status: Status) -> None:
    """End a run by an event, as the SDK does after it has started threads, which a program that ends cannot."""
    client = run._client
    try:
        _send_what_users_have_logged(run)
    finally:
        if status == "finished":
            client.set_completed_status(_set_status=True)
        elif status == "failed":
            client.set_failed_status(_set_status=True)
        else:
            client.run.post_event_canceled()


def _send_what_users_have_logged(run: Any) -> None:
    """Let the SDK send what it was told by `Run.log`, and end its threads, which would look for more for ever."""
    client = run._client.metrics
    if client._task_queue_v2_internal is None:
        return
    with suppress(RuntimeError):  # the interpreter is shutting down, and starts no more threads
        run.flush()
    for queue in (client._task_queue_internal, client._task_queue_v2_internal):
        if queue is not None:
            queue._daemon.stop()
