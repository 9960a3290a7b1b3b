"""The real client, offline: its files are read back by a reader of our own, value by value. And servers on loopback."""

from __future__ import annotations

import base64
import importlib
import inspect
import json
import math
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import fake_sdk
from loopback import PROJECT, Api, Server

from trackside import Run, StartError
from trackside_neptune import NeptuneCallback, reporter
from trackside_neptune.fields import Fields, Row
from trackside_testkit import Reported, ReporterContract

# What Neptune warns of is its own affair, but for values that it does not take: these are not to reach it.
pytestmark = [pytest.mark.sdk, pytest.mark.filterwarnings("ignore", "error:.*not (currently|directly) supported")]

QUIET = {
    "mode": "offline",
    "capture_stdout": False,
    "capture_stderr": False,
    "capture_traceback": False,
    "capture_hardware_metrics": False,
    "git_ref": False,
    "source_files": [],
}


# ---- the reader -----------------------------------------------------------------------------------------------------


class Stored:
    """What `neptune sync` would make of the operations in one folder of the client's.

    Attributes:
        fields: the value of each field: of a series its rows of step, value and time, of files the paths on disk.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fields: dict[str, Any] = {}
        for log in sorted(folder.glob("data-*.log"), key=lambda file: int(file.stem.partition("-")[2])):
            for operation in operations(log.read_text("utf-8")):
                self.apply(operation["type"], "/".join(operation["path"]), operation)

    def apply(self, kind: str, path: str, operation: dict[str, Any]) -> None:
        if kind.startswith("Assign"):
            self.fields[path] = operation["value"]
        elif kind in ("LogFloats", "LogStrings"):
            rows = [(row["step"], row["value"], row["ts"]) for row in operation["values"]]
            self.fields.setdefault(path, []).extend(rows)
        elif kind == "AddStrings":
            self.fields[path] = set(operation["values"])
        elif kind == "DeleteAttribute":
            del self.fields[path]
        elif kind == "UploadFile":
            self.fields[path] = {operation["file_path"]}
        elif kind == "UploadFileSet":
            self.fields[path] = set(operation["file_globs"])
        else:
            assert path.startswith("monitoring/"), f"{kind} of {path}"

    def below(self, namespace: str) -> dict[str, Any]:
        prefix = f"{namespace}/"
        return {path.removeprefix(prefix): value for path, value in self.fields.items() if path.startswith(prefix)}


def operations(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that follow one another in a log, with or without line ends."""
    decoder, position = json.JSONDecoder(), 0
    while position < len(text):
        if text[position].isspace():
            position += 1
        else:
            entry, position = decoder.raw_decode(text, position)
            yield entry["obj"]


def stored_in(folder: Path) -> list[Stored]:
    return [Stored(path) for path in folder.glob("_neptune/.neptune/offline/*")]


def only_stored(folder: Path) -> Stored:
    (stored,) = stored_in(folder)
    return stored


# ---- the server ----


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A server of Neptune's API on loopback, without TLS."""
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    server = Server()
    yield server.api
    server.close()


def online(api: Api, **options: Any) -> NeptuneCallback:
    return NeptuneCallback(api_token=api.token, project=PROJECT, capture_hardware_metrics=False, **options)


# ---- the contract ---------------------------------------------------------------------------------------------------


class TestNeptuneOffline(ReporterContract):
    reporter_class = NeptuneCallback

    def make_reporter(self, **options: Any) -> NeptuneCallback:
        return NeptuneCallback(mode="offline", log_checkpoints="same", capture_hardware_metrics=False, **options)

    def read(self) -> list[Reported]:
        return [reported(self.with_names(stored)) for stored in stored_in(self.folder / "out")]

    @staticmethod
    def with_names(stored: Stored) -> dict[str, Any]:
        """The fields, with the names of the files in a checkpoint instead of where it is kept."""
        names = {
            path: {file.name for folder in value for file in Path(folder).iterdir()}
            for path, value in stored.fields.items()
            if path.startswith("finetuning/checkpoints/")
        }
        return {**stored.fields, **names}


class TestNeptuneOnline(ReporterContract):
    reporter_class = NeptuneCallback

    @pytest.fixture(autouse=True)
    def _api(self, api: Api) -> None:
        self.api = api

    def make_reporter(self, **options: Any) -> NeptuneCallback:
        return online(self.api, log_checkpoints="same", **options)

    def read(self) -> list[Reported]:
        assert [refusal for run in self.api.runs for refusal in run.refused] == []
        return [reported({**run.values, **run.files}) for run in self.api.runs]


