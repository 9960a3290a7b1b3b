"""The real clearml, offline and with a server on loopback; read back from its files and requests, value by value."""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import make_dataclass, replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from backend import Backend, handler_of
from conftest import fake_sdk

from trackside import Point, StartError
from trackside.values import flatten
from trackside_clearml import ClearMLCallback
from trackside_testkit import Reported, ReporterContract

pytestmark = [pytest.mark.sdk, pytest.mark.filterwarnings("ignore")]

SUMMARY = "Summary"


class Session:
    """What the folder of a task that runs offline holds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.task = json.loads((folder / "task.json").read_text("utf-8"))

    @staticmethod
    def all_in(folder: Path) -> list[Session]:
        return [Session(file.parent) for file in sorted(folder.glob("offline/*/task.json"))]

    def events(self, kind: str) -> list[dict[str, Any]]:
        file = self.folder / "metrics.jsonl"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        return [event for line in lines for event in json.loads(line) if event["type"] == kind]

    def scalars(self) -> list[tuple[str, str, int, float]]:
        """Title, series, iteration and value."""
        events = self.events("training_stats_scalar")
        return [(event["metric"], event["variant"], event["iter"], event["value"]) for event in events]

    def console(self) -> list[str]:
        return [event["msg"] for event in self.events("log")]

    def parameters(self, section: str) -> dict[str, str]:
        return {name: entry["value"] for name, entry in self.task.get("hyperparams", {}).get(section, {}).items()}

    def configuration(self, name: str) -> Any:
        return json.loads(self.task.get("configuration", {}).get(name, {"value": "{}"})["value"])

    def artifacts(self) -> dict[str, Path]:
        return {entry["key"]: Path(entry["uri"]) for entry in self.task["execution"].get("artifacts", [])}

    def reported(self) -> Reported:
        scalars = self.scalars()
        texts = [
            match.groups() for line in self.console() if (match := re.fullmatch(r"(?s)(.+) at step (\d+): (.*)", line))
        ]
        return Reported(
            points=Reported.by_key((f"{title}/{series}", step, value) for title, series, step, value in scalars),
            params={**flatten(self.configuration("Model Configuration")), **self.parameters("Transformers")},
            texts=Reported.by_key((key, int(step), text) for key, step, text in texts),
            summary={f"train/{series}": value for title, series, _, value in scalars if title == SUMMARY},
            artifacts={name: _files_in(file) for name, file in self.artifacts().items()},
            status=self.parameters("trackside").get("status", "running"),
        )


def _files_in(file: Path) -> list[str]:
    return ZipFile(file).namelist() if file.suffix == ".zip" else [file.name]


class TestClearMLOffline(ReporterContract):
    reporter_class = ClearMLCallback

    def make_reporter(self, **options: Any) -> ClearMLCallback:
        return ClearMLCallback(offline=True, log_model=True, **options)

    def read(self) -> list[Reported]:
        return [session.reported() for session in Session.all_in(self.folder / "out" / "_clearml")]


@pytest.fixture
def sessions(tmp_path: Path):
    """A function that reads the sessions that were kept offline."""
    return lambda: Session.all_in(tmp_path / "out" / "_clearml")


# ---- offline --------------------------------------------------------------------------------------------------------


def test_each_value_stands_in_the_file_as_it_was_logged(loop, sessions, monkeypatch):
    training = loop(
        ClearMLCallback(offline=True), learning_rate=0.25, lr_scheduler_kwargs={"none": None, "nan": math.nan}
    )
    training.fire("on_train_begin")
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5678)
    training.log_at(
        10, loss=0.1, huge=3e38, count=2**70, small=5e-324, huger=1e39, broken=math.nan, grad_norm=-math.inf
    )
    training.log_at(5, eval_loss=0.5, note="half-way", flag=True, **{"größe (m)": 1.5, "a/b": 2.5, "": 3.5})
    training.log_at(5, train_loss=0.25)
    training.fire("on_train_end")
    (session,) = sessions()
    assert [scalar for scalar in session.scalars() if scalar[1] != "epoch"] == [
        ("train", "loss", 10, 0.1),
        ("train", "huge", 10, 3e38),
        ("train", "count", 10, float(2**70)),
        ("train", "small", 10, 5e-324),
        ("eval", "loss", 5, 0.5),
        ("train", "flag", 5, 1.0),
        ("train", "größe (m)", 5, 1.5),
        ("train", "a/b", 5, 2.5),
        ("train", "train/", 5, 3.5),
        ("Summary", "train_loss", -(2**31), 0.25),
    ]
    assert {event["timestamp"] for event in session.events("training_stats_scalar") if event["iter"] >= 0} == {1234568}
    assert {
        "train/huger is 1e+39 at step 10",
        "train/broken is nan at step 10",
        "train/grad_norm is -inf at step 10",
        "train/note at step 5: half-way",
    } == set(session.console())
    parameters = session.parameters("Transformers")
    assert parameters["learning_rate"] == "0.25"
    assert parameters["lr_scheduler_kwargs/none"] == "None"
    assert parameters["lr_scheduler_kwargs/nan"] == "nan"
    assert session.configuration("Model Configuration")["hidden_size"] == 32
    assert session.task["project_name"] == "HuggingFace Transformers"


def test_a_resumed_session_goes_on_in_the_same_folder_with_its_own_iterations(loop, sessions):
    first = ClearMLCallback(offline=True)
    with pytest.raises(RuntimeError):
        loop(first, learning_rate=0.1).train(fail_at=3)
    second = ClearMLCallback(offline=True, resume=first.tracker_id)
    training = loop(second, learning_rate=0.5)
    training.fire("on_train_begin")
    training.log_at(7, loss=2.5)
    training.fire("on_train_end")
    (session,) = sessions()
    assert [(step, value) for _, series, step, value in session.scalars() if series == "loss"][-1] == (7, 2.5)
    assert "Transformers/learning_rate was 0.1, is 0.5 from step 0" in session.console()
    assert session.parameters("trackside")["status"] == "finished"


def test_what_a_session_holds_beyond_what_was_safe_is_replaced(loop, sessions):
    first = ClearMLCallback(offline=True)
    training = loop(first)
    training.fire("on_train_begin")
    training.log_at(1, loss=0.5)
    safe = first.flush()
    training.log_at(2, loss=0.25)
    first.close()
    second = ClearMLCallback(offline=True)
    second.start(replace(first._about, tracker_id=first.tracker_id, position=safe))
    second.log_points([Point({"train/loss": 0.125}, 2, None, 1.0)])
    second.finish("finished")
    (session,) = sessions()
    losses = [(step, value) for _, series, step, value in session.scalars() if series == "loss"]
    assert losses == [(1, 0.5), (2, 0.125)]


def test_what_says_how_to_see_a_session_names_a_file_that_is_there(loop):
    reporter = ClearMLCallback(offline=True)
    loop(reporter).train()
    (file,) = re.findall(r"offline_session\('(.+\.zip)'\)\"$", reporter.where())
    assert {"task.json", "metrics.jsonl"} <= set(ZipFile(file).namelist())


@pytest.mark.parametrize("how", ["a variable", "clearml.conf"])
def test_a_session_is_kept_where_the_user_wants_it(loop, tmp_path, monkeypatch, how):
    from clearml.config import config_obj

    if how == "a variable":
        monkeypatch.setenv("CLEARML_CACHE_DIR", str(tmp_path / "cache"))
    else:
        monkeypatch.setitem(config_obj.get("sdk.storage.cache"), "default_base_dir", str(tmp_path / "cache"))
    loop(ClearMLCallback(offline=True)).train()
    assert len(Session.all_in(tmp_path / "cache")) == 1
    assert not (tmp_path / "out" / "_clearml").exists()


def test_a_task_that_the_user_has_open_gets_a_section_for_each_run_and_stays_open(
    loop, sessions, tmp_path, monkeypatch
):
    monkeypatch.setenv("CLEARML_CACHE_DIR", str(tmp_path / "cache"))
    import clearml

    clearml.Task.set_offline(True)
    mine = clearml.Task.init("mine", "task", auto_connect_frameworks={"detect_repository": False})
    try:
        mine.set_parameters({"General/mine": 1})
        for learning_rate in (0.1, 0.5):
            loop(ClearMLCallback(), learning_rate=learning_rate).train()
        assert clearml.Task.current_task() is mine
    finally:
        mine.close()
    (session,) = Session.all_in(tmp_path / "cache")
    assert session.parameters("General") == {"mine": "1"}
    assert session.parameters("Transformers")["learning_rate"] == "0.1"
    assert session.parameters("Transformers_2")["learning_rate"] == "0.5"
    assert {title for title, *_ in session.scalars()} == {"train", "eval", "train_2", "eval_2", "Summary"}
    assert "status" not in session.parameters("trackside")


def test_the_program_is_left_as_it_was(loop, capfd):
    hooks = sys.excepthook, sys.exit, os.fork, signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    training = loop(ClearMLCallback(offline=True))
    training.fire("on_train_begin")
    during = sys.excepthook, sys.exit, os.fork, signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    training.fire("on_train_end")
    assert during[1:] == hooks[1:]
    assert during[0] is hooks[0] or during[0].__module__ == "trackside.watch"
    assert capfd.readouterr().out == ""
    assert not Path.home().joinpath(".clearml").exists()


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [("raise ValueError", "failed", 1), ("sys.exit(3)", "failed", 3), ("loop.fire('on_train_end')", "finished", 0)],
)
def test_a_program_that_ends_in_mid_run_leaves_a_session_that_says_so(sessions, tmp_path, end, status, code):
    script = f"""
        import sys
        from trackside_clearml import ClearMLCallback
        from trackside_testkit import FakeLoop
        loop = FakeLoop([ClearMLCallback(offline=True)], output_dir="out")
        loop.fire("on_train_begin")
        loop.log({{"loss": 0.5}})
        import clearml
        assert clearml.Task.current_task().id.startswith("offline-")
        {end}
        """
    process = start_script(script, tmp_path)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert output == ""
    (session,) = sessions()
    assert session.parameters("trackside")["status"] == status
    assert ("train", "loss", 0, 0.5) in session.scalars()


# ---- online ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """A server on loopback, which the SDK is configured for, and with which it has had no session yet."""
    from clearml import Task
    from clearml.backend_interface.base import InterfaceBase

    backend = Backend()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of(backend)) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        for host in ("API", "WEB", "FILES"):
            monkeypatch.setenv(f"CLEARML_{host}_HOST", address)
        monkeypatch.setenv("CLEARML_API_ACCESS_KEY", backend.key)
        monkeypatch.setenv("CLEARML_API_SECRET_KEY", "a-secret")
        Task.set_offline(False)
        monkeypatch.setattr(InterfaceBase, "_default_session", None)
        yield backend
        server.shutdown()
    while Task.current_task() is not None:
        Task.current_task().close()


def test_a_server_gets_it_all(loop, backend, monkeypatch):
    reporter = ClearMLCallback(project_name="digits", log_model=True)
    training = loop(reporter, run_name="blue", lr_scheduler_kwargs={"long": "ü" * 10_001})
    training.train()
    (task,) = backend.tasks.values()
    assert (task["name"], task["project"], task["status"]) == ("blue", "digits", "completed")
    assert [scalar[2:] for scalar in backend.scalars(task["id"]) if scalar[1] == "loss"] == [
        (1, 1 / 2),
        (2, 1 / 3),
        (3, 1 / 4),
        (4, 1 / 5),
        (4, 1 / 5),
    ]
    assert backend.parameters(task["id"], "Transformers")["lr_scheduler_kwargs/long"].endswith("(10001 characters)")
    assert backend.names_of_models(task["id"]) == ["checkpoint-4"]
    files = {name.rpartition("/")[2]: content for name, content in backend.files.items()}
    assert set(files) == {"checkpoint-4.zip", "long.txt"}
    assert "ü".encode() * 10_001 in files["long.txt"]
    assert b"trainer_state.json" in files["checkpoint-4.zip"]
    assert b"training_args.bin" not in files["checkpoint-4.zip"]
    assert reporter.where().endswith(f"/projects/digits/experiments/{task['id']}/output/log")


@pytest.mark.parametrize(
    ("exception", "status"),
    [
        (RuntimeError(), "failed"),
        (KeyboardInterrupt(), "stopped"),
        (type("TrialPruned", (Exception,), {})(), "stopped"),
    ],
    ids=["failed", "killed", "pruned"],
)
def test_a_server_is_told_how_a_run_has_ended_and_goes_on_with_it_on_resume(loop, backend, exception, status):
    first = ClearMLCallback()
    with pytest.raises(type(exception)):
        loop(first).train(fail_at=3, exception=exception)
    assert backend.tasks[first.tracker_id]["status"] == status
    second = ClearMLCallback(resume=first.tracker_id)
    training = loop(second)
    training.fire("on_train_begin")
    assert backend.tasks[first.tracker_id]["status"] == "in_progress"
    training.log_at(3, loss=2.5)
    training.fire("on_train_end")
    assert list(backend.tasks) == [first.tracker_id]
    assert ("train", "loss", 3, 2.5) in backend.scalars(first.tracker_id)
    assert backend.tasks[first.tracker_id]["status"] == "completed"


def test_old_models_go_with_their_checkpoints(loop, backend):
    training = loop(ClearMLCallback(log_model=True), num_train_epochs=4)
    extended = make_dataclass("Extended", [("save_total_limit", int, 2)], bases=(type(training.args),))
    training.args = extended(**vars(training.args))
    training.train()
    (task_id,) = backend.tasks
    assert backend.names_of_models(task_id) == ["checkpoint-12", "checkpoint-16"]
    assert [name.rpartition("/")[2] for name in backend.files] == ["checkpoint-12.zip", "checkpoint-16.zip"]


def test_models_of_several_runs_stay_apart_in_a_task_of_the_users(loop, backend):
    from clearml import Task

    mine = Task.init("mine", "task", auto_connect_frameworks={"detect_repository": False}, reuse_last_task_id=False)
    for _ in range(2):
        loop(ClearMLCallback(log_model=True)).train()
    assert backend.names_of_models(mine.id) == ["checkpoint-4", "checkpoint-4_2"]
    assert [path.rpartition("/")[2] for path in backend.files] == ["checkpoint-4.zip", "checkpoint-4_2.zip"]
    assert all(model["uri"].startswith("http") for model in backend.models.values())
    assert backend.tasks[mine.id]["status"] == "in_progress"


def test_a_server_that_is_not_there_is_given_up_in_seconds(loop, backend, caplog, monkeypatch):
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        monkeypatch.setenv("CLEARML_API_HOST", f"http://127.0.0.1:{free.getsockname()[1]}")
    began = time.monotonic()
    training = loop(ClearMLCallback())
    training.train()
    assert training.state.global_step == 4
    assert time.monotonic() - began < 20
    assert sum("clearml cannot be reached" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("code", [500, 503])
def test_a_server_in_trouble_costs_seconds_and_no_training(loop, backend, caplog, code):
    reporter = ClearMLCallback()
    training = loop(reporter)
    training.fire("on_train_begin")
    training.log_at(1, loss=0.5)
    backend.trouble = code
    began = time.monotonic()
    training.log_at(2, loss=0.25)
    training.fire("on_log", logs={"note": "lost"})
    backend.trouble = None
    training.log_at(3, loss=0.125)
    training.fire("on_train_end")
    assert time.monotonic() - began < 20
    losses = [step for _, series, step, _ in backend.scalars(reporter.tracker_id) if series == "loss"]
    assert losses == [1, 3]
    assert backend.tasks[reporter.tracker_id]["status"] == "completed"
    assert sum("log_points failed" in message for message in caplog.messages) == 1


def test_a_wrong_key_is_refused_at_once(loop, backend, monkeypatch):
    monkeypatch.setenv("CLEARML_API_ACCESS_KEY", "wrong")
    with pytest.raises(StartError, match="invalid credentials"):
        loop(ClearMLCallback()).fire("on_train_begin")


@pytest.mark.parametrize("fate", ["deleted", "published"])
def test_a_task_that_cannot_be_continued_is_followed_by_another(loop, backend, caplog, tmp_path, fate):
    first = ClearMLCallback()
    loop(first).train()
    if fate == "deleted":
        del backend.tasks[first.tracker_id]
        backend.tasks["another"] = {}
    else:
        backend.tasks[first.tracker_id]["status"] = "published"
    second = ClearMLCallback()
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert second.tracker_id != first.tracker_id
    assert sum("another one is started" in message for message in caplog.messages) == 1
    with pytest.raises(StartError, match="there is no task"):
        loop(ClearMLCallback(resume=first.tracker_id)).fire("on_train_begin")


def test_a_session_that_was_kept_offline_can_be_imported(loop, backend):
    from clearml import Task

    reporter = ClearMLCallback(offline=True, log_model=True)
    training = loop(reporter)
    training.fire("on_train_begin")
    training.log_at(3, loss=0.5, note="half-way")
    training.save()
    training.fire("on_train_end")
    Task.set_offline(False)
    task_id = Task.import_offline_session(f"{reporter._task.get_offline_mode_folder()}.zip")
    assert ("train", "loss", 3, 0.5) in backend.scalars(task_id)
    assert "train/note at step 3: half-way" in backend.console(task_id)
    assert backend.parameters(task_id, "Transformers")["learning_rate"] == "0.1"
    assert [artifact["key"] for artifact in backend.tasks[task_id]["execution"]["artifacts"]] == ["checkpoint-3"]
    assert [path.rpartition("/")[2] for path in backend.files] == ["checkpoint-3.zip"]


def test_nothing_that_the_sdk_finds_out_by_itself_is_sent(loop, backend, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--hub_token", "plain-looking-token"])
    reporter = ClearMLCallback()
    loop(reporter).train()
    task = backend.tasks[reporter.tracker_id]
    assert "plain-looking-token" not in json.dumps([task, backend.events])
    assert not {"script", "Args", "Environment"} & {*task, *task["hyperparams"]}


# ---- the fake -------------------------------------------------------------------------------------------------------


def test_no_library_is_patched_that_the_sdk_knows():
    from clearml import Task

    from trackside_clearml.tasks import FRAMEWORKS

    known = set(re.findall(r'should_connect\("(\w+)"', inspect.getsource(Task.init)))
    assert known <= set(FRAMEWORKS)


def start_script(code: str, folder: Path) -> subprocess.Popen[str]:
    """A Python of its own that runs `code` in `folder`."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_fake_takes_nothing_that_the_real_one_does_not(monkeypatch):
    from clearml.backend_api import Session

    # The requests of the newest server, whichever one a test before has spoken to.
    monkeypatch.setattr(Session, "api_version", "newest")
    monkeypatch.setattr(Session, "check_min_api_version", lambda version: True)
    real = signatures()
    with fake_sdk():
        fake = signatures()
    assert {name: arguments - real[name] for name, arguments in fake.items() if not arguments <= real[name]} == {}


