"""The real comet_ml, offline and with a server on loopback; what has arrived is read by readers of our own."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import os
import random
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from archives import Archive, archives, merged
from comet_server import CometServer, comet_server
from conftest import fake_sdk

from trackside import StartError
from trackside_comet_ml import CometCallback
from trackside_testkit import Reported, ReporterContract

pytestmark = pytest.mark.sdk


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[CometServer]:
    """A server of the test's own, with an API key of its own: comet_ml remembers which server a key belongs to."""
    with comet_server(uuid4().hex) as server:
        monkeypatch.setenv("COMET_URL_OVERRIDE", server.url)
        monkeypatch.setenv("COMET_API_KEY", server.api_key)
        yield server


class TestCometArchives(ReporterContract):
    reporter_class = CometCallback

    def make_reporter(self, **options: Any) -> CometCallback:
        return CometCallback(log_assets=True, online=False, **options)

    def read(self) -> list[Reported]:
        return [merged(parts) for parts in archives(self.folder / "out" / "comet").values()]


class TestCometOnline(ReporterContract):
    reporter_class = CometCallback

    @pytest.fixture(autouse=True)
    def _server(self, folder: Path, server: CometServer) -> None:
        self.server = server

    def make_reporter(self, **options: Any) -> CometCallback:
        return CometCallback(log_assets=True, **options)

    def read(self) -> list[Reported]:
        return [reported(experiment) for experiment in self.server.experiments.values()]


def reported(experiment: dict[str, Any]) -> Reported:
    """What the server holds of an experiment."""
    files: dict[str, list[str]] = {}
    for name in experiment["files"]:
        folder, _, file = name.partition("/")
        files.setdefault(folder, []).append(file)
    texts = [(json.loads(text["metadata"])["name"], int(text["step"]), text["file"]) for text in experiment["texts"]]
    points = [(row["metricName"], row["step"], float(row["metricValue"])) for row in experiment["metrics"]]
    return Reported(
        points=Reported.by_key(point for point in points if point[0] != "process duration"),
        params=experiment["params"],
        texts=Reported.by_key((name, step, content.decode("utf-8")) for name, step, content in texts),
        artifacts=files,
        status=experiment["others"].get("trackside.status", "running"),
    )


VALUES = {
    "loss": 0.1,
    "huge": 1e300,
    "small": 5e-324,
    "count": 10**18,
    "more": 10**30,
    "flag": True,
    "broken": math.nan,
    "up": math.inf,
    "down": -math.inf,
}
STORED = {**VALUES, "more": 1e30, "flag": 1, "broken": "NaN", "up": "Infinity", "down": "-Infinity"}
PARAMS = {"long": "x" * 1001, "none": None, "list": [1, "two"], "huge": 2**70, "nan": math.nan, "flag": False, "": 1}


def train_with_values(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    training.fire("on_train_begin")
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5678)
    training.state.epoch = 0.5
    training.log_at(3, **VALUES, note="half-way", **{"n" * 150: 1, "n" * 151: 2})
    training.save()
    training.log_at(2, loss=0.2)
    training.fire("on_train_end")


def assert_values(metrics: list[dict[str, Any]], params: dict[str, Any], whole: bytes) -> None:
    found = {(row["metricName"], row["step"]): row["metricValue"] for row in metrics}
    assert found.items() >= {(f"train/{name}", 3): value for name, value in STORED.items()}.items()
    assert found["train/loss", 2] == 0.2
    assert sorted(found[key] for key in found if "nnn" in key[0]) == [1, 2]
    assert {len(name) for name, _ in found if "nnn" in name} == {100}
    assert {row["timestamp"] for row in metrics} == {1234568}
    assert {row["epoch"] for row in metrics if row["step"] == 3} == {0.5}
    ours = {key.partition("/")[2]: value for key, value in params.items() if key.startswith("lr_scheduler_kwargs/")}
    assert ours.pop("long").endswith("... (1001 characters)")
    assert ours == {"none": None, "list": '[1, "two"]', "huge": str(2**70), "nan": "NaN", "flag": False, "": 1}
    assert params["learning_rate"] == 0.25
    assert whole == b"x" * 1001


