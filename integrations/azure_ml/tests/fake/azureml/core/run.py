"""Runs of version 1 of the SDK, which speak to a service in this process."""

import json
import os
import sys
from datetime import datetime, timezone
from types import SimpleNamespace

from azureml._restclient.models import BatchMetricV2Dto, MetricProperties, MetricV2Dto, MetricV2Value, read_errors

SERVICE = None  # of the test


class ServiceException(Exception):
    """An answer that is an error, which says so in many lines."""

    def __init__(self, status, message):
        super().__init__(f"ServiceException:\n\tCode: {status}\n\tMessage: {message}\n\tHeaders: {{}}")
        self.message = message
        self.response = SimpleNamespace(status_code=status)


def ask_service(method, path, content=None):
    status, answer = SERVICE.answer(method, f"/v1.0{path}", b"" if content is None else json.dumps(content).encode())
    if status >= 400:
        raise ServiceException(status, answer["error"]["message"])
    return answer


class Queue:
    """Holds what `Run.log` was told, until a thread sends it, which looks for more each second."""

    def __init__(self):
        self.items = []
        self.is_looking = True
        self._daemon = self

    def stop(self):
        self.is_looking = False


class MetricsClient:
    def __init__(self, run_id):
        self._run_id = run_id
        self._task_queue_internal = self._task_queue_v2_internal = None
        self._client = SimpleNamespace(metric=SimpleNamespace(post_run_metrics=self._post))

    def _execute_with_workspace_run_arguments(self, func, *args, **kwargs):
        return func("subscription", "group", "workspace", self._run_id, *args, **kwargs)

    def _post(self, subscription_id, resource_group_name, workspace_name, run_id, batch_metric_v2_dto):
        values = [value.as_json() for value in batch_metric_v2_dto.values]
        answer = ask_service(
            "POST", f"/runs/{run_id}/batch", {"values": values, "reportErrors": batch_metric_v2_dto.report_errors}
        )
        return SimpleNamespace(errors=read_errors(answer)) if answer["errors"] else None


class RunClient:
    def __init__(self, run_id):
        self._run_id = run_id

    def post_event_canceled(self, caller=None, custom_headers=None, is_async=False):
        self.post("Canceled")

    def post(self, event):
        ask_service("POST", f"/runs/{self._run_id}/events", {"name": f"Microsoft.MachineLearning.Run.{event}"})


class RunHistoryFacade:
    def __init__(self, run_id):
        self.run = RunClient(run_id)
        self.metrics = MetricsClient(run_id)

    def set_completed_status(self, _set_status):
        if _set_status:
            self.run.post("Completed")

    def set_failed_status(self, _set_status, error_details=None, error_code=None):
        self.run.post("Error")
        if _set_status:
            self.run.post("Failed")


class Run:
    def __init__(self, experiment, run_id, outputs=None, **kwargs):
        self.experiment = experiment
        self.id = ask_service("GET", f"/runs/{run_id}")["runId"]
        self._client = RunHistoryFacade(self.id)

    @classmethod
    def get_context(cls, allow_offline=True, used_for_context_manager=False, **kwargs):
        if "AZUREML_RUN_ID" not in os.environ:
            return _OfflineRun()
        return Run("experiment", os.environ["AZUREML_RUN_ID"])

    def child_run(self, name=None, run_id=None, outputs=None):
        ask_service(
            "PATCH", f"/runs/{run_id}", {"parentRunId": self.id, "name": f"train>{name}", "status": "NotStarted"}
        )
        child = Run(self.experiment, run_id)
        child._client.run.post("Start")
        return child

    def get_status(self):
        return ask_service("GET", f"/runs/{self.id}")["status"]

    def get_portal_url(self):
        return f"{SERVICE.address}/runs/{self.id}"

    def tag(self, key, value=None):
        ask_service("PATCH", f"/runs/{self.id}", {"tags": {key: value}})

    def log(self, name, value, description="", step=None):
        client = self._client.metrics
        client._task_queue_v2_internal = client._task_queue_v2_internal or Queue()
        client._task_queue_v2_internal.items.append((name, value, step))

    def flush(self, timeout_seconds=300):
        client = self._client.metrics
        client._task_queue_internal = client._task_queue_internal or Queue()
        for name, value, step in client._task_queue_v2_internal.items:
            properties = MetricProperties("azureml.v1.scalar")
            row = MetricV2Value(f"of the user {step}", datetime.now(timezone.utc), step, {name: value})
            metric = MetricV2Dto(name=name, columns={name: "double"}, value=[row], properties=properties)
            client._execute_with_workspace_run_arguments(client._post, BatchMetricV2Dto([metric], True))

    def upload_file(self, name, path_or_stream, datastore_name=None):
        if isinstance(path_or_stream, str):
            with open(path_or_stream, "rb") as stream:
                return self.upload_file(name, stream)
        return self._store([name], [path_or_stream.read()])

    def upload_files(self, names, paths, return_artifacts=False, timeout_seconds=None, datastore_name=None):
        contents = []
        for path in paths:
            with open(path, "rb") as stream:
                contents.append(stream.read())
        return map(str, self._store(names, contents))

    def _store(self, names, contents):
        paths = {"paths": [{"path": name} for name in names]}
        answer = ask_service("POST", f"/artifacts/batch/metadata/ExperimentRun/dcid.{self.id}", paths)
        if answer["errors"]:
            raise RuntimeError(*(error["error"]["message"] for error in answer["errors"].values()))
        for name, content in zip(names, contents, strict=True):
            SERVICE.store(answer["artifactContentInformation"][name]["contentUri"], content)
        return names


class _OfflineRun:
    """What there is where no job runs: it prints."""

    id = "OfflineRun_1"

    def log(self, name, value, description=""):
        sys.stdout.write(f"Attempted to log scalar metric {name}:\n{value}\n")

    def log_table(self, name, value, description=""):
        sys.stdout.write(f"Attempted to log table metric {name}:\n{value}\n")

    def upload_file(self, name, path_or_stream, datastore_name=None):
        sys.stdout.write(f"Attempted to track file {name} at {path_or_stream}\n")

    def upload_files(self, name, paths, return_artifacts=False, timeout_seconds=None, datastore_name=None):
        sys.stdout.write(f"Attempted to track files {name} at {paths} with timeout {timeout_seconds}s\n")
