"""The real Trackio, in its databases and with a server on loopback; read back with sqlite3, value by value."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import textwrap
import time
import urllib.request
from contextlib import closing
from contextvars import ContextVar
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from conftest import fake_sdk

from trackside import StartError
from trackside.records import Point, Run
from trackside_testkit import Reported, ReporterContract
from trackside_testkit.integration import maker_of
from trackside_testkit.samples import ANY_VALUE, FINITE, KEYS, NO_NUMBERS, NON_FINITE
from trackside_testkit.workbench import losses
from trackside_trackio import TrackioCallback
from trackside_trackio.plain import RESERVED

pytestmark = [pytest.mark.sdk, pytest.mark.filterwarnings("default")]


class Stored:
    """What the database of a project holds."""

    def __init__(self, folder: Path, project: str) -> None:
        self.file = folder / f"{project}.db"

    def query(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        if not self.file.exists():
            return []
        with closing(sqlite3.connect(self.file)) as connection:
            return connection.execute(query, values).fetchall()

    def runs(self) -> list[str]:
        return [run_id for (run_id,) in self.query("select run_id from metrics group by run_id order by min(id)")]

    def rows(self, run_id: str) -> list[tuple[int, str, dict[str, Any]]]:
        """Step, time and metrics of each row, as JSON says them."""
        query = "select step, timestamp, metrics from metrics where run_id = ? order by id"
        return [(step, time, strict(metrics)) for step, time, metrics in self.query(query, run_id)]

    def values(self, run_id: str) -> list[tuple[str, int, Any]]:
        return [(key, step, value) for step, _, metrics in self.rows(run_id) for key, value in metrics.items()]

    def config(self, run_id: str) -> dict[str, Any]:
        ((config,),) = self.query("select config from configs where run_id = ?", run_id)
        return strict(config)

    def alerts(self, run_id: str) -> list[tuple[str, str, int]]:
        return self.query("select title, level, step from alerts where run_id = ?", run_id)

    def artifacts(self, run_id: str) -> dict[str, dict[str, str]]:
        """The names of the files of each version and their digests, by its alias."""
        query = (
            "select alias, manifest from artifact_versions version join artifact_aliases alias "
            "on alias.artifact_version_id = version.id where producer_run_id = ? and alias != 'latest'"
        )
        found = self.query(query, run_id)
        return {alias: {file["path"]: file["digest"] for file in json.loads(files)} for alias, files in found}


def strict(text: str | bytes) -> Any:
    """JSON by its standard, which has no nan."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def number(value: Any) -> Any:
    return {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}.get(value, value)


class TestTrackio(ReporterContract):
    reporter_class = TrackioCallback

    @pytest.fixture(autouse=True)
    def _project(self, trackio_dir):
        self.project = uuid4().hex
        self.stored = Stored(trackio_dir, self.project)

    def make_reporter(self, **options):
        return TrackioCallback(log_artifacts=True, project=self.project, **options)

    def read(self):
        return [self.reported(run_id) for run_id in self.stored.runs()]

    def reported(self, run_id):
        values, config = self.stored.values(run_id), self.stored.config(run_id)
        points = [(key, step, number(value)) for key, step, value in values if not isinstance(value, dict)]
        texts = [(key, step, value["_value"]) for key, step, value in values if isinstance(value, dict)]
        return Reported(
            points=Reported.by_key(points),
            params=config,
            texts=Reported.by_key(texts),
            artifacts=self.stored.artifacts(run_id),
            status=config["trackside/status"],
        )


# ---- what tests look at ---------------------------------------------------------------------------------------------


new = maker_of(lambda **options: TrackioCallback(**{"project": uuid4().hex, **options}))


@pytest.fixture
def stored(trackio_dir):
    def of(reporter):
        return Stored(trackio_dir, reporter.project)

    return of


RUN = Run(id="0123456789ab", name="blue", output_dir="out", time=1234.5)


# ---- databases ------------------------------------------------------------------------------------------------------