def reported(fields: dict[str, Any]) -> Reported:
    """A run of these fields; a step that lies a little behind another one is the same."""
    points, texts, summary, params = [], [], {}, {}
    artifacts: dict[str, set[str]] = {}
    for path, value in fields.items():
        base, _, path = path.partition("/")
        group, _, name = path.partition("/")
        if base != "finetuning":
            continue
        if group in ("trainer_parameters", "model_parameters"):
            params[name] = value
        elif group == "texts":
            texts += [(name, int(step), text) for step, text, _ in value]
        elif group == "checkpoints":
            artifacts[name] = value
        elif group == "files":
            artifacts.setdefault(group, set()).add(name)
        elif group not in ("trackside", "non_finite"):
            if isinstance(value, list):
                points += [(path, int(step), number) for step, number, _ in value]
            else:
                summary[path] = value
    return Reported(
        points=Reported.by_key(points),
        params=params,
        texts=Reported.by_key(texts),
        summary=summary,
        artifacts=artifacts,
        status=fields["finetuning/trackside/status"],
    )


# ---- values ---------------------------------------------------------------------------------------------------------


def offline(**options: Any) -> NeptuneCallback:
    return NeptuneCallback(mode="offline", capture_hardware_metrics=False, **options)


def test_each_value_lies_there_as_it_was_logged(loop, tmp_path, monkeypatch):
    neptune = offline(name="blue", log_checkpoints="last", tags=["digits"])
    anything = {"long": "x" * 16385, "none": None, "big": 2**40, "odd": 2**60 + 1, "nan": math.nan, "list": [1, 2]}
    training = loop(neptune, learning_rate=0.25, seed=7, lr_scheduler_kwargs=anything)
    training.fire("on_train_begin")
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5678)
    training.log_at(3, loss=0.1, huge=1e300, count=2**70, small=5e-324, broken=math.nan, note="half-way")
    training.log_at(4, grad_norm=-math.inf, loss=-0.0, note="caf\udce9" + "y" * 1000)
    training.save()
    training.log_at(4, train_loss=0.5, train_runtime=math.inf)
    training.fire("on_train_end")
    neptune.close()

    stored = only_stored(tmp_path / "out")
    assert stored.below("finetuning/train") == {
        "loss": [(3.0, 0.1, 1234.5678), (4.0, -0.0, 1234.5678)],
        "huge": [(3.0, 1e300, 1234.5678)],
        "count": [(3.0, float(2**70), 1234.5678)],
        "small": [(3.0, 5e-324, 1234.5678)],
        "epoch": 0.0,
        "train_loss": 0.5,
        "train_runtime": "inf",
    }
    assert stored.below("finetuning/non_finite/train") == {
        "broken": [(3.0, "nan", 1234.5678)],
        "grad_norm": [(4.0, "-inf", 1234.5678)],
    }
    first, second = stored.fields["finetuning/texts/train/note"]
    assert (first, second[0], len(second[1])) == ((3.0, "half-way", 1234.5678), 4.0, 1000)
    params = stored.below("finetuning/trainer_parameters")
    assert (params["learning_rate"], params["seed"]) == (0.25, 7)
    scheduler = {key: params[f"lr_scheduler_kwargs/{key}"] for key in anything}
    assert scheduler.pop("long").endswith("... (16385 characters)")
    assert scheduler == {"none": "None", "big": 2.0**40, "odd": str(2**60 + 1), "nan": "nan", "list": "[1, 2]"}
    assert stored.fields["finetuning/model_parameters/hidden_size"] == 32
    files = [Path(file).read_text("utf-8") for paths in stored.below("finetuning/files").values() for file in paths]
    assert sorted(files) == ["caf?" + "y" * 1000, "x" * 16385]
    (checkpoint,) = stored.fields["finetuning/checkpoints/last"]
    assert {path.name for path in Path(checkpoint).iterdir()} == {"model.bin", "trainer_state.json"}
    assert (stored.fields["sys/name"], stored.fields["sys/failed"]) == ("blue", False)
    assert stored.fields["sys/tags"] == {"digits"}
    assert stored.fields["finetuning/trackside/status"] == "finished"
    assert stored.fields["finetuning/trackside/step"] == 4


