"""The real mlflow, on SQLite and with a server on loopback; read back with sqlite3, value by value."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import fake_sdk

from trackside_mlflow import MLflowCallback
from trackside_testkit import Reported, ReporterContract

pytestmark = [pytest.mark.sdk, pytest.mark.filterwarnings("default")]

START_OF_A_SERVER = 120


class Stored:
    """What a SQLite store of MLflow holds."""

    def __init__(self, database: Path, artifacts: Path) -> None:
        self.database = database
        self.artifacts = artifacts

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute(query, values).fetchall()

    def runs(self) -> list[str]:
        return [run_id for (run_id,) in self.rows("select run_uuid from runs")]

    def metrics(self, run_id: str) -> list[tuple[str, float, int, int]]:
        """Key, value, time in ms and step. A nan is kept as 0 with a mark."""
        query = "select key, value, timestamp, step, is_nan from metrics where run_uuid = ? order by rowid"
        return [(key, math.nan if nan else value, ms, step) for key, value, ms, step, nan in self.rows(query, run_id)]

    def params(self, run_id: str) -> dict[str, str]:
        return dict(self.rows("select key, value from params where run_uuid = ?", run_id))

    def tags(self, run_id: str) -> dict[str, str]:
        return dict(self.rows("select key, value from tags where run_uuid = ?", run_id))

    def status(self, run_id: str) -> str:
        ((status,),) = self.rows("select status from runs where run_uuid = ?", run_id)
        return str(status)

    def files(self, run_id: str) -> dict[str, str]:
        files = [path for path in self.artifacts.glob(f"*/{run_id}/artifacts/**/*") if path.is_file()]
        return {path.as_posix().partition("/artifacts/")[2]: path.read_text("utf-8") for path in files}

    def points(self, run_id: str, key: str) -> list[tuple[int, float]]:
        return [(step, value) for name, value, _, step in self.metrics(run_id) if name == key]


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables, which take a second or two to make."""
    folder = tmp_path_factory.mktemp("empty")
    code = "import sys; from mlflow import MlflowClient; MlflowClient(sys.argv[1])"
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    subprocess.run([sys.executable, "-c", code, uri], check=True, capture_output=True, cwd=folder)
    return folder / "mlflow.db"


@pytest.fixture
def database(empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the test's own, which `MLFLOW_TRACKING_URI` names."""
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "digits")
    return tmp_path / "mlflow.db"


@pytest.fixture
def stored(database: Path, tmp_path: Path) -> Stored:
    return Stored(database, tmp_path / "mlruns")


class TestMLflowOnSQLite(ReporterContract):
    reporter_class = MLflowCallback
    nearest_status = {"pruned": "killed"}  # noqa: RUF012 - as the contract has it

    @pytest.fixture(autouse=True)
    def _stored(self, folder: Path, database: Path) -> None:
        self.stored = Stored(database, folder / "mlruns")

    def make_reporter(self, **options: Any) -> MLflowCallback:
        return MLflowCallback(log_artifacts=True, **options)

    def read(self) -> list[Reported]:
        return [self.reported(run_id) for run_id in self.stored.runs()]

    def reported(self, run_id: str) -> Reported:
        texts, files = [], {}
        for path, content in self.stored.files(run_id).items():
            if match := re.fullmatch(r"texts/(.+)/(\d+)-\d+\.txt", path):
                texts.append((match[1], int(match[2]), content))
            elif "/" in path:
                name, _, file = path.partition("/")
                files.setdefault(name, []).append(file)
        return Reported(
            points=Reported.by_key((key, step, value) for key, value, _, step in self.stored.metrics(run_id)),
            params=self.stored.params(run_id),
            texts=Reported.by_key(texts),
            artifacts=files,
            status=self.stored.status(run_id).lower(),
        )


def test_each_value_stands_in_the_store_as_it_was_logged(loop, stored, monkeypatch):
    reporter = MLflowCallback(tags={"team": "vision"})
    training = loop(
        reporter, run_name="blue", learning_rate=0.25, lr_scheduler_kwargs={"long": "x" * 6001, "none": None}
    )
    training.fire("on_train_begin")
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5678)
    training.log_at(3, loss=0.1, huge=1e300, count=2**70, small=5e-324, broken=math.nan, note="half-way", **{"r@10": 1})
    training.log_at(4, grad_norm=math.inf, loss=-0.0)
    training.fire("on_train_end")
    run_id = reporter.tracker_id
    found = {(key, step): value for key, value, _, step in stored.metrics(run_id)}
    assert math.isnan(found.pop(("broken", 3)))
    assert found == {
        ("loss", 3): 0.1,
        ("huge", 3): 1e300,
        ("count", 3): float(2**70),
        ("small", 3): 5e-324,
        ("r_10", 3): 1.0,
        ("epoch", 3): 0.0,
        ("loss", 4): 0.0,
        ("epoch", 4): 0.0,
    }
    assert {ms for _, _, ms, _ in stored.metrics(run_id)} == {1234568}
    types = stored.rows("select distinct typeof(value), typeof(step), typeof(timestamp) from metrics")
    assert types == [("real", "integer", "integer")]
    params, tags, files = stored.params(run_id), stored.tags(run_id), stored.files(run_id)
    assert (params["learning_rate"], params["lr_scheduler_kwargs/none"]) == ("0.25", "None")
    assert len(params["lr_scheduler_kwargs/long"]) == 6000
    assert files["params/lr_scheduler_kwargs/long.txt"] == "x" * 6001
    assert files["texts/note/00000003-1234568.txt"] == "half-way"
    assert (tags["team"], tags["mlflow.runName"]) == ("vision", "blue")
    assert tags["trackside.infinite.grad_norm"] == "inf at step 4"
    assert stored.status(run_id) == "FINISHED"