def test_each_value_stands_in_the_archive_as_it_was_logged(loop, tmp_path, monkeypatch):
    reporter = CometCallback(online=False, log_assets=True, tags=["vision"], project_name="digits", workspace="team")
    training = loop(reporter, run_name="blue", learning_rate=0.25, lr_scheduler_kwargs=PARAMS)
    train_with_values(training, monkeypatch)
    ((archive,),) = archives(tmp_path / "out" / "comet").values()
    files = {file["fileName"]: file["content"] for file in archive.files}
    assert_values(archive.metrics, archive.params, files["params/lr_scheduler_kwargs/long.txt"])
    assert files["checkpoint-3/trainer_state.json"] == Path("out/checkpoint-3/trainer_state.json").read_bytes()
    assert archive.about["offline_id"] == reporter.tracker_id
    assert [archive.about[name] for name in ("workspace", "project_name", "tags")] == ["team", "digits", ["vision"]]
    assert archive.others["Name"] == "blue"
    assert set(archive.others) == {
        *("Name", "offline_experiment", "trackside.command", "trackside.python"),
        *("trackside.artifact", "trackside.status"),
    } | ({"trackside.git_commit"} & set(archive.others))


def test_a_trial_and_the_layers_of_its_model_stand_in_the_archive(loop, tmp_path):
    class Model:
        config = None

        def __str__(self):
            return "Model(\n  (layer): Linear()\n)"

    training = loop(CometCallback(online=False), model=Model())
    training.state.is_hyper_param_search, training.state.trial_name = True, "trial-0"
    training.state.trial_params = {"lr": 0.5}
    training.fire("on_train_begin")
    training.fire("on_train_end")
    ((archive,),) = archives(tmp_path / "out" / "comet").values()
    assert archive.others.items() >= {"optimizer_id": "trial-0", "optimizer_parameters": '{"lr": 0.5}'}.items()
    assert [payload["graph"] for payload in archive.payloads("graph")] == [str(Model())]


def test_each_value_reaches_the_server_as_it_was_logged(loop, server, monkeypatch, tmp_path):
    reporter = CometCallback(log_assets=True)
    training = loop(reporter, run_name="blue", learning_rate=0.25, lr_scheduler_kwargs=PARAMS)
    train_with_values(training, monkeypatch)
    experiment = server.experiments[reporter.tracker_id]
    assert_values(
        [row for row in experiment["metrics"] if row["metricName"] != "process duration"],
        experiment["params"],
        experiment["files"]["params/lr_scheduler_kwargs/long.txt"],
    )
    assert reporter.where() == f"{server.url}team/project/{reporter.tracker_id}"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_archives_of_one_experiment_are_merged_in_whichever_order_they_are_uploaded(loop, server, tmp_path):
    reporter = CometCallback(online=False, log_assets=True)
    training = loop(reporter)
    training.train()
    training.evaluate()
    parts = [Archive(path) for path in (tmp_path / "out" / "comet").glob("*.zip")]
    before = sorted(map(value_of, (row for part in parts for row in part.metrics)))
    paths = sorted((tmp_path / "out" / "comet").glob("*.zip"), key=lambda path: path.stat().st_size)
    assert server.experiments == {}
    code = "import sys; from comet_ml.scripts.comet_upload import main; main(sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    ((key, experiment),) = server.experiments.items()
    assert key == reporter.tracker_id
    assert sorted(map(value_of, experiment["metrics"])) == before
    assert experiment["files"]["checkpoint-4/model.bin"] == b"weights"


def test_trainings_of_one_seed_leave_an_archive_each(loop, tmp_path):
    key = None
    for _ in range(2):
        reporter = CometCallback(online=False, **({"resume": key} if key else {}))
        random.seed(7)
        loop(reporter).train()
        key = reporter.tracker_id
    assert len(list((tmp_path / "out" / "comet").glob(f"{key}*.zip"))) == 2


def value_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["metricName"], row["step"], row["metricValue"], row["timestamp"]


@pytest.mark.parametrize("online", [True, False])
def test_an_experiment_that_the_user_has_running_is_logged_to_and_never_ended(loop, server, tmp_path, online):
    import comet_ml

    mine = comet_ml.start(online=online, experiment_config=comet_ml.ExperimentConfig(offline_directory=str(tmp_path)))
    try:
        reporter = CometCallback(online=online)
        training = loop(reporter)
        training.train()
        training.evaluate()
        reporter.close()
        assert reporter.tracker_id == mine.get_key()
        assert comet_ml.get_running_experiment() is mine
        assert mine.alive
        beside = CometCallback(online=online, resume="f" * 32)
        loop(beside).train()
        assert comet_ml.get_running_experiment() is mine
        assert mine.alive
    finally:
        mine.end()
    if online:
        points = reported(server.experiments[mine.get_key()]).points
    else:
        points = merged(archives(tmp_path)[mine.get_key()]).points
    assert len(points["train/loss"]) == 4
    assert len(points["eval/loss"]) == 2


