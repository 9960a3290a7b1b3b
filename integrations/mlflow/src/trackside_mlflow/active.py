"""The active run of MLflow's fluent API, which each thread has for itself."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple


class OpenRun(NamedTuple):
    """A run that the user has opened, and where it is."""

    id: str
    experiment_id: str
    tracking_uri: str


def run_of_user() -> OpenRun | None:
    """The run that the user has open in this thread. Where nobody has imported mlflow there is none."""
    mlflow = sys.modules.get("mlflow")
    active = getattr(mlflow, "active_run", lambda: None)()
    if mlflow is None or active is None or hasattr(active, "is_reported"):
        return None
    return OpenRun(active.info.run_id, active.info.experiment_id, mlflow.get_tracking_uri())


def make_active(run: Any, tracking_uri: str) -> Any:
    """Let `mlflow.active_run()` be `run` in this thread, unless there is one, or a user's calls would look elsewhere.

    Returns what `make_inactive` takes. `mlflow.start_run(run_id=...)` asks the server three times, and then does this.
    """
    import mlflow
    from mlflow.tracking import fluent

    if mlflow.active_run() is not None or mlflow.get_tracking_uri() != tracking_uri:
        return None
    active: Any = mlflow.ActiveRun(run)
    active.is_reported = True
    fluent._active_run_stack.get().append(active)
    return active


def make_inactive(active: Any) -> None:
    """Undo `make_active` in its thread, without ending the run; a user may have done so himself."""
    from mlflow.tracking import fluent

    stack = fluent._active_run_stack.get()
    stack[:] = [other for other in stack if other is not active]
