"""ClearML's server as far as a run needs it, in memory: it refuses what a real one refuses."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from itertools import count
from typing import Any
from urllib.parse import unquote

FLOAT32_MAX = 3.4028234663852886e38
SCALAR, LINE = "training_stats_scalar", "log"
ENDS = {"tasks.completed": "completed", "tasks.failed": "failed", "tasks.stopped": "stopped"}


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Backend:
    """Answers requests by their names.

    Attributes:
        trouble: the code with which everything is answered, if any; 0 if nothing answers.
        key: that the user has to have.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.models: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self._ids = count(1)
        self.trouble: int | None = None
        self.key = "a-key"

    def answer(self, name: str, data: Any) -> dict[str, Any]:
        self.requests.append(name)
        if self.trouble is not None:
            raise Refused(self.trouble, "there is trouble")
        if name in ENDS:
            return self._end(data, ENDS[name])
        method = getattr(self, "_" + name.replace(".", "_"), None)
        if method is None:
            raise Refused(400, f"Invalid action (name={name})")
        answer: dict[str, Any] = method(data)
        return answer

    # ---- projects -----------------------------------------------------------------------------------------------

    def _projects_get_all(self, data: Mapping[str, Any]) -> dict[str, Any]:
        return {"projects": []}

    def _projects_create(self, data: Mapping[str, Any]) -> dict[str, Any]:
        return {"id": data["name"]}

    def _projects_get_by_id(self, data: Mapping[str, Any]) -> dict[str, Any]:
        return {"project": {"id": data["project"], "name": data["project"]}}

    # ---- tasks --------------------------------------------------------------------------------------------------

    def _tasks_create(self, data: Mapping[str, Any]) -> dict[str, Any]:
        task_id = f"{next(self._ids):032x}"
        empty = {"hyperparams": {}, "configuration": {}, "output": {}, "execution": {"artifacts": []}}
        empty["models"] = {"input": [], "output": []}
        self.tasks[task_id] = {**data, **empty, "id": task_id, "status": "created"}
        return {"id": task_id}

    def _tasks_get_by_id(self, data: Mapping[str, Any]) -> dict[str, Any]:
        return {"task": self._task(data["task"])}

    def _tasks_get_all(self, data: Mapping[str, Any]) -> dict[str, Any]:
        return {"tasks": [self.tasks[task_id] for task_id in data["id"] if task_id in self.tasks]}

    def _tasks_started(self, data: Mapping[str, Any]) -> dict[str, Any]:
        task = self._task(data["task"])
        if task["status"] == "published" or (
            not data.get("force") and task["status"] not in ("created", "in_progress")
        ):
            raise Refused(400, f"Invalid task status: expected=created, status={task['status']}")
        task["status"] = "in_progress"
        return {"updated": 1}

    def _end(self, data: Mapping[str, Any], status: str) -> dict[str, Any]:
        task = self._task(data["task"])
        if not data.get("force") and task["status"] != "in_progress":
            raise Refused(400, f"Invalid task status: expected=in_progress, status={task['status']}")
        task.update(status=status, status_reason=data.get("status_reason"))
        return {"updated": 1}

    def _tasks_edit(self, data: Mapping[str, Any]) -> dict[str, Any]:
        task = self._task(data["task"])
        if task["status"] not in (("created", "in_progress") if data.get("force") else ("created",)):
            raise Refused(400, f"Invalid task status: expected=created, status={task['status']}")
        task.update({name: value for name, value in data.items() if name not in ("task", "force", "method")})
        return {"updated": 1}

    def _tasks_add_or_update_model(self, data: Mapping[str, Any]) -> dict[str, Any]:
        output = self._task(data["task"]).setdefault("models", {}).setdefault(data["type"], [])
        output[:] = [entry for entry in output if entry["name"] != data["name"]]
        output.append({"name": data["name"], "model": data["model"]})
        return {"updated": 1}

    def _tasks_add_or_update_artifacts(self, data: Mapping[str, Any]) -> dict[str, Any]:
        artifacts = self._task(data["task"]).setdefault("execution", {}).setdefault("artifacts", [])
        names = {entry["key"] for entry in data["artifacts"]}
        artifacts[:] = [entry for entry in artifacts if entry["key"] not in names] + data["artifacts"]
        return {"updated": 1}

    def _task(self, task_id: str) -> dict[str, Any]:
        if task_id not in self.tasks:
            raise Refused(400, f"Invalid task id: id={task_id}")
        return self.tasks[task_id]

    # ---- events -------------------------------------------------------------------------------------------------

    def _events_add_batch(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        for event in events:
            if self._task(event["task"])["status"] == "published":
                raise Refused(400, "Task is published, ignoring events")
            if event["type"] == SCALAR and not _is_indexed(event):
                raise Refused(500, "1 document(s) failed to index")
        self.events += events
        return {"added": len(events)}

    # ---- models -------------------------------------------------------------------------------------------------

    def _models_create(self, data: Mapping[str, Any]) -> dict[str, Any]:
        model_id = f"{next(self._ids):032x}"
        self.models[model_id] = {"id": model_id, "ready": False, "tags": [], "system_tags": [], **data}
        return {"id": model_id, "created": True}

    def _models_get_by_id(self, data: Mapping[str, Any]) -> dict[str, Any]:
        if data["model"] not in self.models:
            raise Refused(400, f"Invalid model id: {data['model']}")
        return {"model": self.models[data["model"]]}

    def _models_get_all(self, data: Mapping[str, Any]) -> dict[str, Any]:
        found = [model for model in self.models.values() if model["task"] in data.get("task", ())]
        return {"models": found}

    def _models_edit(self, data: Mapping[str, Any]) -> dict[str, Any]:
        self.models[data["model"]].update(
            {name: value for name, value in data.items() if name not in ("model", "method")}
        )
        return {"updated": 1}

    _models_update = _models_edit

    def _models_delete(self, data: Mapping[str, Any]) -> dict[str, Any]:
        self.models.pop(data["model"])
        for task in self.tasks.values():
            for entries in task.get("models", {}).values():
                entries[:] = [entry for entry in entries if entry["model"] != data["model"]]
        return {"deleted": True}

    # ---- what tests look at -------------------------------------------------------------------------------------

    def scalars(self, task_id: str) -> list[tuple[str, str, int, float]]:
        """Title, series, iteration and value of each that was sent; a real server keeps the last of an iteration."""
        return [
            (event["metric"], event["variant"], event["iter"], event["value"])
            for event in self.events
            if event["type"] == SCALAR and event["task"] == task_id
        ]

    def console(self, task_id: str) -> list[str]:
        return [event["msg"] for event in self.events if event["type"] == LINE and event["task"] == task_id]

    def parameters(self, task_id: str, section: str) -> dict[str, str]:
        entries = self.tasks[task_id]["hyperparams"].get(section, {})
        return {name: entry["value"] for name, entry in entries.items()}

    def names_of_models(self, task_id: str) -> list[str]:
        entries = self.tasks[task_id].get("models", {}).get("output", [])
        return [self.models[entry["model"]]["name"] for entry in entries]


def _is_indexed(event: Mapping[str, Any]) -> bool:
    is_stored = isinstance(event["value"], (int, float)) and abs(event["value"]) <= FLOAT32_MAX
    are_terms = all(0 < len(event[name].encode()) <= 32_766 for name in ("metric", "variant"))
    return is_stored and are_terms and type(event["iter"]) is int


def token() -> str:
    """What the SDK takes for a token of a server of this age."""
    claims = {"exp": time.time() + 1e6, "api_version": "2.23", "server_version": "1.11", "feature_set": "basic"}
    return ".".join([_encoded({"alg": "HS256", "typ": "JWT"}), _encoded(claims), "c2ln"])


def _encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def handler_of(backend: Backend) -> type[BaseHTTPRequestHandler]:
    """A server that speaks HTTP: of the interface, and of files."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            """Nothing is printed."""

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            name = self.path.partition("?")[0].rpartition("/")[2]
            try:
                answer = self._log_in() if name == "auth.login" else backend.answer(name, self._parsed(body))
                self._reply(200, _envelope(200, "OK", answer))
            except Refused as refusal:
                self._reply(refusal.code, _envelope(refusal.code, str(refusal), {}))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = body.partition(b'filename="')[2].partition(b'"')[0].decode() or self.path
            backend.files[f"/{path.lstrip('/')}"] = body
            self._reply(200, b"{}")

        def do_DELETE(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            backend.files.pop(unquote(self.path), None)
            self._reply(200, b"{}")

        def _log_in(self) -> dict[str, Any]:
            if backend.trouble is not None:
                raise Refused(backend.trouble, "there is trouble")
            sent = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
            if sent.partition(":")[0] != backend.key:
                raise Refused(401, "Unauthorized (invalid credentials)")
            return {"token": token()}

        def _parsed(self, body: bytes) -> Any:
            if "lines" in self.headers.get("Content-Type", ""):
                return [json.loads(line) for line in body.splitlines()]
            return json.loads(body or b"{}")

        def _reply(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _envelope(code: int, message: str, data: Any) -> bytes:
    endpoint = {"name": "any", "requested_version": "2.23", "actual_version": "2.23"}
    meta = {
        "id": "1",
        "trx": "1",
        "endpoint": endpoint,
        "result_code": code,
        "result_subcode": 0,
        "result_msg": message,
    }
    return json.dumps({"meta": meta, "data": data}).encode()
