# ruff: noqa: A002 - the names are those of the real one
"""A stand-in for swanlab that refuses, or drops in silence, what swanlab 0.10 does, and keeps the rest in memory.

Names, arguments and defaults are those of the real one, which the tests marked `sdk` compare.
"""

import os
import uuid

from swanlab.run import ANSWERS, Run, Text, get_run, has_run
from swanlab.sdk.internal.core_python import client
from swanlab.sdk.internal.pkg import console
from swanlab.sdk.internal.settings import MODES, Settings, check_name, check_project

__all__ = ["Run", "Settings", "Text", "get_run", "has_run", "init", "log"]


def init(
    *,
    reinit=None,
    log_dir=None,
    mode=None,
    workspace=None,
    project=None,
    public=None,
    name=None,
    color=None,
    description=None,
    job_type=None,
    group=None,
    tags=None,
    id=None,
    resume=None,
    parallel=None,
    config=None,
    settings=None,
    callbacks=None,
):
    if has_run():
        raise RuntimeError("`swanlab.init` requires an inactive Run.")
    known = Settings()
    mode = {"cloud": "online"}.get(mode, mode) or known.mode
    if mode not in MODES:
        raise ValueError(f"Invalid mode: {mode}, allowed values are {MODES}")
    check_project(project)
    for text in (name, group, description, *(tags or ())):
        check_name(text)
    if resume not in ("must", "allow", "never", None):
        raise ValueError(f"resume is {resume!r}")
    if mode == "online":
        if (resume == "must") > (id is not None) or (resume == "never" and id is not None):
            raise AssertionError(f"resume is {resume}, id is {id}")
        if known.api_key is None and not client.exists():
            raise RuntimeError("no TTY is available for interactive login.")
        if ANSWERS:
            raise RuntimeError(f"Failed to start run: API Request Failed: [{ANSWERS.pop()}] unknown error")
    about = {"name": name, "project": project, "workspace": workspace, "group": group, "tags": tags, "resume": resume}
    run = Run(id or uuid.uuid4().hex[:8], mode, os.path.abspath(log_dir or "swanlog"), about, settings)
    console.info("Tracking run with swanlab version 0.10")
    return run


def log(data, step=None):
    if not has_run():
        raise RuntimeError("`swanlab.log` requires an active Run, call `swanlab.init()` first.")
    return get_run().log(data, step)
