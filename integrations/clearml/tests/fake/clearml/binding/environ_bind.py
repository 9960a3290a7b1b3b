"""Forks of the process."""


class PatchOsFork:
    _current_task = None

    @classmethod
    def patch_fork(cls, task):
        cls._current_task = task
