"""A server on loopback that speaks as much of Comet's protocol as an experiment needs."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

HEARTBEATS = {"is_alive_beat_duration_millis": 10_000, "gpu_monitor_interval_millis": 60_000}
UNKNOWN_API_KEY, EXISTS_ALREADY = 90212, 90999


class CometServer(ThreadingHTTPServer):
    """Keeps what it gets by experiment.

    Attributes:
        trouble: the status with which it answers everything, if any.
        is_gone: whether it hangs up without an answer.
    """

    daemon_threads = True

    def __init__(self, api_key: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api_key = api_key
        self.experiments: dict[str, dict[str, Any]] = {}
        self.trouble: int | None = None
        self.is_gone = False
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/clientlib/"

    def answer(self, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the answer to a request."""
        if self.trouble is not None:
            return self.trouble, {}
        key = body.get("experimentKey") or body.get("previousExperiment") or query.get("experimentId") or ""
        if path.endswith("/add/run"):
            return self._add(key, body)
        if path.endswith("/experiment/metadata"):
            return self._metadata(query["experimentKey"])
        if (experiment := self.experiments.get(key)) is not None:
            _keep(experiment, path, query, body)
        handshake = {"runId": "run", "project_id": "project", "focusUrl": f"{self.url}team/project/", "lastOffset": 0}
        return 200, {**handshake, **HEARTBEATS}

    def _add(self, key: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if body["apiKey"] != self.api_key:
            return 400, {"sdk_error_code": UNKNOWN_API_KEY}
        if key in self.experiments and not body.get("getOrCreateEnabled"):
            return 400, {"sdk_error_code": EXISTS_ALREADY, "msg": "there is such an experiment"}
        empty = {"metrics": [], "params": {}, "others": {}, "files": {}, "texts": [], "graph": None}
        self.experiments.setdefault(key, {**empty, "is_alive": True, "has_crashed": False})
        return self.answer("", {}, {})

    def _metadata(self, key: str) -> tuple[int, dict[str, Any]]:
        if key not in self.experiments:
            return 404, {"msg": "there is no such experiment"}
        return 200, {"experimentKey": key, "workspaceName": "team", "projectName": "project", "throttle": False}


def _keep(experiment: dict[str, Any], path: str, query: dict[str, str], body: dict[str, Any]) -> None:
    kind = path.rpartition("/")[2]
    if kind == "metric":
        experiment["metrics"] += body["values"]
    elif kind == "parameter":
        named = [value for value in body["values"] if value["source"] == "manual"]
        experiment["params"] |= {value["parameterName"]: value["parameterValue"] for value in named}
    elif kind == "log-other":
        experiment["others"][body["key"]] = body["value"]
    elif kind == "graph":
        experiment["graph"] = body["graph"]
    elif kind == "update":
        experiment["is_alive"] = body["is_alive"]
    elif kind == "update-status":
        experiment["has_crashed"] |= body["hasCrashed"]
    elif kind == "upload" and query.get("type") == "text-sample":
        experiment["texts"].append({**query, **body})
    elif kind == "upload":
        experiment["files"][query["fileName"]] = body["file"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CometServer

    def do_POST(self) -> None:
        split = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        body = self._body()
        if self.server.is_gone:
            self.close_connection = True
            return
        with self.server.lock:
            status, answer = self.server.answer(split.path, query, body)
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST

    def _body(self) -> dict[str, Any]:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = self.headers.get("Content-Type") or ""
        if kind.startswith("multipart/"):
            message = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + content)
            parts = {part.get_param("name", header="content-disposition"): part for part in message.get_payload()}
            return {name: part.get_payload(decode=True) for name, part in parts.items()}
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        return json.loads(content) if content else {}

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def comet_server(api_key: str) -> Iterator[CometServer]:
    """A server that runs within the `with` block."""
    with CometServer(api_key) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
