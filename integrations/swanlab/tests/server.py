"""A server of SwanLab's on loopback, as far as its SDK asks one: sign-in, projects, runs, metrics and files."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SIGNED_IN = {"sid": "s", "expiredAt": "2099-01-01T00:00:00.000Z", "userInfo": {"username": "me", "name": "Me"}}


class Server(ThreadingHTTPServer):
    """What it was asked at the sign-in, and what it holds of each run.

    Attributes:
        status: the answer to a sign-in.
        trouble: the answer to metrics, 200 for none.
        asked: the paths and keys of sign-ins.
    """

    def __init__(self, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.trouble = status, 200
        self.asked: list[tuple[str, str | None]] = []
        self.points: dict[str, list[tuple[str, int, Any]]] = {}
        self.states: dict[str, str] = {}
        self.config: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        place = f"{method} {path.partition('?')[0].removeprefix('/api')}"
        if place == "POST /login/api_key":
            return self.status, SIGNED_IN
        if re.fullmatch("GET /project/me/[^/]+", place) and self.trouble == 200:
            name = path.rpartition("/")[2]
            about = {"name": name, "cuid": "p", "path": f"/me/{name}", "version": 1}
            return 200, {**about, "group": {"username": "me"}, "_count": {"experiments": 0}}
        if re.fullmatch("POST /project/me/[^/]+/experiment", place):
            return self._run(body["cuid"], body["name"])
        if place.startswith("GET /house/metrics/summaries/"):
            steps = {key: step for key, step, _ in self.points[path.partition("?")[0].rpartition("/")[2]]}
            return 200, {"scalar": [{"key": key, "step": step} for key, step in steps.items()], "media": [], "log": []}
        if place == "POST /house/metrics" and body["type"] == "scalar":
            return self._metrics(body["experimentId"], body["metrics"])
        if place.endswith("/state"):
            self.states[path.split("/")[-2]] = body["state"]
        if place.endswith("/profile") and "config" in body:
            self.config = {name: entry["value"] for name, entry in body["config"].items()}
        if place.endswith("/files/prepare"):
            return 200, {"urls": [f"{self.address}/put/{file['path']}" for file in body["files"]]}
        if place == "POST /resources/presigned/put":
            return 200, {"urls": [f"{self.address}/put/{path}" for path in body["paths"]]}
        if place.startswith("GET /project/"):
            return self.trouble, {}
        return 200, {}

    def _run(self, run_id: str, name: str) -> tuple[int, Any]:
        is_new = run_id not in self.points
        self.points.setdefault(run_id, [])
        about = {"cuid": run_id, "slug": run_id, "name": name, "createdAt": "2026-12-01T12:00:00.000Z"}
        return 201 if is_new else 200, about

    def _metrics(self, run_id: str, metrics: list[dict[str, Any]]) -> tuple[int, Any]:
        if self.trouble == 200:
            self.points[run_id] += [(one["key"], one["index"], one["data"]) for one in metrics]
        return self.trouble, {}


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path.startswith("/put/"):
            self.server.files[self.path.removeprefix("/put/")] = content
            status, answer = 200, {}
        else:
            if self.path.endswith("/login/api_key"):
                self.server.asked.append((self.path, self.headers["authorization"]))
            status, answer = self.server.answer(self.command, self.path, json.loads(content or b"{}"))
        self.send_response(status)
        body = json.dumps(answer).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(status: int = 200) -> Iterator[Server]:
    server = Server(status)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
