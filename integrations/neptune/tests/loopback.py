"""A server on loopback that speaks as much of Neptune's API as the real client needs for a run."""

from __future__ import annotations

import base64
import io
import itertools
import json
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlparse

PROJECT = "team/digits"

ATOMS = {"assignFloat": "float", "assignInt": "int", "assignBool": "bool", "assignString": "string"}
SERIES = {"logFloats": "floatSeries", "logStrings": "stringSeries"}

QUERY = {"in": "query", "type": "string"}
OPERATIONS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "backend": {
        "getClientConfig": [
            {"name": "X-Neptune-Api-Token", "in": "header", "type": "string"},
            {"name": "alpha", **QUERY},
        ],
        "exchangeApiToken": [{"name": "X-Neptune-Api-Token", "in": "header", "type": "string"}],
        "getProject": [{"name": "projectIdentifier", **QUERY}],
    },
    "leaderboard": {
        "createExperiment": [
            {"name": "experimentCreationParams", "in": "body", "schema": {}},
            {"name": "X-Neptune-CliVersion", "in": "header", "type": "string"},
        ],
        "getExperiment": [{"name": "experimentId", **QUERY}],
        "getExperimentAttributes": [{"name": "experimentId", **QUERY}],
        "getStringAttribute": [{"name": "experimentId", **QUERY}, {"name": "attribute", **QUERY}],
        "executeOperations": [{"name": "experimentId", **QUERY}, {"name": "operations", "in": "body", "schema": {}}],
        "ping": [{"name": "experimentId", **QUERY}],
        # What is small comes in one part, but the client looks up how it would send the others.
        "fileAtomUpload": [],
        "fileAtomMultipartUploadStart": [],
        "fileAtomMultipartUploadPart": [],
        "fileAtomMultipartUploadFinish": [],
        "uploadFileSetAttributeTar": [],
        "getFloatSeriesValues": [{"name": name, **QUERY} for name in ("experimentId", "attribute", "limit", "offset")],
        "getStringSeriesValues": [{"name": name, **QUERY} for name in ("experimentId", "attribute", "limit", "offset")],
    },
}

ANY: dict[str, Any] = {}
ITEM = {"$ref": "#/definitions/Item"}
# One model for all answers: the client looks at attributes of them, and of what is in them.
PROPERTIES = {
    **dict.fromkeys(("apiUrl", "applicationUrl", "accessToken", "refreshToken", "id", "name", "organizationName"), ANY),
    **dict.fromkeys(("projectKey", "projectName", "shortId", "type", "trashed", "version", "value", "last"), ANY),
    **dict.fromkeys(("step", "timestampMillis", "totalItemCount", "errorDescription", "sysNameSetByBackend"), ANY),
    **{f"{kind}Properties": ITEM for kind in (*ATOMS.values(), *SERIES.values(), "file", "fileSet")},
    **{name: {"type": "array", "items": ITEM} for name in ("attributes", "values")},
}


OF_NO_RUN = ("getClientConfig", "exchangeApiToken", "token", "getProject", "createExperiment")


class Stored:
    """A run as the server holds it: its atoms, its series as rows of step, value and milliseconds, and its files."""

    def __init__(self, number: int, custom_id: str | None) -> None:
        self.id = f"00000000-0000-0000-0000-{number:012}"
        self.short_id = f"DIG-{number}"
        self.custom_id = custom_id
        self.types: dict[str, str] = {"sys/id": "string"}
        self.values: dict[str, Any] = {"sys/id": self.short_id}
        self.files: dict[str, set[str]] = {}
        self.refused: list[str] = []

    def apply(self, operation: dict[str, Any]) -> None:
        path = operation.pop("path")
        ((name, content),) = operation.items()
        if name in ATOMS:
            self.types[path], self.values[path] = ATOMS[name], content["value"]
        elif name in SERIES:
            self.types[path] = SERIES[name]
            for entry in content["entries"]:
                self.append(path, (entry["step"], entry["value"], entry["timestampMilliseconds"]))
        elif name in ("clearFloatSeries", "clearStringSeries"):
            self.values[path] = []
        elif name == "deleteAttribute":
            del self.types[path], self.values[path]
        else:
            raise NotImplementedError(name)

    def append(self, path: str, row: tuple[float, Any, int]) -> None:
        rows = self.values.setdefault(path, [])
        if rows and row[0] <= rows[-1][0]:
            self.refused.append(f"X-coordinates must be strictly increasing for {path}: {row[0]}")
        else:
            rows.append(row)

    def attribute(self, path: str) -> dict[str, Any]:
        kind, value = self.types[path], self.values.get(path)
        shown = {"last": value[-1][1]} if kind in SERIES.values() and value else {"value": value}
        return {"name": path, "type": kind, f"{kind}Properties": shown}

    def described(self) -> dict[str, Any]:
        workspace, project = PROJECT.split("/")
        about = {"organizationName": workspace, "projectName": project, "type": "run", "trashed": False}
        return {"id": self.id, "shortId": self.short_id, **about}