# ---- programs -------------------------------------------------------------------------------------------------------


def run_script(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own that runs `code` in `folder`, with nothing else in its home."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        cwd=folder,
        env={**variables, "TRACKSIDE_DELIVERY": "inline", **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )


QUIET = """
    import os, signal, socket, sys, threading
    asked = []
    socket.socket.connect = lambda self, address: asked.append(address)
    signals = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    import torch
    from trackside_comet_ml import CometCallback
    from trackside_testkit import FakeLoop
    environment, streams = dict(os.environ), (sys.stdout, sys.stderr)
    reporter = CometCallback(online=False)
    loop = FakeLoop([reporter], output_dir="out", num_train_epochs=1)
    loop.train()
    import comet_ml, torch.nn
    assert dict(os.environ) == environment
    assert (sys.stdout, sys.stderr) == streams
    assert sys.excepthook.__module__ == "trackside.watch"
    assert signal.getsignal(signal.SIGINT) is signals[0]
    assert not any("comet" in type(finder).__module__ for finder in sys.meta_path)
    assert "sentry_sdk" not in sys.modules or not sys.modules["sentry_sdk"].is_initialized()
    print(asked)
    """


def test_nobody_is_asked_anything_and_nothing_is_printed_patched_or_left_behind(tmp_path):
    (tmp_path / "torch").mkdir()
    for module in ("__init__", "nn"):
        (tmp_path / "torch" / f"{module}.py").write_text("")
    done = run_script(QUIET, tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert done.stderr.startswith("Reporting to comet_ml; see the run with: comet upload ")
    assert done.stderr.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"out", "tmp", "torch"}
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [("raise ValueError", "failed", 1), ("sys.exit(3)", "failed", 3), ("loop.fire('on_train_end')", "finished", 0)],
)
def test_a_program_that_ends_in_mid_run_leaves_an_archive_that_says_so(tmp_path, end, status, code):
    script = f"""
        import sys
        from trackside_comet_ml import CometCallback
        from trackside_testkit import FakeLoop
        loop = FakeLoop([CometCallback(online=False)], output_dir="out")
        loop.fire("on_train_begin")
        loop.log({{"loss": 0.5}})
        import comet_ml
        comet_ml.get_running_experiment().log_metric("mine", 1.5)
        {end}
        """
    done = run_script(script, tmp_path)
    assert done.returncode == code, done.stderr
    ((archive,),) = archives(tmp_path / "out" / "comet").values()
    assert archive.others["trackside.status"] == status
    assert archive.about["customer_error_reported"] == (status == "failed")
    assert merged([archive]).points["train/loss"] == [(0, 0.5)]
    assert merged([archive]).points["mine"] == [(0, 1.5)]


def test_a_program_that_is_killed_leaves_no_archive_that_cannot_be_uploaded(tmp_path):
    script = """
        import os
        from trackside_comet_ml import CometCallback
        from trackside_testkit import FakeLoop
        loop = FakeLoop([CometCallback(online=False)], output_dir="out", num_train_epochs=1)
        """
    killed = script + "loop.fire('on_train_begin')\n        os._exit(9)"
    key = {"COMET_EXPERIMENT_KEY": "f" * 32}
    assert run_script(killed, tmp_path, **key).returncode == 9
    assert [path.stat().st_size for path in (tmp_path / "out" / "comet").iterdir()] == [22]
    assert run_script(script + "loop.train()", tmp_path, **key).returncode == 0
    (path,) = (tmp_path / "out" / "comet").iterdir()
    assert merged([Archive(path)]).status == "finished"


# ---- trouble --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["refused", "500"])
def test_a_server_that_is_not_there_is_given_up_in_seconds(loop, server, monkeypatch, caplog, trouble):
    server.trouble = 500
    if trouble == "refused":
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            monkeypatch.setenv("COMET_URL_OVERRIDE", f"http://127.0.0.1:{free.getsockname()[1]}/clientlib/")
    began = time.monotonic()
    training = loop(CometCallback())
    training.train()
    assert training.state.global_step == 4
    assert time.monotonic() - began < 60
    assert sum("comet_ml cannot be reached" in message for message in caplog.messages) == 1


