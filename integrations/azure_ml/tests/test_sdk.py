"""The real SDK, in a job of a service on loopback."""

from __future__ import annotations

import base64
import importlib
import inspect
import itertools
import json
import math
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from azure_service import Service
from conftest import fake_sdk
from reading import reported

from trackside_azure_ml import AzureMLCallback
from trackside_azure_ml.runs import end
from trackside_testkit import Reported, ReporterContract

pytestmark = [pytest.mark.sdk, pytest.mark.filterwarnings("default")]


NUMBERS = itertools.count()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: Service

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, content = self.service.answer(self.command, self.path, body)
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = answer

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")  # up for as long as a test closes what it has left open
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def remote_service(server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> Service:
    """The service behind the server, and this process as the job in it. Files go to a store that has only https."""
    address = f"http://127.0.0.1:{server.server_port}"
    service = Handler.service = Service(address)
    for name, value in environment_of_job(address).items():
        monkeypatch.setenv(name, value)

    def store(stream: Any, url: str, **options: Any) -> None:
        service.store(url, stream.read())

    client = importlib.import_module("azureml._restclient.artifacts_client")
    assert callable(client.upload_blob_from_stream)
    monkeypatch.setattr(client, "upload_blob_from_stream", store)
    return service


def environment_of_job(address: str) -> dict[str, str]:
    expiry = int(time.time()) + 100_000
    parts = [{"alg": "HS256", "typ": "JWT"}, {"exp": expiry}, {}]
    token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return {
        "AZUREML_ARM_SUBSCRIPTION": "subscription",
        "AZUREML_ARM_RESOURCEGROUP": "group",
        "AZUREML_ARM_WORKSPACE_NAME": f"workspace-{next(NUMBERS)}",  # since the SDK remembers runs
        "AZUREML_ARM_PROJECT_NAME": "experiment",
        "AZUREML_EXPERIMENT_ID": "e-1",
        "AZUREML_WORKSPACE_ID": "w-1",
        "AZUREML_RUN_ID": "job-1",
        "AZUREML_RUN_TOKEN": token,
        "AZUREML_RUN_TOKEN_EXPIRY": str(expiry),
        "AZUREML_SERVICE_ENDPOINT": address,
        "AZUREML_DISCOVERY_SERVICE_ENDPOINT": f"{address}/discovery",
    }


class TestChildRunsOfTheRealSDK(ReporterContract):
    reporter_class = AzureMLCallback
    nearest_status = {"pruned": "killed"}  # noqa: RUF012 - as the contract has it

    @pytest.fixture(autouse=True)
    def _service(self, folder: Path, service: Service) -> None:
        self.service = service

    def make_reporter(self, **options: Any) -> AzureMLCallback:
        return AzureMLCallback(child_runs=True, log_artifacts=True, **options)

    def read(self) -> list[Reported]:
        return [reported(run) for run in self.service.children]


def test_each_value_arrives_as_it_was_logged(loop, service, monkeypatch, capfd, caplog):
    reporter = AzureMLCallback(log_artifacts=True)
    training = loop(reporter, run_name="blue", lr_scheduler_kwargs={"long": "x" * 300, "none": None})
    training.fire("on_train_begin")
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5678)
    training.log_at(3, loss=0.1, huge=1e300, count=2**70, small=5e-324, broken=math.nan, note="half-way", **{"r@10": 1})
    training.log_at(4, grad_norm=math.inf, loss=-0.0, **{"größe/a b": True})
    training.save()
    training.fire("on_train_end")
    job = service.job
    assert job.numbers == [
        ("loss", 3, 0.1),
        ("huge", 3, 1e300),
        ("count", 3, float(2**70)),
        ("small", 3, 5e-324),
        ("r@10", 3, 1.0),
        ("epoch", 3, 0.0),
        ("loss", 4, -0.0),
        ("größe/a b", 4, 1.0),
        ("epoch", 4, 0.0),
    ]
    times = {metric["createdUtc"] for metric in job.metrics.values() if metric["name"] == "loss"}
    assert times == {"1970-01-01T00:20:34.5678Z"}
    assert job.table("trackside/not_finite") == [
        {"step": 3, "name": "broken", "value": "nan"},
        {"step": 4, "name": "grad_norm", "value": "inf"},
    ]
    assert job.table("trackside/texts") == [{"step": 3, "name": "note", "text": "half-way"}]
    params = {row["name"]: row["value"] for row in job.table("trackside/params")}
    assert (params["run_name"], params["lr_scheduler_kwargs/none"]) == ("blue", "None")
    assert len(params["lr_scheduler_kwargs/long"]) == 255
    assert job.files["params/lr_scheduler_kwargs/long.txt"] == b"x" * 300
    assert b"global_step" in job.files["checkpoint-4/trainer_state.json"]
    assert job.status == "Running"
    workspace = (
        f"/subscriptions/subscription/resourcegroups/group/workspaces/{os.environ['AZUREML_ARM_WORKSPACE_NAME']}"
    )
    assert reporter.where() == f"{service.address}/runs/job-1?wsid={workspace}"
    assert capfd.readouterr().out == ""
    assert not [record for record in caplog.records if not record.name.startswith("trackside")]


