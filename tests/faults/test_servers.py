"""A tracker whose server is late, refuses, breaks off, hangs, or goes away and comes back."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from breaking import run

from trackside import Reporter
from trackside_spool import replay
from trackside_spool.folder import run_folders
from trackside_testkit import FakeLoop, RecordingReporter

STEPS = 200
LONGEST_LOG_CALL = 1.0  # seconds, against minutes that others wait
LONGEST_END = 30.0


class Server(ThreadingHTTPServer):
    """Keeps each point that is posted once, by key and step, and misbehaves as it is told to.

    `trouble` is asked for each request: None, a number of seconds to be late, an HTTP status, "half" or "hang".
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.trouble: Any = lambda count: None
        self.count = 0
        self.points: list[tuple[str, int, float]] = []
        self.over = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.count += 1
        trouble = self.server.trouble(self.server.count)
        if trouble == "hang":
            self.server.over.wait(60)
            return
        if isinstance(trouble, float):
            time.sleep(trouble)
        if isinstance(trouble, int):
            self.send_response(trouble)
            self.send_header("retry-after", "0.2")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        known = {(key, step) for key, step, _ in self.server.points}
        self.server.points += [(key, step, value) for key, step, value in body if (key, step) not in known]
        self.send_response(200)
        self.send_header("content-length", "10")
        self.end_headers()
        self.wfile.write(b"tak" if trouble == "half" else b"taken     ")

    def log_message(self, *args: Any) -> None:
        pass


class HttpReporter(Reporter):
    """Posts points to a server, with the standard library."""

    name = "http"
    reopenable = True
    url = ""

    def start(self, run: Any) -> str:
        self._post([])
        return str(run.tracker_id or run.id)

    def log_points(self, points: Any) -> None:
        self._post([(key, point.step, value) for point in points for key, value in point.values.items()])

    def finish(self, status: Any) -> None:
        self._post([])

    def _post(self, values: Any) -> None:
        request = urllib.request.Request(type(self).url, json.dumps(values).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0.5")
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "2")
    server = Server()
    HttpReporter.url = server.url
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()


def train(*reporters: Any) -> tuple[float, float]:
    """The longest log call and the duration of the end, in seconds."""
    loop = FakeLoop(list(reporters), output_dir="out", eval_strategy="no", save_strategy="no")
    loop.fire("on_train_begin")
    longest = 0.0
    for step in range(1, STEPS + 1):
        loop.state.global_step = step
        begin = time.monotonic()
        loop.log({"loss": 1 / step})
        longest = max(longest, time.monotonic() - begin)
        time.sleep(0.002)
    begin = time.monotonic()
    loop.fire("on_train_end")
    return longest, time.monotonic() - begin


def losses(server: Server) -> list[int]:
    return [step for key, step, _ in server.points if key == "train/loss"]


def make_up_for_it(server: Server) -> None:
    """Wait for the courier that goes on behind, or replay what the server is owed."""
    (folder,) = run_folders(Path("out"))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not all(debt.is_settled for debt in replay.debts(folder.path)):
        time.sleep(0.1)
    assert all(debt.is_settled for debt in replay.debts(folder.path))


TROUBLES = {
    "late": lambda count: 0.1,
    "429 at every other request": lambda count: 429 if count % 2 else None,
    "500 for a while": lambda count: 500 if 2 <= count <= 4 else None,
    "half an answer once in a while": lambda count: "half" if count % 3 == 2 else None,
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_a_server_in_trouble_costs_the_loop_nothing_and_gets_everything_in_order(server: Server, trouble: Any) -> None:
    server.trouble = trouble
    healthy = RecordingReporter()
    longest, end = train(HttpReporter(), healthy)
    assert longest < LONGEST_LOG_CALL
    assert end < LONGEST_END
    make_up_for_it(server)
    assert losses(server) == list(range(1, STEPS + 1))
    assert [step for step, _ in healthy.points["train/loss"]] == list(range(1, STEPS + 1))


def test_of_three_trackers_one_hangs_and_the_others_are_complete_in_time(server: Server, caplog: Any) -> None:
    server.trouble = lambda count: "hang" if count > 1 else None
    healthy = [RecordingReporter(), RecordingReporter()]
    longest, end = train(healthy[0], HttpReporter(), healthy[1])
    assert longest < LONGEST_LOG_CALL
    assert end < LONGEST_END
    for reporter in healthy:
        assert [step for step, _ in reporter.points["train/loss"]] == list(range(1, STEPS + 1))
    assert "http is owed" in caplog.text
    assert "trackside replay" in caplog.text


def test_a_server_that_goes_away_and_comes_back_has_each_point_once(server: Server) -> None:
    port = server.server_address[1]
    is_away = threading.Event()

    def go_and_come_back() -> None:
        time.sleep(0.1)
        is_away.set()
        time.sleep(2)
        is_away.clear()

    server.trouble = lambda count: 503 if is_away.is_set() else None
    threading.Thread(target=go_and_come_back).start()
    longest, end = train(HttpReporter())
    assert longest < LONGEST_LOG_CALL
    assert end < LONGEST_END
    make_up_for_it(server)
    assert losses(server) == list(range(1, STEPS + 1))
    assert port == server.server_address[1]


def test_a_server_that_was_never_there_is_owed_everything_and_a_replay_delivers_it(
    server: Server, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("from test_servers import *; HttpReporter.url = 'http://127.0.0.1:9'; train(HttpReporter())")
    assert done.code == 0, done
    assert "http is owed 201 records" in done.errors
    assert "Traceback" not in done.errors
    HttpReporter.url = server.url
    monkeypatch.setattr(replay, "build", lambda tracker: HttpReporter())
    (folder,) = run_folders(Path("out"))
    (outcome,) = replay.replay(folder)
    assert outcome.reason == ""
    assert losses(server) == list(range(1, STEPS + 1))
