"""ClearML's one task of a process: opened and closed without what the SDK does to the process beside it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

FRAMEWORKS = (
    *("catboost", "detect_repository", "fastai", "gradio", "hydra", "joblib", "lightgbm", "matplotlib"),
    *("megengine", "pytorch", "scikit", "tensorboard", "tensorflow", "tfdefines", "xgboost"),
)
# What would send the command line and uncommitted code, patch other libraries, catch the console, measure the machine.
OFF = {
    "auto_connect_arg_parser": False,
    "auto_connect_frameworks": dict.fromkeys(FRAMEWORKS, False),
    "auto_connect_streams": False,
    "auto_resource_monitoring": False,
}

USUAL_CACHE = "~/.clearml/cache"

_lock = threading.Lock()


def task_of_user() -> Any:
    """The task that the user has open in this process. Where nobody has imported clearml there is none."""
    clearml = sys.modules.get("clearml")
    task = None if clearml is None else clearml.Task.current_task()
    return None if hasattr(task, "reports_run") else task


def task_of_agent() -> Any:
    """The task for which an agent runs this program; the agent closes it."""
    from clearml import Task

    with _lock, _alone():
        task = Task.init(**OFF)
        task._report_subprocess_enabled = False
    return task


def open_task(run_id: str, continued: str | None, folder: str, options: Mapping[str, Any]) -> Any:
    """A new task for a run of ours, or one that is continued; the one that is open, if it is of this run already.

    Args:
        run_id: of the run.
        continued: the id of the task to continue.
        folder: where a session is kept that runs offline, unless the user has said so.
        options: for `Task.init`.
    """
    from clearml import Task

    with _lock, _sessions_in(folder):
        _forget_other_processes()
        task = Task.current_task()
        if task is not None and getattr(task, "reports_run", None) != run_id:
            raise RuntimeError("ClearML has one task at a time in a program, and another run has it open")
        if task is None:
            try:
                with _alone():
                    task = Task.init(
                        reuse_last_task_id=continued or False,
                        continue_last_task=0 if continued else False,
                        **{**OFF, **options},
                    )
            finally:  # also if that fails half-way, for the next try to go on with
                if (made := Task.current_task()) is not None:
                    made.reports_run, made._report_subprocess_enabled = run_id, False
                    _unhook(made)
    return task


def is_open(task: Any) -> bool:
    from clearml import Task

    return Task.current_task() is task


def close_task(task: Any) -> None:
    with _lock, _alone():
        task.close()
        _forget_other_processes()


def _forget_other_processes() -> None:
    """The SDK notes for child processes which one has the task, for ever: they would get a task that does nothing."""
    from clearml import Task
    from clearml.config.defs import PROC_MASTER_ID_ENV_VAR

    if not Task._has_current_task_obj():
        PROC_MASTER_ID_ENV_VAR.pop()


def session_of(task_id: str, folder: str) -> Path:
    """The folder of a task that runs offline."""
    from clearml.config import get_offline_dir

    with _sessions_in(folder):
        return Path(str(get_offline_dir(task_id)))


@contextmanager
def _sessions_in(folder: str) -> Iterator[None]:
    """Meanwhile, sessions that run offline are kept in `folder`, unless a variable or clearml.conf says otherwise."""
    from clearml.config import config_obj

    cache = config_obj.get("sdk.storage.cache")
    usual = cache.get("default_base_dir")
    if usual == USUAL_CACHE:
        cache.put("default_base_dir", os.path.abspath(folder))
    try:
        yield
    finally:
        cache.put("default_base_dir", usual)


@contextmanager
def _alone() -> Iterator[None]:
    """While the SDK is at work: it forks no process to report from, prints nothing, and notes no task to overwrite."""
    from clearml import Task
    from clearml.config.cache import SessionCache

    leave, modules = sys.exit, [import_module(name) for name in ("clearml.logger", "clearml.task")]
    notes, SessionCache.SESSION_CACHE_FOLDER = SessionCache.SESSION_CACHE_FOLDER, os.devnull
    forks, Task._report_subprocess_enabled = Task._report_subprocess_enabled, False
    for module in modules:
        vars(module)["print"] = lambda *args, **kwargs: None
    try:
        yield
    finally:
        for module in modules:
            del vars(module)["print"]
        SessionCache.SESSION_CACHE_FOLDER, sys.exit = notes, leave
        Task._report_subprocess_enabled = forks


def _unhook(task: Any) -> None:
    """Take back what closes the task when the program ends, however it ends: we do, and know how it has ended."""
    from clearml import Task
    from clearml.binding.environ_bind import PatchOsFork

    atexit.unregister(task._at_exit)
    Task._remove_signal_hooks()
    Task._remove_exception_hooks()
    PatchOsFork.patch_fork(None)
