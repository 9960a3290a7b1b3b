"""Settings that are looked up at each request."""

import os


class Setting:
    def __init__(self, name, kind, default):
        self.name = name
        self.kind = kind
        self.default = default

    def get(self):
        text = os.environ.get(self.name)
        return self.default if text is None else self.kind(text)


MLFLOW_HTTP_REQUEST_MAX_RETRIES = Setting("MLFLOW_HTTP_REQUEST_MAX_RETRIES", int, 7)
MLFLOW_HTTP_REQUEST_TIMEOUT = Setting("MLFLOW_HTTP_REQUEST_TIMEOUT", int, 120)
MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT = Setting("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", bool, False)