def test_every_value_arrives_as_the_readme_says(loop, new, stored):
    reporter = new()
    training = loop(reporter)
    training.begin(3)
    training.log({f"v{number}": value for number, value in enumerate(ANY_VALUE.values())})
    reporter.close()
    found = {key: value for key, _, value in stored(reporter).values(reporter.tracker_id)}
    kinds = {kind: found.get(f"train/v{number}") for number, kind in enumerate(ANY_VALUE)}
    assert {kind: kinds[kind] for kind in FINITE} == {kind: value for kind, (_, value) in FINITE.items()}
    assert type(kinds["an int above 64 bits"]) is float
    assert [kinds[kind] for kind in NON_FINITE] == ["NaN", "Infinity", "-Infinity", "NaN", "NaN", "Infinity"]
    texts = {kind: value for kind, value in NO_NUMBERS.items() if isinstance(value, str)}
    assert {kind: kinds[kind] for kind in texts} == {
        kind: {"_type": "trackio.markdown", "_value": text} for kind, text in texts.items()
    }
    number = list(ANY_VALUE).index
    assert found[f"train/v{number('a list')}/1"] == 2.5
    assert found[f"train/v{number('a nested dict')}/per_class/cat"] == 0.5
    assert kinds["None"] is None
    assert kinds["an object"] == {"_type": "trackio.markdown", "_value": "<object object>"}


def test_every_key_arrives_with_its_own_value(loop, new, stored):
    keys = [*KEYS, "step", "time", "__x", "caf\udce9", "caf\udce8"]
    reporter = new(key_style="raw")
    training = loop(reporter)
    training.begin(3)
    training.log({key: float(number) for number, key in enumerate(keys)})
    reporter.close()
    values = stored(reporter).values(reporter.tracker_id)
    found = {key: value for key, step, value in values if step == 3}
    assert sorted(value for key, value in found.items() if key != "epoch") == list(map(float, range(len(keys))))
    kept = {key: float(number) for number, key in enumerate(KEYS) if key}
    assert {key: found[key] for key in kept} == kept
    assert (found["__step"], found["__time"], found["____x"]) == tuple(
        float(keys.index(key)) for key in ("step", "time", "__x")
    )


def test_trackio_itself_reads_the_numbers_back(loop, new):
    from trackio import Api, server

    reporter = new()
    training = loop(reporter, seed=7)
    training.begin(3)
    training.log({"loss": math.inf, "grad_norm": 0.5})
    reporter.close()
    (run,) = Api().runs(reporter.project)
    assert (run.id, run.config["seed"], run.config["trackside/status"]) == (reporter.tracker_id, 7, "finished")
    row = server.get_logs(reporter.project, run_id=run.id)[-1]
    assert (row["step"], row["train/loss"], row["train/grad_norm"]) == (3, math.inf, 0.5)


def test_a_row_that_is_sent_again_is_known(new, stored):
    reporter = new()
    reporter.tracker_id = reporter.start(RUN)
    points = [Point({"train/loss": 2.0 - step}, step, None, 1234.5 + step) for step in range(3)]
    reporter.log_points(points)
    reporter.log_points(points[1:])
    assert stored(reporter).rows(RUN.id)[1:] == [
        (0, "1970-01-01T00:20:34.500000+00:00", {"train/loss": 2.0}),
        (1, "1970-01-01T00:20:35.500000+00:00", {"train/loss": 1.0}),
        (2, "1970-01-01T00:20:36.500000+00:00", {"train/loss": 0.0}),
    ]


def test_a_checkpoint_arrives_file_by_file(loop, new, stored, tmp_path):
    reporter = new(log_artifacts=True)
    training = loop(reporter)
    training.begin(3)
    folder = training.save()
    kept = [file for file in folder.rglob("*") if file.is_file() and file.name != "training_args.bin"]
    expected = {file.relative_to(folder).as_posix(): sha256(file.read_bytes()).hexdigest() for file in kept}
    shutil.rmtree(folder)
    assert stored(reporter).artifacts(reporter.tracker_id) == {"checkpoint-3": expected}


def test_a_failed_training_is_an_alert(loop, new, stored):
    reporter = new()
    with pytest.raises(RuntimeError):
        loop(reporter).train(fail_at=3)
    assert stored(reporter).alerts(reporter.tracker_id) == [("Training failed", "error", 2)]


def test_a_run_of_the_users_takes_his_rows_and_ours(loop, new, stored):
    import trackio

    reporter = new()
    users = trackio.init(reporter.project, name="mine", config={"mine": 7}, embed=False)
    trackio.log({"before": 1}, step=0)
    loop(reporter, learning_rate=0.5).train()
    reporter.close()
    trackio.log({"after": 1})
    trackio.finish()
    (run_id,) = stored(reporter).runs()
    assert run_id == users.id
    values = stored(reporter).values(run_id)
    assert [(step, value) for key, step, value in values if key == "train/loss"] == losses(1, 4)
    assert [(key, step) for key, step, _ in values if key in ("before", "after")] == [("before", 0), ("after", 5)]
    assert {"mine": 7, "learning_rate": 0.5}.items() <= stored(reporter).config(run_id).items()
    assert "trackside/status" not in stored(reporter).config(run_id)