class Api:
    """What the server answers to each operation; an error to all, while `fails` is set."""

    def __init__(self, address: str) -> None:
        self.fails = threading.Event()
        self._address = address
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self.runs: list[Stored] = []

    @property
    def token(self) -> str:
        return base64.b64encode(json.dumps({"api_address": self._address, "api_url": self._address}).encode()).decode()

    def specification(self, name: str) -> dict[str, Any]:
        answer = {"200": {"description": "", "schema": ANY if name == "ping" else ITEM}}
        lists = {"200": {"description": "", "schema": {"type": "array", "items": ITEM}}}
        paths = {}
        for operation, parameters in OPERATIONS[name].items():
            method = "post" if any(each["in"] == "body" for each in parameters) or operation == "ping" else "get"
            responses = lists if operation == "executeOperations" else answer
            about = {"operationId": operation, "tags": ["api"], "parameters": parameters, "responses": responses}
            paths[f"/api/{name}/{operation}"] = {method: about}
        item = {"type": "object", "properties": PROPERTIES}
        info = {"title": name, "version": "1"}
        return {"swagger": "2.0", "info": info, "paths": paths, "definitions": {"Item": item}}

    def find(self, known_as: str) -> Stored | None:
        for run in self.runs:
            if known_as in (run.id, f"{PROJECT}/{run.short_id}"):
                return run
        return None

    def answer(self, operation: str, query: dict[str, str], body: bytes) -> tuple[int, Any]:
        with self._lock:
            if operation not in OF_NO_RUN:
                run = self.find(query.get("experimentId") or query["experimentIdentifier"])
                if run is None:
                    return 404, {"errorType": "EXPERIMENT_NOT_FOUND"}
                return 200, getattr(self, f"answer_{operation}")(run, query, body)
            return 200, getattr(self, f"answer_{operation}")(query, body)

    def answer_getClientConfig(self, query: dict[str, str], body: bytes) -> Any:
        return {"apiUrl": self._address, "applicationUrl": self._address, "sysNameSetByBackend": True}

    def answer_exchangeApiToken(self, query: dict[str, str], body: bytes) -> Any:
        return {"accessToken": self._jwt(), "refreshToken": self._jwt()}

    def answer_token(self, query: dict[str, str], body: bytes) -> Any:
        return {"access_token": self._jwt(), "refresh_token": self._jwt(), "expires_in": 3600, "token_type": "bearer"}

    def _jwt(self) -> str:
        """A token of the form that the client looks into; it does not ask who has signed it."""
        claims = {"exp": time.time() + 3600, "azp": "client", "iss": self._address}
        parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "typ": "JWT"}, claims)]
        return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*parts, b"signature"))

    def answer_getProject(self, query: dict[str, str], body: bytes) -> Any:
        workspace, project = PROJECT.split("/")
        return {"id": "1", "name": project, "organizationName": workspace, "projectKey": "DIG", "version": 2}

    def answer_createExperiment(self, query: dict[str, str], body: bytes) -> Any:
        custom_id = json.loads(body)["customId"]
        for run in self.runs:
            if custom_id is not None and run.custom_id == custom_id:
                return run.described()
        self.runs.append(Stored(next(self._numbers), custom_id))
        return self.runs[-1].described()

    def answer_getExperiment(self, run: Stored, query: dict[str, str], body: bytes) -> Any:
        return run.described()

    def answer_getExperimentAttributes(self, run: Stored, query: dict[str, str], body: bytes) -> Any:
        return {"attributes": [run.attribute(path) for path in run.types]}

    def answer_getStringAttribute(self, run: Stored, query: dict[str, str], body: bytes) -> Any:
        return {"value": run.values[query["attribute"]]}

    def answer_executeOperations(self, run: Stored, query: dict[str, str], body: bytes) -> Any:
        already = len(run.refused)
        for operation in json.loads(body):
            run.apply(operation)
        return [{"errorDescription": refusal} for refusal in run.refused[already:]]

    def answer_ping(self, run: Stored, query: dict[str, str], body: bytes) -> Any:
        return None

    def answer_getFloatSeriesValues(self, run: Stored, query: dict[str, str], body: bytes) -> Any:
        rows = run.values[query["attribute"]]
        part = rows[int(query["offset"]) :][: int(query["limit"])]
        values = [{"step": step, "value": value, "timestampMillis": moment} for step, value, moment in part]
        return {"totalItemCount": len(rows), "values": values}

    answer_getStringSeriesValues = answer_getFloatSeriesValues

    def answer_fileAtomUpload(self, run: Stored, query: dict[str, str], body: bytes) -> Any:
        run.types[query["attribute"]] = "file"
        run.files[query["attribute"]] = {body.decode()}
        return None

    def answer_uploadFileSetAttributeTar(self, run: Stored, query: dict[str, str], body: bytes) -> Any:
        path = query["attribute"]
        run.types[path] = "fileSet"
        with tarfile.open(fileobj=io.BytesIO(body)) as archive:
            names = {name.rpartition("/")[2] for name in archive.getnames()}
        run.files[path] = names if query["reset"] == "True" else run.files.get(path, set()) | names
        return None


class Server:
    """The server in threads of its own, until `close`."""

    def __init__(self) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, query = urlparse(self.path).path, dict(parse_qsl(urlparse(self.path).query))
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                _, _, name, operation = path.split("/")[:4]
                if server.api.fails.is_set() or name == "notifications":
                    status, answer = 503, None
                elif operation == "swagger.json":
                    status, answer = 200, server.api.specification(name)
                else:
                    status, answer = server.api.answer(operation, query, body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, *arguments: Any) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.api = Api(f"http://127.0.0.1:{self._http.server_address[1]}")
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
