"""A server that speaks as much of W&B's protocol as runs need, and keeps what it is sent in memory."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENTITY = {"id": "ZQ==", "name": "team"}


@dataclass
class StoredRun:
    """A run as the server has it: rows by their numbers, so that one that is sent twice is kept once."""

    name: str
    project: str = ""
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None

    def points(self, key: str) -> list[tuple[int, float]]:
        return [(row["train/global_step"], row[key]) for _, row in sorted(self.rows.items()) if key in row]

    def bucket(self) -> dict[str, Any]:
        return {
            "id": self.name,
            "name": self.name,
            "displayName": self.about.get("displayName") or self.name,
            "description": "",
            "notes": "",
            "tags": self.about.get("tags") or [],
            "sweepName": None,
            "project": {"id": "cA==", "name": self.project, "entity": ENTITY},
            "config": json.dumps({key: {"value": value} for key, value in self.config.items()}),
            "summaryMetrics": json.dumps(self.summary),
            "historyLineCount": len(self.rows),
            "historyTail": json.dumps([json.dumps(row) for row in list(self.rows.values())[-1:]]),
            "eventsLineCount": 0,
            "eventsTail": "[]",
            "logLineCount": 0,
            "wandbConfig": json.dumps({"t": 1}),
        }


class Server:
    """What it holds, and with which status it answers: `{"graphql": 500}`, `{"file_stream": 429}`, or how late."""

    def __init__(self) -> None:
        self.url = ""
        self.runs: dict[str, StoredRun] = {}
        self.statuses: dict[str, int] = {}
        self.answers_after = 0.0

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        time.sleep(self.answers_after)
        status = next((status for part, status in self.statuses.items() if part in path), 200)
        if status != 200:
            return status, {}
        if path.endswith("/graphql"):
            return 200, {"data": self._graphql(json.loads(body))}
        if stream := re.search(r"/files/\w+/[^/]+/([^/]+)/file_stream", path):
            self._stream(self.runs[stream[1]], json.loads(body))
        elif stored := re.search(r"/storage/([^/]+)/(.+)", path):
            self.runs[stored[1]].files[stored[2]] = body
        return 200, {}

    def _graphql(self, question: dict[str, Any]) -> dict[str, Any]:
        operation, given = question.get("operationName") or "", question.get("variables") or {}
        run = self.runs.get(str(given.get("name") or given.get("run")))
        if operation == "RunResumeStatus":
            known = {"id": "cA==", "name": given["project"], "entity": ENTITY, "bucket": run and run.bucket()}
            return {"model": known if run else None}
        if operation == "UpsertBucket":
            return {"upsertBucket": {"bucket": self._upsert(given).bucket(), "inserted": run is None}}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.url}/storage/{run.name}/{name}"} for name in given["files"]]
            return {"createRunFiles": {"runID": run.name, "uploadHeaders": [], "files": files}}
        if operation == "CreateArtifact":
            made = given.get("input") or given
            self.runs[made.get("runName") or made["runID"]].artifacts.append(made)
            kept = {"id": "QQ==", "state": "COMMITTED", "artifactSequence": {"id": "cw==", "latestArtifact": None}}
            return {"createArtifact": {"artifact": kept}}
        viewer = {"id": "dg==", "entity": "team", "flags": "{}"}
        return {"serverInfo": {"features": []}, "viewer": viewer, "project": {"artifact": None}}

    def _upsert(self, given: dict[str, Any]) -> StoredRun:
        run = self.runs.setdefault(given["name"], StoredRun(given["name"], given["project"]))
        run.about |= {key: value for key, value in given.items() if value is not None}
        config = json.loads(given.get("config") or "{}")
        run.config |= {key: held["value"] for key, held in config.items() if key != "_wandb"}
        return run

    def _stream(self, run: StoredRun, sent: dict[str, Any]) -> None:
        files = sent.get("files") or {}
        if rows := files.get("wandb-history.jsonl"):
            for number, line in enumerate(rows["content"], rows["offset"]):
                run.rows[number] = json.loads(line)
        for line in files.get("wandb-summary.json", {}).get("content", ()):
            run.summary = json.loads(line)
        run.exit_code = sent.get("exitcode", run.exit_code)


@contextmanager
def serving() -> Iterator[Server]:
    """A server on loopback."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            status, answer = server.answer(self.path, body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = reply

        def log_message(self, *args: Any) -> None:
            """Nothing is said."""

    class Http(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that is gone is no error."""

    with Http(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