def test_the_users_calls_in_a_training_land_in_our_run(loop, new, stored):
    import trackio

    reporter = new()
    training = loop(reporter)
    training.begin(3)
    training.log({"loss": 0.5})
    trackio.log({"mine": 1})
    trackio.config["mine"] = 7
    training.fire("on_train_end")
    assert ("mine", 4, 1) in stored(reporter).values(reporter.tracker_id)
    assert stored(reporter).config(reporter.tracker_id)["mine"] == 7


def test_the_hub_is_not_asked_for_the_name_of_the_user(loop, new, monkeypatch):
    asked = []
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_user")
    monkeypatch.setattr("huggingface_hub.whoami", lambda *args, **options: asked.append(args))
    loop(new()).train()
    assert asked == []


def test_a_project_whose_files_would_be_those_of_another_is_refused(loop, new):
    from trackio.sqlite_storage import SQLiteStorage

    if not hasattr(SQLiteStorage, "validate_project_name"):
        pytest.skip("this version of trackio keeps one file for each project")
    with pytest.raises(StartError, match="is not allowed"):
        loop(new(project="digits_configs")).begin()


def test_what_is_in_the_inbox_of_a_network_file_system_is_what_a_dashboard_gets(loop, new, stored, monkeypatch):
    from trackio import server

    monkeypatch.setenv("TRACKIO_STORAGE_MODE", "jsonl")
    reporter = new()
    loop(reporter, seed=7).train()
    assert stored(reporter).runs() == []
    server.import_inbox_once()
    values = stored(reporter).values(reporter.tracker_id)
    assert [(step, value) for key, step, value in values if key == "train/loss"] == losses(1, 4)
    found = stored(reporter).config(reporter.tracker_id)
    assert (found["seed"], found["trackside/status"]) == (7, "finished")


SCRIPT = """
    import os, sys
    from trackside_testkit import FakeLoop
    from trackside_trackio import TrackioCallback

    project, logs, end = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    loop = FakeLoop([TrackioCallback(project=project)], run_name=end, report_to=[])
    loop.fire("on_train_begin")
    for step in range(logs):
        loop.state.global_step = step
        loop.log({"loss": float(step)})
    if end == "killed":
        os.kill(os.getpid(), 9)
    loop.fire("on_train_end")
"""


def script(code, folder, *arguments, **environment):
    """A Python of its own that runs `code` in `folder`."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("TRACKIO_", "HF_"))}
    places = {"PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(folder), "TRACKIO_DIR": str(folder)}
    variables = {**known, **places, "TRACKSIDE_DELIVERY": "inline"}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=folder,
        env={**variables, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_what_was_logged_before_a_kill_is_stored_and_nothing_is_printed(tmp_path):
    output, _ = script(SCRIPT, tmp_path, "killed", 3, "killed").communicate(timeout=60)
    stored = Stored(tmp_path, "killed")
    (run_id,) = stored.runs()
    assert [(step, value) for key, step, value in stored.values(run_id) if key == "train/loss"] == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]
    assert stored.config(run_id)["trackside/status"] == "running"
    assert output.splitlines() == ["Reporting to trackio; see the run with: trackio show --project killed"]


def test_processes_that_write_to_one_project_lose_nothing(tmp_path):
    both = [script(SCRIPT, tmp_path, "shared", 100, name) for name in ("one", "two")]
    for process in both:
        output, _ = process.communicate(timeout=120)
        assert (process.returncode, "failed" in output) == (0, False)
    stored = Stored(tmp_path, "shared")
    counts = [sum(key == "train/loss" for key, _, _ in stored.values(run_id)) for run_id in stored.runs()]
    assert counts == [100, 100]


# ---- a server on loopback -------------------------------------------------------------------------------------------

SERVER = """
    import sys, trackio
    trackio.show(host="127.0.0.1", server_port=int(sys.argv[1]), open_browser=False, block_thread=True)