def test_a_thousand_points_sent_again_are_no_doubles(loop, stored):
    from trackside import Point

    reporter = MLflowCallback()
    loop(reporter).fire("on_train_begin")
    points = [Point({f"metric_{number}": number / 3 for number in range(100)}, step, None, 1e9) for step in range(10)]
    for _ in range(3):
        reporter.log_points(points)
    assert len(stored.metrics(reporter.tracker_id)) == 1000
    reporter.close()


def test_a_run_is_found_again_from_any_working_directory(loop, stored, tmp_path, monkeypatch):
    first = MLflowCallback(tracking_uri="sqlite:///mlflow.db")
    loop(first).train()
    monkeypatch.chdir(tmp_path.parent)
    loop(MLflowCallback(**first.place(), resume=first.tracker_id), output_dir="out").train()
    assert first.place() == {"tracking_uri": f"sqlite:///{stored.database}"}
    assert stored.runs() == [first.tracker_id]


def test_four_processes_may_make_one_store_and_one_experiment_at_once(tmp_path):
    code = """
        from trackside_mlflow import MLflowCallback
        from trackside_testkit import FakeLoop
        FakeLoop([MLflowCallback(experiment_name="digits")], output_dir="out", num_train_epochs=1).train()
        """
    uri = f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"
    processes = [start_script(code, tmp_path, MLFLOW_TRACKING_URI=uri) for _ in range(4)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    stored = Stored(tmp_path / "new" / "mlflow.db", tmp_path / "mlruns")
    assert [len(stored.points(run_id, "loss")) for run_id in stored.runs()] == [4, 4, 4, 4]
    assert sorted(stored.rows("select name from experiments")) == [("Default",), ("digits",)]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["mlflow.db"]


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [("raise ValueError", "FAILED", 1), ("sys.exit(3)", "FAILED", 3), ("loop.fire('on_train_end')", "FINISHED", 0)],
)
def test_a_program_that_ends_in_mid_run_leaves_a_run_that_says_so(stored, tmp_path, end, status, code):
    script = f"""
        import sys
        from trackside_mlflow import MLflowCallback
        from trackside_testkit import FakeLoop
        loop = FakeLoop([MLflowCallback()], output_dir="out")
        loop.fire("on_train_begin")
        loop.log({{"loss": 0.5}})
        import mlflow
        mlflow.log_metric("mine", 1.5)
        {end}
        """
    process = start_script(script, tmp_path)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    (run_id,) = stored.runs()
    assert stored.status(run_id) == status
    assert stored.points(run_id, "loss") == [(0, 0.5)]
    assert stored.points(run_id, "mine") == [(0, 1.5)]


def test_a_run_that_the_user_has_open_is_logged_to_and_never_closed(loop, stored):
    import mlflow

    with mlflow.start_run() as mine:
        reporter = MLflowCallback()
        loop(reporter).train()
        mlflow.log_metric("mine", 1.5)
        assert stored.status(mine.info.run_id) == "RUNNING"
    assert stored.runs() == [mine.info.run_id]
    assert stored.status(mine.info.run_id) == "FINISHED"
    assert len(stored.points(mine.info.run_id, "loss")) == 4
    assert stored.points(mine.info.run_id, "mine") == [(0, 1.5)]


def test_telemetry_does_not_start_and_the_environment_stays_as_it_is(stored, tmp_path):
    script = """
        import os
        from trackside_mlflow import MLflowCallback
        from trackside_testkit import FakeLoop
        before = dict(os.environ)
        loop = FakeLoop([MLflowCallback()], output_dir="out", num_train_epochs=1)
        loop.train()
        try:
            from mlflow.telemetry import get_telemetry_client
        except ImportError:  # mlflow 2
            get_telemetry_client = lambda: None
        print(get_telemetry_client(), {name: (before.get(name), os.environ.get(name)) for name in {*before, *os.environ}
              if before.get(name) != os.environ.get(name)})
        """
    marks = dict.fromkeys(("CI", "PYTEST_CURRENT_TEST", "GITHUB_ACTIONS", "DO_NOT_TRACK"))
    printed, errors = start_script(script, tmp_path, **marks).communicate(timeout=60)
    assert printed == "None {}\n", errors


