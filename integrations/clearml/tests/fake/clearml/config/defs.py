"""Variables of the environment."""

import os


class EnvEntry:
    def __init__(self, key):
        self._key = key

    def get(self):
        return os.environ.get(self._key)

    def set(self, value):
        os.environ[self._key] = value

    def pop(self):
        os.environ.pop(self._key, None)


PROC_MASTER_ID_ENV_VAR = EnvEntry("CLEARML_PROC_MASTER_ID")