def test_nothing_of_the_sdk_runs_on_for_a_child_run_that_is_closed(loop, service):
    before = set(threading.enumerate())
    reporter = AzureMLCallback(child_runs=True)
    training = loop(reporter)
    training.fire("on_train_begin")
    reporter.run.log("mine", 1.5, step=2)
    training.fire("on_train_end")
    reporter.close()
    assert ("mine", 2, 1.5) in service.children[0].numbers
    time.sleep(1.2)
    assert not [thread for thread in set(threading.enumerate()) - before if isinstance(thread, threading.Timer)]


def test_what_a_user_logs_himself_lands_in_the_same_run(loop, service):
    from azureml.core.run import Run

    reporter = AzureMLCallback()
    loop(reporter).train()
    assert Run.get_context() is reporter.run
    reporter.run.log("mine", 1.5, step=2)
    reporter.run.flush(timeout_seconds=10)
    end(reporter.run, "finished")  # which ends threads of the SDK
    assert ("mine", 2, 1.5) in service.job.numbers


def test_files_whose_names_are_taken_are_kept_beside_the_others(loop, service):
    for seed in (1, 2):
        loop(AzureMLCallback(log_artifacts=True), seed=seed).train()
    folders = {path.partition("/")[0] for path in service.job.files}
    assert "checkpoint-4" in folders
    assert len(folders) == 2
    assert b"" not in service.job.files.values()


def test_a_metric_that_the_service_refuses_is_named_with_the_reason(loop, service, caplog):
    training = loop(AzureMLCallback())
    training.fire("on_train_begin")
    training.log_at(1, **{f"class_{number}": 0.5 for number in range(60)})
    training.fire("on_train_end")
    assert any("azure_ml does not take class_59: a run has no more than 50" in message for message in caplog.messages)
    assert ("class_1", 1, 0.5) in service.job.numbers


@pytest.mark.parametrize(("resume", "sentence"), [("gone", "Run gone not found"), ("job-1", None)])
def test_a_run_that_is_not_there_is_refused_in_one_sentence(loop, service, resume, sentence):
    from trackside import StartError

    training = loop(AzureMLCallback(resume=resume))
    if sentence is None:
        training.train()
        assert len(service.job.numbers) > 4
        return
    with pytest.raises(StartError, match=sentence) as refused:
        training.train()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("status", "is_passing"), [(503, True), (403, False)])