# ---- servers --------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a real server, in a process group of its own."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    folder = tmp_path / "server"
    folder.mkdir()
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}", "--artifacts-destination", str(folder / "files")),
    ]
    with open(folder / "log", "wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(address: str, process: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + START_OF_A_SERVER
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=1).close()
            return
        except OSError:  # noqa: PERF203 - it is not up yet
            time.sleep(0.2)
    raise AssertionError(output.read_text("utf-8"))


def test_a_server_gets_it_all_and_nothing_is_printed(loop, server, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    reporter = MLflowCallback(experiment_name="digits", log_artifacts=True)
    training = loop(reporter, lr_scheduler_kwargs={"long": "ü" * 7000})
    training.fire("on_train_begin")
    training.log_at(1, loss=0.5, broken=math.nan, grad_norm=math.inf, note="half-way")
    training.save()
    training.fire("on_train_end")
    second = MLflowCallback(resume=reporter.tracker_id)
    resumed = loop(second, learning_rate=0.5)
    resumed.fire("on_train_begin")
    resumed.log_at(2, loss=0.25)
    resumed.fire("on_exception", exception=KeyboardInterrupt())

    run_id = reporter.tracker_id
    stored = Stored(tmp_path / "server" / "mlflow.db", tmp_path / "server" / "files")
    assert stored.runs() == [run_id]
    assert stored.points(run_id, "loss") == [(1, 0.5), (2, 0.25)]
    assert math.isnan(stored.points(run_id, "broken")[0][1])
    assert stored.points(run_id, "grad_norm") == []
    assert stored.tags(run_id)["trackside.infinite.grad_norm"] == "inf at step 1"
    assert json.loads(stored.tags(run_id)["trackside.changed_params"])["learning_rate"] == ["0.1", "0.5"]
    assert stored.params(run_id)["learning_rate"] == "0.1"
    assert stored.status(run_id) == "KILLED"
    files = stored.files(run_id)
    assert "half-way" in files.values()
    assert {"params/lr_scheduler_kwargs/long.txt", "checkpoint-1/trainer_state.json"} <= set(files)
    assert reporter.where() == f"{server}/#/experiments/1/runs/{run_id}"
    if not is_old():
        assert capfd.readouterr().out == ""


def is_old() -> bool:
    """Version 2 has no switch for the addresses that it prints."""
    import mlflow

    return mlflow.__version__.startswith("2.")


def test_a_server_that_is_not_there_is_given_up_in_seconds(loop, caplog):
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    began = time.monotonic()
    training = loop(MLflowCallback(tracking_uri=f"http://127.0.0.1:{port}"))
    training.train()
    assert training.state.global_step == 4
    assert time.monotonic() - began < 20
    assert sum("mlflow cannot be reached" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("trouble", ["a folder", "no database"])
def test_a_file_that_is_no_store_is_refused_at_once(loop, tmp_path, trouble):
    from trackside import StartError

    path = tmp_path / "mlflow.db"
    if trouble == "a folder":
        path.mkdir()
    else:
        path.write_text("this is a text file, and a long one at that\n" * 100)
    began = time.monotonic()
    with pytest.raises(StartError, match="mlflow cannot start"):
        loop(MLflowCallback(tracking_uri=f"sqlite:///{path}")).fire("on_train_begin")
    assert time.monotonic() - began < 10


# ---- the fake -------------------------------------------------------------------------------------------------------


def test_the_fake_takes_what_the_real_one_takes():
    real = signatures()
    with fake_sdk():
        fake = signatures()
    for name, arguments in fake.items():
        assert real[name][: len(arguments)] == arguments, name


def signatures() -> dict[str, list[tuple[str, Any]]]:
    """Names and defaults of the arguments of all that the fake has."""
    mlflow, entities, fluent, registry = map(
        importlib.import_module,
        ("mlflow", "mlflow.entities", "mlflow.tracking.fluent", "mlflow.tracking.context.registry"),
    )
    assert isinstance(fluent._active_run_stack.get(), list)
    methods = ["__init__", "get_experiment_by_name", "create_experiment", "create_run", "get_run", "update_run"]
    methods += ["set_terminated", "delete_run", "log_batch", "log_text", "log_artifact"]
    found = {f"MlflowClient.{name}": getattr(mlflow.MlflowClient, name) for name in methods}
    found |= {name: getattr(mlflow, name) for name in ("active_run", "end_run", "get_tracking_uri", "set_tracking_uri")}
    found |= {name: getattr(entities, name) for name in ("Metric", "Param", "RunTag")}
    found |= {"ActiveRun": mlflow.ActiveRun, "resolve_tags": registry.resolve_tags}
    return {name: arguments_of(function) for name, function in found.items()}


def arguments_of(function: Any) -> list[tuple[str, Any]]:
    parameters = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.default) for parameter in parameters]


def start_script(code: str, folder: Path, **environment: str | None) -> subprocess.Popen[str]:
    """A Python of its own that runs `code` in `folder`."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(folder), **environment}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        cwd=folder,
        env={name: value for name, value in variables.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
