"""The client, and the stores that it finds by their addresses."""

import math
import os
import sys
import time
import uuid
from pathlib import Path

from mlflow import environment_variables as settings
from mlflow.entities import Experiment, Run, RunData, RunInfo
from mlflow.exceptions import MlflowException, refuse
from mlflow.rules import check_artifact_path, check_batch, check_name, check_status, check_text


class Store:
    def __init__(self):
        self.experiments = {"Default": Experiment("0", "Default")}
        self.runs: dict[str, Run] = {}
        self.artifacts: dict[str, dict[str, bytes]] = {}


STORES: dict[str, Store] = {}
REQUESTS: list[tuple[str, int, int]] = []  # each with the retries and the timeout that held for it


class MlflowClient:
    def __init__(self, tracking_uri=None, registry_uri=None):
        import mlflow

        self.tracking_uri = tracking_uri or mlflow.get_tracking_uri()
        if self.tracking_uri.startswith("incomplete:"):
            raise ModuleNotFoundError("No module named 'sqlalchemy'")

    def get_experiment_by_name(self, name):
        return self._store("get_experiment_by_name").experiments.get(name)

    def create_experiment(self, name, artifact_location=None, tags=None):
        experiments = self._store("create_experiment").experiments
        if name in experiments:
            raise MlflowException(f"Experiment(name={name}) already exists", "RESOURCE_ALREADY_EXISTS")
        experiments[name] = Experiment(str(len(experiments)), name)
        return experiments[name].experiment_id

    def create_run(self, experiment_id, start_time=None, tags=None, run_name=None):
        store = self._store("create_run")
        if experiment_id not in {experiment.experiment_id for experiment in store.experiments.values()}:
            raise MlflowException(f"No Experiment with id={experiment_id} exists", "RESOURCE_DOES_NOT_EXIST")
        for key, value in (tags or {}).items():
            check_name(key)
            check_text(value)
            if len(value) > 5000:
                refuse(f"the tag {key} had length {len(value)}, which exceeded the limit of 5000")
        check_text(run_name)
        if len(run_name) > 250:
            refuse("Data too long for column 'name'")
        info = RunInfo(uuid.uuid4().hex, experiment_id, start_time, run_name)
        store.runs[info.run_id] = run = Run(info, RunData(dict(tags or {})))
        store.artifacts[info.run_id] = {}
        return run

    def get_run(self, run_id):
        return self._run("get_run", run_id)

    def update_run(self, run_id, status=None, name=None):
        check_status(status)
        self._active_run("update_run", run_id).info.status = status

    def set_terminated(self, run_id, status=None, end_time=None):
        check_status(status or "FINISHED")
        info = self._active_run("set_terminated", run_id).info
        info.status = status or "FINISHED"
        info.end_time = end_time or int(time.time() * 1000)
        if not settings.MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT.get():
            sys.stdout.write(f"View run {run_id}\n")

    def delete_run(self, run_id):
        self._run("delete_run", run_id).info.lifecycle_stage = "deleted"

    def log_batch(self, run_id, metrics=(), params=(), tags=(), synchronous=None):
        data = self._active_run("log_batch", run_id).data
        if synchronous is not True:
            raise AssertionError("MLFLOW_ENABLE_ASYNC_LOGGING decides whether this has arrived")
        check_batch(metrics, params, tags)
        for param in params:
            if data.params.get(param.key, param.value) != param.value:
                refuse(f"Changing param values is not allowed. Param {param.key!r} was already logged")
        data.params.update(params)
        data.tags.update(tags)
        for metric in metrics:
            stored = metric._replace(value=_as_stored(metric.value))
            if not any(_identity(stored) == _identity(other) for other in data.metrics):
                data.metrics.append(stored)

    def log_text(self, run_id, text, artifact_file):
        check_text(text)
        check_artifact_path(artifact_file)
        self._active_run("log_text", run_id)
        self._store("log_text").artifacts[run_id][artifact_file] = text.encode()

    def log_artifact(self, run_id, local_path, artifact_path=None):
        check_artifact_path(artifact_path or "x")
        self._active_run("log_artifact", run_id)
        name = os.path.join(artifact_path or "", os.path.basename(local_path))
        self._store("log_artifact").artifacts[run_id][name] = Path(local_path).read_bytes()

    def _store(self, request):
        REQUESTS.append(
            (request, settings.MLFLOW_HTTP_REQUEST_MAX_RETRIES.get(), settings.MLFLOW_HTTP_REQUEST_TIMEOUT.get())
        )
        if "unreachable" in self.tracking_uri:
            try:
                raise ConnectionRefusedError("[Errno 111] Connection refused")
            except OSError as error:
                raise MlflowException(f"API request to {self.tracking_uri} failed with exception {error}")  # noqa: B904
        return STORES.setdefault(self.tracking_uri, Store())

    def _run(self, request, run_id):
        runs = self._store(request).runs
        if run_id not in runs:
            raise MlflowException(f"Run with id={run_id} not found", "RESOURCE_DOES_NOT_EXIST")
        return runs[run_id]

    def _active_run(self, request, run_id):
        run = self._run(request, run_id)
        if run.info.lifecycle_stage != "active":
            refuse(f"The run {run_id} must be in the 'active' state")
        return run


def _as_stored(value):
    """An SQL store keeps an infinity as the largest number that it has."""
    return math.copysign(sys.float_info.max, value) if math.isinf(value) else value


def _identity(metric):
    return metric._replace(value=repr(metric.value))
