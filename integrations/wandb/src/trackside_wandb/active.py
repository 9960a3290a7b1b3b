"""The one run of a process that `wandb.run` and `wandb.log` mean."""

from __future__ import annotations

import inspect
import sys
from typing import Any
from weakref import WeakSet

# Runs that reporters have opened: those that a user has opened are adopted.
_reported: WeakSet[Any] = WeakSet()


def run_of_user() -> Any:
    """The run that the user has open. Where nobody has imported wandb there is none."""
    run = getattr(sys.modules.get("wandb"), "run", None)
    return None if run in _reported else run


def note_reported(run: Any) -> None:
    """From now on this run is known as one that a reporter has opened."""
    _reported.add(run)


def make_active(run: Any) -> None:
    """Let `wandb.run` be `run`, and `wandb.log` and the others log to it, unless the user has a run open."""
    import wandb
    from wandb.sdk.lib import module

    if wandb.run is None:
        others = inspect.signature(module.set_global).parameters.keys() - {"run"}
        module.set_global(run=run, **{name: getattr(run, name) for name in others})


def make_inactive(run: Any) -> None:
    """Undo `make_active`."""
    import wandb
    from wandb.sdk.lib import module

    if wandb.run is run:
        module.unset_globals()
