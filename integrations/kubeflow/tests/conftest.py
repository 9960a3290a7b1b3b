"""A controller on loopback, which refuses what that of Kubeflow Trainer refuses."""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from trackside_kubeflow import KubeflowCallback
from trackside_testkit.integration import forget_variables
from trackside_testkit.integration import loop as loop

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team-a/trainjobs/digits/status"
LARGEST_BODY = 1 << 16
STATUS_FIELDS = {"progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime"}
RFC_3339 = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"


class Controller:
    """What has arrived, each status with the time of its arrival, and what a test wants it to answer.

    Attributes:
        statuses: that were taken, in order.
        requests: how many there were, refused ones included.
        answers: codes for the next requests, which are not looked at; None never answers.
        token: that of the job's pods.
    """

    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        self.statuses: list[dict[str, Any]] = []
        self.arrivals: list[float] = []
        self.refusals: list[str] = []
        self.requests = 0
        self.answers: list[int | None] = []
        self.token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJkaWdpdHMifQ.c2lnbmF0dXJl"
        self.changed = threading.Condition()
        self.is_over = threading.Event()
        self.ca_cert, self.token_file = folder / "ca.crt", folder / "token"
        self.token_file.write_text(self.token + "\n", "utf-8")
        authority.cert_pem.write_to_path(str(self.ca_cert))
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(trust)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(self))
        self._server.socket = trust.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._server.handle_error = lambda *_: None  # of clients that do not trust it
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_port}{PATH}"

    @property
    def variables(self) -> dict[str, str]:
        """What the controller sets in the pods of a TrainJob."""
        return {
            "KUBEFLOW_TRAINER_SERVER_URL": self.url,
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(self.ca_cert),
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self.token_file),
        }

    def wait_for(self, count: int, seconds: float = 20) -> list[dict[str, Any]]:
        """The statuses, as soon as there are this many."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.statuses) >= count, seconds), (
                f"only {len(self.statuses)} came"
            )
        return self.statuses

    def close(self) -> None:
        self.is_over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def refusal(self, path: str, authorization: str, body: bytes) -> tuple[int, str] | None:
        """Why a request is not taken: code and message, in the order in which the controller looks."""
        if path != PATH:
            return 404, "Not found"
        if authorization.split(" ") != ["Bearer", self.token]:
            return 403, "Forbidden"
        try:
            sent = json.loads(body, parse_constant=lambda _: None)
        except ValueError:
            return 422, "Invalid payload"
        wrong = next(faults_of(sent), None)
        return (422, wrong) if wrong else None


def faults_of(sent: Any) -> Iterator[str]:
    """What the schema of a TrainJob forbids; unknown fields, which a cluster drops without a word, included."""
    if not isinstance(sent, dict) or set(sent) != {"trainerStatus"}:
        yield "there is no trainerStatus, or something beside it"
        return
    status = sent["trainerStatus"]
    if unknown := set(status) - STATUS_FIELDS:
        yield f"unknown fields {unknown}"
    for field, largest in {"progressPercentage": 100, "estimatedRemainingSeconds": 2**31 - 1}.items():
        value = status.get(field, 0)
        if type(value) is not int or not 0 <= value <= largest:
            yield f"{field}: {value!r}"
    if not re.fullmatch(RFC_3339, str(status.get("lastUpdatedTime"))):
        yield "lastUpdatedTime is required"
    elif abs((datetime.fromisoformat(status["lastUpdatedTime"]) - datetime.now(timezone.utc)).total_seconds()) > 60:
        yield "lastUpdatedTime is not now"
    metrics = status.get("metrics", [])
    if len(metrics) > 256:
        yield f"metrics: {len(metrics)} items"
    for metric in metrics:
        if set(metric) != {"name", "value"} or not all(isinstance(text, str) for text in metric.values()):
            yield f"a metric is {metric!r}"
        elif not all(1 <= len(text) <= 64 for text in metric.values()):
            yield f"too long or too short: {metric!r}"


def handler_for(controller: Controller) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 20

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(min(length, LARGEST_BODY + 1))
            with controller.changed:
                controller.requests += 1
                answer = controller.answers.pop(0) if controller.answers else 0
            if answer is None:
                controller.is_over.wait(20)
                return
            if answer:
                self.say(answer, "as the test wants it")
            elif length > LARGEST_BODY:
                self.refuse(422, "Invalid payload")
            elif wrong := controller.refusal(self.path, self.headers.get("Authorization", ""), body):
                self.refuse(*wrong)
            else:
                with controller.changed:
                    controller.statuses.append(json.loads(body)["trainerStatus"])
                    controller.arrivals.append(time.monotonic())
                    controller.changed.notify_all()
                self.say(200, "")

        def refuse(self, code: int, message: str) -> None:
            controller.refusals.append(message)
            self.say(code, message)

        def say(self, code: int, message: str) -> None:
            body = json.dumps({"status": "Failure" if message else "Success", "message": message}).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            if code == 302:
                self.send_header("Location", "https://127.0.0.2/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Requests are no business of whoever runs the tests."""

    return Handler


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Who vouches for the controller."""
    return trustme.CA()


@pytest.fixture(autouse=True)  # so that it is there before each reporter, and after it
def controller(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[Controller]:
    """A controller with one job. A status that it had to refuse fails the test, unless that clears `refusals`."""
    controller = Controller(tmp_path_factory.mktemp("controller"), authority)
    yield controller
    controller.close()
    assert controller.refusals == []


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """No job of whoever runs the tests."""
    forget_variables(monkeypatch, KubeflowCallback)