def test_nothing_is_sent_that_nobody_has_asked_for(loop, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--api-key=plain-looking-key"])
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(
        ["git", "remote", "add", "origin", "https://me:plain-looking-login@host/it"], check=True, cwd=tmp_path
    )
    training = loop(offline())
    training.fire("on_train_begin")
    sys.stdout.write("a line for the console")
    with suppress(RuntimeError):
        training.train(fail_at=2)
    for stored in stored_in(tmp_path / "out"):
        groups = {path.partition("/")[0] for path in stored.fields}
        assert groups <= {"sys", "finetuning", "source_code"}
        assert stored.below("source_code").get("files") == set()
        assert "plain-looking" not in repr(stored.fields)
        assert "a line for the console" not in repr(stored.fields)


def test_hardware_is_measured_while_a_training_runs_and_not_while_one_is_replayed(loop, tmp_path, monkeypatch):
    neptune = NeptuneCallback(mode="offline")
    training = loop(neptune)
    training.fire("on_train_begin")
    neptune.close()
    assert [path for path in only_stored(tmp_path / "out").fields if path.startswith("monitoring/")]
    late = Run(id="0123456789ab", name="old", output_dir=str(tmp_path / "late"), time=time.time() - 3600)
    neptune.start(late)
    neptune.finish("finished")
    assert not [path for path in only_stored(tmp_path / "late").fields if path.startswith("monitoring/")]


def test_offline_runs_of_one_training_name_each_other(loop, tmp_path):
    loop(offline()).train()
    first = only_stored(tmp_path / "out")
    second = offline()
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    second.close()
    (later,) = (stored for stored in stored_in(tmp_path / "out") if stored.folder != first.folder)
    assert later.fields["finetuning/trackside/continues"] == f"offline/{first.folder.name.split('__')[1]}"
    assert later.fields["finetuning/trackside/run_id"] == first.fields["finetuning/trackside/run_id"]
    assert [row[0] for row in later.fields["finetuning/train/loss"]] == [5, 6, 7, 8]


def test_in_debug_mode_nothing_is_written(loop, tmp_path):
    neptune = NeptuneCallback(mode="debug", capture_hardware_metrics=False)
    training = loop(neptune)
    training.train()
    assert neptune.run["finetuning/train/epoch"].fetch() == 1.0
    neptune.close()
    assert not (tmp_path / ".neptune").exists()
    assert not list((tmp_path / "out").rglob("data-*.log"))


def test_a_series_is_set_back_to_the_step_from_which_a_training_goes_on():
    import neptune

    run = neptune.init_run(**{**QUIET, "mode": "debug"})
    run["base/loss"].extend([0.5, 0.25, 0.125], steps=[0, 1, 2], timestamps=[1.0, 2.0, 3.0])
    Fields(run, "base", last=(1, -math.inf), is_set_back=True).extend("loss", [Row(8.0, 2, 4.0)])
    assert run["base/loss"].fetch_values(progress_bar=False)["value"].tolist() == [0.5, 0.25, 8.0]
    run.stop()


# ---- programs -------------------------------------------------------------------------------------------------------


def start_script(code: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code), "utf-8")
    return subprocess.Popen(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("delivery", ["inline", "thread", "process"])
@pytest.mark.parametrize(
    ("end", "status", "code"),
    [("raise ValueError", "failed", 1), ("sys.exit(3)", "failed", 3), ("loop.fire('on_train_end')", "finished", 0)],
)
def test_a_program_that_ends_in_mid_run_leaves_a_run_that_says_so(tmp_path, delivery, end, status, code):
    if delivery != "inline":
        pytest.importorskip("trackside_spool")
    script = f"""
        import sys
        from trackside_neptune import NeptuneCallback
        from trackside_testkit import FakeLoop
        if __name__ == "__main__":
            loop = FakeLoop([NeptuneCallback(mode="offline")], output_dir="out")
            loop.fire("on_train_begin")
            loop.log({{"loss": 0.5}})
            {end}
        """
    process = start_script(script, tmp_path, TRACKSIDE_DELIVERY=delivery)
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    assert printed == ""
    stored = only_stored(tmp_path / "out")
    assert stored.fields["finetuning/trackside/status"] == status
    assert stored.fields["sys/failed"] == (status == "failed")
    assert [row[:2] for row in stored.fields["finetuning/train/loss"]] == [(0, 0.5)]
    assert not (tmp_path / ".neptune").exists()


# ---- online ----


@pytest.fixture
def far_from_utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_a_training_that_goes_on_replaces_what_came_after_its_checkpoint(loop, api, tmp_path, monkeypatch):
    with pytest.raises(RuntimeError):
        loop(online(api), num_train_epochs=2, learning_rate=0.5).train(fail_at=7)
    (run,) = api.runs
    before = run.values["finetuning/train/loss"]
    assert [row[:2] for row in before] == [(step, 1 / (step + 1)) for step in range(1, 7)]
    assert (run.values["sys/failed"], run.values["finetuning/trackside/status"]) == (True, "failed")
    second = online(api)
    training = loop(second, num_train_epochs=2, learning_rate=0.25)
    monkeypatch.setattr(training, "loss", lambda step: 10.0 * step)
    training.train(resume_from=tmp_path / "out" / "checkpoint-4")
    second.close()
    assert api.runs == [run]
    after = run.values["finetuning/train/loss"]
    assert after[:4] == before[:4]
    assert [row[:2] for row in after[4:]] == [(step, 10.0 * step) for step in (5, 6, 7, 8)]
    assert (run.values["sys/failed"], run.values["finetuning/trackside/status"]) == (False, "finished")
    ((_, change, _),) = run.values["finetuning/trackside/changed_params"]
    assert change == "learning_rate: 0.5 -> 0.25"
    assert run.refused == []


def test_an_online_run_leaves_nothing_behind(loop, api, tmp_path):
    reporter = online(api, log_checkpoints="last")
    loop(reporter, run_name="x" * 20_000).train()
    reporter.close()
    (run,) = api.runs
    assert run.files["finetuning/checkpoints/last"] == {"model.bin", "trainer_state.json"}
    assert run.files["finetuning/files/params/run_name"] == {"x" * 20_000}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["checkpoint-4"]


def test_a_run_that_is_not_there_is_refused_in_a_sentence(loop, api):
    with pytest.raises(StartError, match="No existing Run was found at team/digits/DIG-7"):
        loop(online(api, resume="DIG-7")).train()


def test_a_server_that_fails_in_the_middle_costs_nothing(loop, api, monkeypatch):
    monkeypatch.setattr(reporter, "FLUSH_SECONDS", 0.5)
    neptune = online(api)
    training = loop(neptune)
    training.fire("on_train_begin")
    training.log_at(1, loss=0.5)
    api.fails.set()
    training.log_at(2, loss=0.25)
    assert neptune.flush() is NotImplemented
    api.fails.clear()
    monkeypatch.setattr(reporter, "FLUSH_SECONDS", 60)
    assert neptune.flush() is None
    training.fire("on_train_end")
    neptune.close()
    assert [row[:2] for row in api.runs[0].values["finetuning/train/loss"]] == [(1, 0.5), (2, 0.25)]


# ---- servers --------------------------------------------------------------------------------------------------------


def token_for(port: int) -> str:
    address = f"http://127.0.0.1:{port}"
    return base64.b64encode(json.dumps({"api_address": address, "api_url": address}).encode()).decode()


@pytest.fixture
def patient_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gives up within seconds, so that its threads do not outlive the test by a minute."""
    monkeypatch.setattr(importlib.import_module("neptune.common.backends.utils"), "retries_timeout", 1)


@pytest.fixture
def server() -> Iterator[Callable[[int], int]]:
    """A function that starts a server which answers everything with one status, and returns its port."""
    servers = []

    def serve(status: int) -> int:
        class Refusing(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *arguments: Any) -> None:
                """Say nothing."""

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Refusing))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1].server_address[1]

    yield serve
    for running in servers:
        running.shutdown()
        running.server_close()


@pytest.mark.usefixtures("patient_client")
@pytest.mark.parametrize("trouble", ["refused", "500", "silent"])
def test_a_server_that_does_not_answer_ends_nothing(loop, server, monkeypatch, caplog, trouble):
    monkeypatch.setattr(reporter, "START_SECONDS", 4.0)
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = server(500) if trouble == "500" else listening.getsockname()[1]
        if trouble == "refused":
            listening.close()
        began = time.monotonic()
        training = loop(NeptuneCallback(api_token=token_for(port), project="team/digits"))
        training.train()
    assert training.state.global_step == 4
    assert time.monotonic() - began < 15
    assert sum("neptune cannot be reached" in message for message in caplog.messages) == 1


@pytest.mark.usefixtures("patient_client")
def test_a_token_that_is_not_accepted_is_refused_in_a_sentence(loop, server):
    with pytest.raises(StartError) as refused:
        loop(NeptuneCallback(api_token=token_for(server(401)), project="team/digits")).train()
    assert "Unauthorized: You don't have permission to access the given resource); mend" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_what_is_no_token_is_refused_in_a_sentence(loop):
    with pytest.raises(StartError, match=r"NeptuneInvalidApiTokenException: The provided API token is invalid"):
        loop(NeptuneCallback(api_token="no token", project="team/digits")).train()


# ---- the fake -------------------------------------------------------------------------------------------------------

SIGNATURES = [
    *(
        "Run.__init__",
        "Run.exists",
        "Run.get_attribute",
        "Run.pop",
        "Run.wait",
        "Run.stop",
        "Run.get_state",
        "Run.get_url",
    ),
    *("Handler.assign", "Handler.extend", "Handler.upload", "Handler.fetch", "Handler.fetch_values", "Handler.clear"),
    "FileSet.__init__",
]


def parameters(modules: dict[str, str], name: str) -> list[tuple[str, Any, Any]]:
    """What a function takes by name, and where and with which default."""
    kind, _, method = name.partition(".")
    function = getattr(getattr(importlib.import_module(modules[kind]), kind), method)
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in found if each.kind != each.VAR_KEYWORD]


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_fake_has_the_signatures_of_the_real_one(name):
    real = parameters({"Run": "neptune", "Handler": "neptune.handler", "FileSet": "neptune.types"}, name)
    with fake_sdk():
        assert parameters({"Run": "neptune", "Handler": "neptune", "FileSet": "neptune.types"}, name) == real


def test_all_that_init_run_takes_can_be_given():
    import neptune

    ours = {"with_id", "name", "mode", "api_token", "project", "custom_run_id", "monitoring_namespace"}
    assert {*reporter.INIT_RUN, *ours, "kwargs"} == set(inspect.signature(neptune.init_run).parameters)


REFUSALS: dict[str, Callable[[Any], Any]] = {
    "a value for a series": lambda run: run["series"].assign(1.0),
    "a series for a value": lambda run: run["float"].extend([1.0], steps=[1], timestamps=[1.0]),
    "a field below a series": lambda run: run["series/below"].extend([1.0], steps=[1], timestamps=[1.0]),
    "a field below a value": lambda run: run["float/below"].assign(1.0),
    "a value for a namespace": lambda run: run["space"].assign(1.0),
    "a series for a namespace": lambda run: run["space"].extend([1.0], steps=[1], timestamps=[1.0]),
    "a text in a series of floats": lambda run: run["series"].extend(["x"], steps=[1], timestamps=[1.0]),
    "a float in a series of texts": lambda run: run["texts"].extend([1.0], steps=[1], timestamps=[1.0]),
    "a text for a float": lambda run: run["float"].assign("x"),
    "a text for an int": lambda run: run["int"].assign("x"),
    "a float for an int": lambda run: run["int"].assign(0.5),
    "a text for a bool": lambda run: run["bool"].assign("x"),
    "a float for a text": lambda run: run["text"].assign(0.5),
    "a step that is a text": lambda run: run["new"].extend([1.0], steps=["3"], timestamps=[1.0]),
    "too few steps": lambda run: run["new"].extend([1.0, 2.0], steps=[3], timestamps=[1.0, 2.0]),
    "a field without a name": lambda run: run[""].assign(1.0),
    "whether a field is below a value": lambda run: run.exists("float/below"),
    "whether a field is there": lambda run: run.exists("text"),
    "whether a namespace is there": lambda run: run.exists("space"),
    "whether nothing is there": lambda run: run.exists("nothing"),
    "popping a value": lambda run: run.pop("text"),
    "popping nothing": lambda run: run.pop("nothing"),
    "fetching offline": lambda run: run["float"].fetch(),
    "fetching a series offline": lambda run: run["series"].fetch_values(),
    "an upload of no file": lambda run: run["file"].upload("/no/such/file"),
    "an argument that nobody knows": lambda run: type(run)(mode="offline", no_such_argument=1),
    "a mode that nobody knows": lambda run: type(run)(mode="no such mode"),
    "a name that is a number": lambda run: type(run)(mode="offline", name=1),
    "two ids": lambda run: type(run)(with_id="DIG-1", custom_run_id="mine", mode="offline"),
    "an assignment after the end": lambda run: (run.stop(), run["float"].assign(1.0)),
    "a wait after the end": lambda run: (run.stop(), run.wait()),
    "a second end": lambda run: (run.stop(), run.stop()),
}


def outcome(attempt: Callable[[Any], Any]) -> Any:
    """What comes of an attempt on a run that has a field of each kind."""
    import neptune

    run = neptune.init_run(**QUIET)
    run["series"].extend([1.0], steps=[1], timestamps=[1.0])
    run["texts"].extend(["x"], steps=[1], timestamps=[1.0])
    for path, value in {"float": 0.5, "int": 3, "bool": True, "text": "x", "space/inner": 1.0}.items():
        run[path].assign(value)
    try:
        return attempt(run)
    except Exception as error:
        return type(error).__name__
    finally:
        run.stop()


@pytest.mark.parametrize("what", REFUSALS)
def test_the_fake_refuses_what_the_real_one_refuses(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    real = outcome(REFUSALS[what])
    with fake_sdk():
        assert outcome(REFUSALS[what]) == real
