"""A stand-in for mlflow that refuses what mlflow 2.22 and 3.17 refuse, and keeps what it takes in memory.

Names, arguments and defaults are those of the real one, which the tests marked `sdk` compare.
"""

import os

from mlflow.client import MlflowClient
from mlflow.tracking.fluent import ActiveRun, active_run, end_run, start_run

__all__ = ["ActiveRun", "MlflowClient", "active_run", "end_run", "get_tracking_uri", "set_tracking_uri", "start_run"]

IMPORTED_WITHOUT_TELEMETRY = os.environ.get("MLFLOW_DISABLE_TELEMETRY") == "true"


def get_tracking_uri():
    return os.environ.get("MLFLOW_TRACKING_URI", "memory://default")


def set_tracking_uri(uri):
    os.environ["MLFLOW_TRACKING_URI"] = uri