def signatures() -> dict[str, set[str]]:
    """The names of the arguments of all that the fake has."""
    from clearml import Model, OutputModel, Task
    from clearml.backend_api import Session
    from clearml.backend_api.services import models, tasks
    from clearml.backend_api.session.response import ResponseMeta
    from clearml.backend_interface.base import InterfaceBase
    from clearml.backend_interface.metrics import Metrics
    from clearml.backend_interface.metrics.events import ConsoleEvent, ScalarEvent
    from clearml.binding.environ_bind import PatchOsFork

    names = ["init", "current_task", "_has_current_task_obj", "running_locally", "is_offline", "set_offline", "close"]
    names += ["_remove_signal_hooks", "_remove_exception_hooks", "_at_exit", "get_parameters", "set_parameters"]
    names += ["update_parameters", "set_configuration_object", "upload_artifact", "get_output_log_web_page"]
    found = {f"Task.{name}": getattr(Task, name) for name in names}
    requests = ["GetAllRequest", "CompletedRequest", "FailedRequest", "StoppedRequest"]
    found |= {f"tasks.{name}": getattr(tasks, name) for name in requests}
    found |= {"models.GetAllRequest": models.GetAllRequest, "OutputModel": OutputModel, "Model.remove": Model.remove}
    found |= {
        "OutputModel.update_weights": OutputModel.update_weights,
        "Session": Session,
        "Session.send": Session.send,
    }
    found |= {"ResponseMeta.from_raw_data": ResponseMeta.from_raw_data, "Metrics.write_events": Metrics.write_events}
    found |= {"Metrics": Metrics, "ConsoleEvent": ConsoleEvent, "ScalarEvent": ScalarEvent}
    found |= {"_set_default_session": InterfaceBase._set_default_session, "patch_fork": PatchOsFork.patch_fork}
    return {name: set(inspect.signature(function).parameters) for name, function in found.items()}
