"""The run that `swanlab.log` means, of which a process has one."""

from __future__ import annotations

import sys
from typing import Any
from weakref import WeakSet

# Runs that reporters have opened: those that a user has opened are adopted.
_reported: WeakSet[Any] = WeakSet()


def run_of_user() -> Any:
    """The run that the user has open. Where nobody has imported swanlab there is none."""
    swanlab = sys.modules.get("swanlab")
    if swanlab is None or not swanlab.has_run():
        return None
    run = swanlab.get_run()
    return None if run in _reported else run


def note_reported(run: Any) -> None:
    """From now on this run is known as one that a reporter has opened."""
    _reported.add(run)
