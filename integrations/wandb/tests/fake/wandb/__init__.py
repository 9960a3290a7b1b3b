# ruff: noqa: A002 - the names are those of the real one
"""A stand-in for wandb that refuses what wandb 0.27 and 0.31 refuse, and keeps what it takes in memory.

Names, arguments and defaults are those of the real one, which the tests marked `sdk` compare.
"""

import os

from wandb.artifacts import Artifact
from wandb.errors import Error
from wandb.run import ACTIVE, RUNS, Run
from wandb.sdk.lib import module
from wandb.settings import Settings

__all__ = ["Artifact", "Settings", "init", "setup"]

run = None
module.unset_globals()


class _Setup:
    def __init__(self):
        mode = os.environ.get("WANDB_MODE", "online")
        self.settings = Settings(mode=mode, base_url=os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))


def setup(settings=None):
    return _Setup()


def init(
    entity=None,
    project=None,
    dir=None,
    id=None,
    name=None,
    notes=None,
    tags=None,
    config=None,
    config_exclude_keys=None,
    config_include_keys=None,
    allow_val_change=None,
    group=None,
    job_type=None,
    mode=None,
    force=None,
    reinit=None,
    resume=None,
    resume_from=None,
    fork_from=None,
    save_code=None,
    tensorboard=None,
    sync_tensorboard=None,
    monitor_gym=None,
    settings=None,
    anonymous=None,
):
    known = {**vars(setup().settings), **vars(settings or Settings())}
    mode = mode or known["mode"]
    if ACTIVE and reinit != "create_new":
        return list(ACTIVE.values())[-1]
    if id in ACTIVE:
        raise Exception(f"run ID {id} is in use")
    if mode not in ("online", "offline", "disabled"):
        raise ValueError(f"mode is {mode!r}")
    if mode == "online" and getattr(Settings, "server", "down") != "up":
        raise Error(f"Failed to get resume status for run {id}")
    made = Run(id, mode, name, project, entity, group, job_type, tags, notes, dir, resume, known)
    if mode != "disabled":
        RUNS.append(made)
        ACTIVE[made.id] = made
    if reinit != "create_new":
        module.set_global(run=made, log=made.log)
    return made
