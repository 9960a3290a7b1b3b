"""The run that `wandb.run` and `wandb.log` mean."""

import wandb


def set_global(run=None, log=None):
    wandb.run = run
    wandb.log = log


def unset_globals():
    from wandb.errors import Error

    def log(*args, **kwargs):
        raise Error("You must call wandb.init() before wandb.log()")

    wandb.run = None
    wandb.log = log