def test_an_answer_that_is_an_error_says_whether_it_passes(loop, service, monkeypatch, status, is_passing):
    monkeypatch.setattr("azureml._restclient.clientbase.time.sleep", lambda seconds: None)
    reporter = AzureMLCallback()
    loop(reporter).fire("on_train_begin")
    service.trouble = {"": status}
    with pytest.raises(Exception) as failed:  # noqa: PT011 - of which class it is, is up to the SDK
        reporter.log_text("note", "half-way", 1, 0.0)
    assert reporter.is_passing(failed.value) == is_passing
    reporter.close()


def test_a_service_that_is_not_there_ends_nothing(loop, remote_service, server, caplog, monkeypatch):
    monkeypatch.setenv("AZUREML_DISCOVERY_SERVICE_ENDPOINT", "http://127.0.0.1:1/discovery")
    training = loop(AzureMLCallback())
    training.train()
    assert training.state.global_step == 4
    assert sum("azure_ml cannot be reached" in message for message in caplog.messages) == 1


def test_a_service_that_does_not_answer_is_given_up(loop, remote_service, caplog, monkeypatch):
    is_over = threading.Event()
    monkeypatch.setattr(Service, "answer", lambda *arguments: (is_over.wait(), (500, {}))[1])
    monkeypatch.setattr("trackside_azure_ml.reporter.START_SECONDS", 1)
    began = time.monotonic()
    loop(AzureMLCallback()).train()
    is_over.set()
    assert time.monotonic() - began < 10
    assert sum("no answer within 1 seconds" in message for message in caplog.messages) == 1


def test_where_no_job_runs_the_sdk_prints_what_it_is_told(loop, capfd, caplog):
    loop(AzureMLCallback(log_artifacts=True), run_name="x" * 300).train()
    printed = capfd.readouterr().out
    assert "Attempted to log scalar metric loss:\n0.5" in printed
    assert "Attempted to log table metric trackside/params" in printed
    assert not [message for message in caplog.messages if "failed" in message]


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [("raise ValueError", "Failed", 1), ("sys.exit(3)", "Failed", 3), ("loop.fire('on_train_end')", "Completed", 0)],
)
def test_a_program_that_ends_in_mid_run_leaves_a_child_run_that_says_so(service, tmp_path, end, status, code):
    script = f"""
        import sys
        from trackside_azure_ml import AzureMLCallback
        from trackside_testkit import FakeLoop
        loop = FakeLoop([AzureMLCallback(child_runs=True)], output_dir="out")
        loop.fire("on_train_begin")
        loop.log({{"loss": 0.5}})
        {end}
        """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    (child,) = service.children
    assert (child.status, child.numbers[0]) == (status, ("loss", 0, 0.5))


# ---- the fake -------------------------------------------------------------------------------------------------------


def test_the_fake_takes_what_the_real_one_takes(service):
    from azureml.core.run import Run

    real = signatures(Run.get_context())
    with fake_sdk(Service()):
        from azureml.core.run import Run

        fake = signatures(Run.get_context())
    assert fake == real


def signatures(job: Any) -> dict[str, list[tuple[str, Any]]]:
    """Names and defaults of the arguments of all that the reporter calls."""
    run, models = map(importlib.import_module, ("azureml.core.run", "azureml._restclient.models"))
    methods = ["__init__", "get_context", "child_run", "get_status", "get_portal_url", "tag", "flush"]
    methods += ["upload_file", "upload_files"]
    found = {f"Run.{name}": getattr(run.Run, name) for name in methods}
    found |= {f"_OfflineRun.{name}": getattr(run._OfflineRun, name) for name in ("log", "log_table", *methods[-2:])}
    found |= {name: getattr(job._client, name) for name in ("set_completed_status", "set_failed_status")}
    found |= {"post_event_canceled": job._client.run.post_event_canceled}
    parts = ("MetricProperties", "MetricV2Value", "MetricV2Dto", "BatchMetricV2Dto")
    found |= {name: getattr(models, name) for name in parts}
    return {name: arguments_of(function) for name, function in found.items()}


def arguments_of(function: Any) -> list[tuple[str, Any]]:
    parameters = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.default) for parameter in parameters]
