"""Opening a run: what wandb is told of it, and what wandb is kept from finding out and printing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from trackside import Run
from trackside.values import describe, redact

SECONDS = 20


def open_run(run: Run, **arguments: Any) -> Any:
    """A run of its own, whatever else is open in this process."""
    import wandb

    os.makedirs(arguments["dir"], exist_ok=True)
    settings = {**_unless_set(), **_git(run)}
    known = {name: value for name, value in settings.items() if name in wandb.Settings.model_fields}
    return wandb.init(reinit="create_new", settings=wandb.Settings(**known), **arguments)


def _unless_set() -> dict[str, Any]:
    """Settings that are ours unless a variable of wandb's own says otherwise."""
    ours = {
        "silent": True,
        "console": "off",
        "init_timeout": SECONDS,
        "finish_timeout": SECONDS,
        "finish_timeout_raises": True,
        "x_disable_meta": redact(describe(sys.argv)) != sys.argv,  # it holds the command line
    }
    return {name: value for name, value in ours.items() if f"WANDB_{name.upper()}" not in os.environ}


def _git(run: Run) -> dict[str, str]:
    """The commit and the address of the repository, without credentials."""
    commit = run.source.get("git_commit")
    if commit is None:
        return {}
    command = ["git", "config", "--get", "remote.origin.url"]
    try:
        remote = subprocess.run(command, capture_output=True, text=True, timeout=2).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        remote = ""
    return {"git_commit": commit, "git_remote_url": redact(remote)}