def test_a_server_that_goes_away_and_comes_back_gets_everything(loop, server):
    reporter = CometCallback()
    training = loop(reporter)
    training.fire("on_train_begin")
    training.log_at(1, loss=0.5)
    assert reporter.flush() is None
    server.is_gone = True
    training.log_at(2, loss=0.25)
    assert reporter.flush() is NotImplemented
    with pytest.raises(ConnectionError) as refused:
        reporter.finish("finished")
    assert reporter.is_passing(refused.value)
    server.is_gone = False
    wait_until(lambda: reporter.flush() is None)
    training.fire("on_train_end")
    experiment = server.experiments[reporter.tracker_id]
    assert reported(experiment).points["train/loss"] == [(1, 0.5), (2, 0.25)]
    assert not experiment["is_alive"]


def test_what_a_server_answers_with_an_error_is_not_taken_for_safe(loop, server, caplog):
    reporter = CometCallback()
    training = loop(reporter)
    training.fire("on_train_begin")
    assert reporter.flush() is None
    server.trouble = 500
    training.log_at(1, loss=0.5)
    wait_until(lambda: reporter._experiment.lost)
    server.trouble = None
    wait_until(reporter.run.streamer.has_connection_to_server)
    training.log_at(2, loss=0.25)
    assert reporter.flush() is NotImplemented
    training.fire("on_train_end")
    assert sum("finish failed (RuntimeError: Comet has not taken everything" in text for text in caplog.messages) == 1
    assert reported(server.experiments[reporter.tracker_id]).points["train/loss"] == [(2, 0.25)]


def wait_until(condition: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert condition()


def test_a_key_that_is_not_known_is_refused_and_not_shown(loop, server, monkeypatch, capfd):
    monkeypatch.setenv("COMET_API_KEY", "plain0looking0api0key")
    with pytest.raises(StartError, match="Comet does not know the API key") as refused:
        loop(CometCallback()).fire("on_train_begin")
    assert "plain0looking" not in str(refused.value) + "".join(capfd.readouterr())


def test_a_checkpoint_whose_experiment_is_gone_starts_another_one(loop, server, tmp_path, caplog):
    first, second = CometCallback(), CometCallback()
    loop(first).train()
    server.experiments.clear()
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert sum("another one is started" in message for message in caplog.messages) == 1
    assert [*server.experiments] == [second.tracker_id] != [first.tracker_id]


def test_a_disabled_experiment_asks_nobody(loop, server, monkeypatch, caplog):
    monkeypatch.setenv("COMET_AUTO_LOG_DISABLE", "1")
    server.trouble = 500
    training = loop(CometCallback(log_assets=True))
    training.train()
    training.evaluate()
    assert not caplog.records
    assert not Path("out/comet").exists()


# ---- the fake -------------------------------------------------------------------------------------------------------


def test_the_fake_takes_what_the_real_one_takes():
    real = signatures()
    with fake_sdk():
        fake = signatures()
    for name, arguments in fake.items():
        assert real[name][: len(arguments)] == arguments, name


def signatures() -> dict[str, list[tuple[str, Any]]]:
    """Names and defaults of the arguments of all that the fake has and we use."""
    comet_ml, config, messages = map(importlib.import_module, ("comet_ml", "comet_ml.config", "comet_ml.messages"))
    found = {name: getattr(comet_ml, name) for name in ("start", "get_api_key", "get_config", "get_global_experiment")}
    found |= {"get_running_experiment": comet_ml.get_running_experiment}
    found |= {"ExperimentConfig": comet_ml.ExperimentConfig, "set_global_experiment": config.set_global_experiment}
    found |= {"MetricMessage": messages.MetricMessage, "set_metric": messages.MetricMessage.set_metric}
    methods = [
        "get_key",
        "log_parameter",
        "log_other",
        "log_others",
        "log_text",
        "log_asset_data",
        "log_asset",
        "flush",
    ]
    methods += ["set_model_graph", "log_optimization", "_report_experiment_error", "clean", "end"]
    kinds = (comet_ml.Experiment, comet_ml.OfflineExperiment)
    found |= {f"{kind.__name__}.{name}": getattr(kind, name) for kind in kinds for name in methods}
    return {name: arguments_of(function) for name, function in found.items()}


def arguments_of(function: Any) -> list[tuple[str, Any]]:
    parameters = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.default) for parameter in parameters]
