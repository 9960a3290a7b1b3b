"""The errors of wandb."""


class Error(Exception):
    pass


class CommError(Error):
    pass


class UsageError(Error):
    pass