"""
TOKEN = "sesame-of-the-server"


@pytest.fixture
def server(tmp_path_factory):
    """Its address, its folder and its process."""
    folder = tmp_path_factory.mktemp("server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = script(SERVER, folder, port, TRACKIO_WRITE_TOKEN=TOKEN)
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while not answers(f"{address}/version"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.05)
    yield address, folder, process
    process.kill()
    process.communicate()


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_a_run_and_its_checkpoint_arrive_at_a_server(loop, new, server, stored, tmp_path):
    address, folder, _ = server
    first = new(server_url=f"{address}?write_token={TOKEN}", log_artifacts=True)
    training = loop(first, learning_rate=0.5)
    training.train()
    assert training.state.global_step == 4
    second = new(server_url=address, write_token=TOKEN, project=first.project)
    loop(second, num_train_epochs=2, learning_rate=0.25).train(resume_from=tmp_path / "out" / "checkpoint-4")
    at_server = Stored(folder, first.project)
    assert at_server.runs() == [first.tracker_id]
    values = at_server.values(first.tracker_id)
    assert [(step, value) for key, step, value in values if key == "train/loss"] == losses(1, 8)
    found = at_server.config(first.tracker_id)
    assert found["trackside/changed_params"]["learning_rate"] == [0.5, 0.25]
    assert found["trackside/status"] == "finished"
    assert set(at_server.artifacts(first.tracker_id)["checkpoint-4"]) == {"model.bin", "trainer_state.json"}
    assert stored(first).runs() == []


def test_a_wrong_token_is_refused_by_a_server(loop, new, server):
    with pytest.raises(StartError, match=r"answers 400: A write_token is required"):
        loop(new(server_url=server[0], write_token="guess")).begin()


def test_a_server_that_goes_away_is_tried_again(new, server):
    address, _, process = server
    reporter = new(server_url=address, write_token=TOKEN)
    reporter.start(RUN)
    process.kill()
    process.wait()
    for action in (
        partial(reporter.log_points, [Point({"train/loss": 0.5}, 1, None, 1.5)]),
        partial(reporter.start, RUN),
    ):
        with pytest.raises(ConnectionError) as raised:
            action()
        assert reporter.is_passing(raised.value)


# ---- the fake -------------------------------------------------------------------------------------------------------


def test_the_fake_takes_no_more_than_the_real_one():
    real = signatures()
    with fake_sdk():
        fake = signatures()
    for name, parameters in fake.items():
        unknown = {key for key in parameters if key not in real[name]}
        missing = {key for key, default in real[name].items() if default is inspect.Parameter.empty} - parameters.keys()
        assert (name, unknown, missing) == (name, set(), set())
        assert {key: real[name][key] for key in parameters} == parameters, name


MODULES = ("deploy", "fragments", "remote_client", "server", "sqlite_storage", "utils")


def signatures():
    """Names and defaults of the arguments of all that we call."""
    trackio, deploy, fragments, remote, server, storage, utils, hub = map(
        importlib.import_module,
        ("trackio", *(f"trackio.{name}" for name in MODULES), "huggingface_hub"),
    )
    run = trackio.Run
    found = {
        **{f"Run.{name}": getattr(run, name) for name in ("__init__", "log", "log_artifact", "alert", "finish")},
        **{f"Artifact.{name}": getattr(trackio.Artifact, name) for name in ("__init__", "add_file")},
        **{name: getattr(trackio, name) for name in ("log", "freeze", "sync", "cpu_available")},
        "RemoteClient": remote.RemoteClient.__init__,
        "predict": remote.RemoteClient.predict,
        "bulk_log": storage.SQLiteStorage.bulk_log,
        **{name: getattr(server, name) for name in ("get_runs_for_project", "get_run_summary")},
        **{name: getattr(fragments, name) for name in ("metric_record", "FragmentWriter")},
        "write_local": fragments.FragmentWriter.write_local,
        **{name: getattr(utils, name) for name in ("get_storage_mode", "parse_trackio_server_url")},
        "preprocess_space_and_dataset_ids": utils.preprocess_space_and_dataset_ids,
        **{
            name: getattr(deploy, name)
            for name in ("resolve_auto_bucket_id", "raise_if_space_is_frozen_for_logging", "create_space_if_not_exists")
        },
        **{name: getattr(hub, name) for name in ("get_token", "whoami")},
    }
    return {name: arguments_of(function) for name, function in found.items()}


def arguments_of(function):
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.name != "databases"}


def test_the_fake_knows_the_words_of_the_real_one():
    def words():
        trackio, context = map(importlib.import_module, ("trackio", "trackio.context_vars"))
        assert {type(context.current_run), type(context.current_project)} == {ContextVar}
        return trackio.Markdown.TYPE, [level.value for level in trackio.AlertLevel]

    real = words()
    with fake_sdk():
        assert words() == real
    assert set(importlib.import_module("trackio.utils").RESERVED_KEYS) == RESERVED
