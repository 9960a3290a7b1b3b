"""The service of Azure ML, as far as its SDK speaks to it: requests in, answers out, with its documented limits."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

ENDED = {"Completed", "Failed", "Canceled"}
SERVICES = ("api", "catalog", "experimentation", "history", "hyperdrive", "modelmanagement", "studio")
TYPES = {"double": float, "int": int, "string": str}


@dataclass
class StoredRun:
    """A run as the workspace holds it; `metrics` by their ids, so that one that is sent again is no double."""

    id: str
    parent: str | None = None
    name: str | None = None
    status: str = "Running"
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def numbers(self) -> list[tuple[str, int, float]]:
        return [
            (metric["name"], metric["step"], metric["data"][metric["name"]])
            for metric in self.metrics.values()
            if metric["type"] == "azureml.v1.scalar"
        ]

    def table(self, name: str) -> list[dict[str, Any]]:
        return [metric["data"] for metric in self.metrics.values() if metric["name"] == name]


class Service:
    """A workspace in which one job runs.

    Attributes:
        trouble: statuses of failing requests, by what is in their paths.
    """

    def __init__(self, address: str = "https://ml.example.org") -> None:
        self.address = address
        self.runs = {"job-1": StoredRun("job-1", name="train")}
        self.requests: list[str] = []
        self.trouble: dict[str, int] = {}

    @property
    def job(self) -> StoredRun:
        return self.runs["job-1"]

    @property
    def children(self) -> list[StoredRun]:
        return [run for run in self.runs.values() if run.parent == "job-1"]

    def answer(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
        self.requests.append(f"{method} {path}")
        for part, status in self.trouble.items():
            if part in path:
                return status, error_of("the service is not well")
        if path == "/discovery":
            return 200, dict.fromkeys(SERVICES, self.address)
        content = json.loads(body, parse_constant=refuse_constant) if body else {}
        if match := re.search(r"/artifacts/batch/metadata/ExperimentRun/dcid\.([^/]+)$", path):
            return self._make_files(self.runs[match[1]], [entry["path"] for entry in content["paths"]])
        run_id, _, what = path.partition("/runs/")[2].partition("?")[0].partition("/")
        if method == "PATCH":
            return self._patch(run_id, content)
        if run_id not in self.runs:
            return 404, error_of(f"Run {run_id} not found")
        run = self.runs[run_id]
        if what == "batch":
            return self._take(run, content["values"])
        if what == "events":
            return self._note_event(run, content["name"].rpartition(".")[2])
        return 200, {} if what == "metricsingest/wait" else as_answer(run)

    def _patch(self, run_id: str, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if run_id not in self.runs:
            self.runs[run_id] = StoredRun(run_id, content["parentRunId"], content["name"], content["status"])
        run = self.runs[run_id]
        tags = {**run.tags, **content.get("tags", {})}
        if len(tags) > 50 or any(len(key) > 100 or len(str(value)) > 1000 for key, value in tags.items()):
            return 400, error_of("too many or too long tags")
        run.tags = tags
        return 200, as_answer(run)

    def _note_event(self, run: StoredRun, event: str) -> tuple[int, dict[str, Any]]:
        if event != "Error":
            if run.status in ENDED:
                return 400, error_of(f"{run.id} is {run.status} already")
            run.status = {"Start": "Running"}.get(event, event)
        return 200, {}

    def _take(self, run: StoredRun, metrics: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        if len(metrics) > 50 or sum(len(metric["value"]) for metric in metrics) > 250:
            return 400, error_of("too many metrics in one request")
        errors = []
        for metric in metrics:
            reason = self._objection(run, metric)
            if reason:
                errors.append({"metric": metric, "errorResponse": error_of(reason)})
                continue
            kind = {"name": metric["name"], "type": metric["properties"]["uxMetricType"]}
            for value in metric["value"]:
                run.metrics.setdefault(value["metricId"], {**value, **kind})
        return 207 if errors else 200, {"errors": errors}

    def _objection(self, run: StoredRun, metric: dict[str, Any]) -> str:
        names = {known["name"] for known in run.metrics.values()} | {metric["name"]}
        columns = metric["columns"]
        if len(names) > 50:
            return "a run has no more than 50 metrics"
        if len(columns) > 15 or any(not column or len(column) > 255 for column in columns):
            return "too many or too long columns"
        for value in metric["value"]:
            if type(value["step"]) is not int or value["data"].keys() != columns.keys():
                return "a value without a step, or of other columns"
            for column, cell in value["data"].items():
                if type(cell) is not TYPES[columns[column]] or (isinstance(cell, str) and len(cell) > 255):
                    return f"{column} is not what it should be"
        return ""

    def _make_files(self, run: StoredRun, paths: list[str]) -> tuple[int, dict[str, Any]]:
        taken = [path for path in paths if path in run.files]
        if any(len(path) > 5000 or "" in path.split("/") or ".." in path.split("/") for path in paths):
            return 400, error_of("no path of a file")
        for path in paths:
            run.files.setdefault(path, b"")
        container = {"origin": "ExperimentRun", "container": f"dcid.{run.id}"}
        return 200, {
            "artifacts": {path: {**container, "path": path} for path in paths},
            "artifactContentInformation": {
                path: {**container, "path": path, "contentUri": f"https://storage/{run.id}/{path}"} for path in paths
            },
            "errors": {
                path: error_of(f"Resource Conflict: ArtifactId ExperimentRun/dcid.{run.id}/{path} already exists.")
                for path in taken
            },
        }

    def store(self, address: str, content: bytes) -> None:
        """Take the content of a file that was made before, at the address that it was given then."""
        run_id, _, path = address.removeprefix("https://storage/").partition("/")
        assert self.runs[run_id].files[path] == b""
        self.runs[run_id].files[path] = content


def as_answer(run: StoredRun) -> dict[str, Any]:
    return {
        "runId": run.id,
        "runNumber": 1,
        "rootRunId": "job-1",
        "parentRunId": run.parent,
        "experimentId": "e-1",
        "dataContainerId": f"dcid.{run.id}",
        "name": run.name,
        "status": run.status,
        "tags": run.tags,
        "properties": {},
    }


def error_of(message: str) -> dict[str, Any]:
    return {"error": {"code": "UserError", "message": message}}


def refuse_constant(text: str) -> None:
    raise ValueError(f"JSON has no {text}")
