"""The contract of a reporter, and what is special in Kubeflow, against a controller on loopback with TLS."""

from __future__ import annotations

import math
import os
import re
import socket
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import trustme

from trackside import StartError, TrainerState, registry, resolve
from trackside.registry import NotConfiguredError
from trackside_kubeflow import KubeflowCallback, updates
from trackside_kubeflow import controller as controller_module
from trackside_kubeflow.address import Address
from trackside_kubeflow.progress import Progress
from trackside_testkit import Reported, ReporterContract
from trackside_testkit.integration import declared_options, documented_options, maker_of

README = Path(__file__).parents[1] / "README.md"
PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team-a/trainjobs/digits/status"
POSITION = ("current_step", "total_steps", "current_epoch")
ONE_STATUS = "a TrainJob has one status, whichever run reports it"


def metrics_of(status):
    return {metric["name"]: metric["value"] for metric in status["metrics"]}


def logged(status):
    return {name: float(value) for name, value in metrics_of(status).items() if name not in POSITION}


class Watched(KubeflowCallback):
    """Lets no value be replaced by the next one before the controller has seen it."""

    def on_train_begin(self, *args, **kwargs):
        count = len(self.controller.statuses)
        super().on_train_begin(*args, **kwargs)
        if self.run is not None:
            self.controller.wait_for(count + 1)

    def log_points(self, points):
        super().log_points(points)
        count = len(self.controller.statuses)
        self.run.ask()
        self.controller.wait_for(count + 1)


class TestKubeflow(ReporterContract):
    reporter_class = KubeflowCallback
    nearest_status = {"finished": "complete", "failed": "left", "killed": "left", "pruned": "left"}  # noqa: RUF012
    left_out = {  # noqa: RUF012 - as the contract has it
        "test_a_run_arrives_complete_and_in_order": "a status does not say that a value is the same once more",
        "test_two_runs_of_one_name_and_folder_do_not_mix": ONE_STATUS,
        "test_a_new_run_is_started_where_the_user_does_not_want_to_resume": ONE_STATUS,
        "test_a_resumed_training_goes_on_in_its_run_also_after_an_evaluation": ONE_STATUS,
    }

    @pytest.fixture(autouse=True)
    def _controller(self, folder, controller, monkeypatch):
        self.controller = controller
        monkeypatch.setattr(Watched, "controller", controller, raising=False)

    def make_reporter(self, **options):
        ca_cert, token_file = str(self.controller.ca_cert), str(self.controller.token_file)
        return Watched(server_url=self.controller.url, ca_cert=ca_cert, token_file=token_file, **options)

    def read(self):
        runs = []
        for status in self.controller.statuses:
            if not runs or (not status.get("progressPercentage") and not logged(status)):
                runs.append([])
            runs[-1].append(status)
        return [Reported(points=self.changes(run), status=self.how(run[-1])) for run in runs]

    def changes(self, statuses):
        """What is new in a status: since the one before it, the values of that metric have changed."""
        rows, before = [], {}
        for status in statuses:
            values, step = logged(status), int(metrics_of(status).get("current_step", 0))
            rows += [(name, step, value) for name, value in values.items() if str(before.get(name)) != str(value)]
            before = values
        return Reported.by_key(rows)

    def how(self, status):
        if status.get("progressPercentage") == 100:
            return "complete"
        return "running" if "estimatedRemainingSeconds" in status else "left"


def test_the_table_of_options_in_the_readme_is_that_of_the_class():
    assert documented_options(README) == declared_options(KubeflowCallback)


# ---- what tests look at ---------------------------------------------------------------------------------------------


@pytest.fixture
def job(controller, monkeypatch):
    """The controller of a TrainJob that runs here, as its variables say."""
    for variable, value in controller.variables.items():
        monkeypatch.setenv(variable, value)
    return controller


new = maker_of(KubeflowCallback)


@pytest.fixture
def often(monkeypatch):
    """Let updates be sent as often as there is something new."""
    monkeypatch.setattr(updates, "SECONDS_BETWEEN", 0.01)


@pytest.fixture
def installed(monkeypatch):
    """The integration as the only one that is installed."""
    point = EntryPoint("kubeflow", "trackside_kubeflow:KubeflowCallback", registry.GROUP)
    monkeypatch.setattr(registry, "installed", lambda: {"kubeflow": point})


def warnings_in(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


# ---- the status -----------------------------------------------------------------------------------------------------


def test_a_training_is_reported_when_it_begins_and_when_it_ends(loop, new, job):
    loop(new()).train()
    first, last = job.statuses
    assert first["progressPercentage"] == 0
    assert metrics_of(first) == {"current_step": "0", "total_steps": "4", "current_epoch": "0"}
    assert (last["progressPercentage"], last["estimatedRemainingSeconds"]) == (100, 0)
    assert metrics_of(last) == {
        "current_step": "4",
        "total_steps": "4",
        "current_epoch": "1.0",
        "loss": "0.2",
        "epoch": "1.0",
        "grad_norm": "0.4",
        "learning_rate": "0.1",
        "eval_loss": "0.2",
        "eval_accuracy": "0.75",
        "eval_runtime": "0.5",
        "train_runtime": "1.5",
        "train_samples_per_second": "64.0",
        "train_loss": "0.25",
        "total_flos": "1000000000.0",
    }


def test_names_are_grouped_on_request(loop, new, job):
    loop(new(key_style="grouped")).train()
    assert {"train/loss", "eval/loss"} <= set(metrics_of(job.statuses[-1]))


def test_time_left_is_told_by_the_pace_since_the_beginning_also_after_a_resume(monkeypatch):
    clock = iter([100.0, 110.0, 130.0])
    monkeypatch.setattr("trackside_kubeflow.progress.time.monotonic", lambda: next(clock))
    progress, state = Progress("a run"), TrainerState(global_step=4, max_steps=16)
    progress.begin(state)
    assert "estimatedRemainingSeconds" not in progress.status()
    state.global_step = 6
    assert progress.status()["estimatedRemainingSeconds"] == 50
    state.global_step = 16
    assert progress.status()["estimatedRemainingSeconds"] == 0


def test_nothing_but_the_end_is_the_end():
    progress, state = Progress("a run"), TrainerState(global_step=0, max_steps=1000)
    progress.begin(state)
    told = []
    for state.global_step in (0, 9, 10, 999, 1000, 1001):
        told.append(progress.status()["progressPercentage"])
    assert told == [0, 0, 1, 99, 99, 99]


@pytest.mark.parametrize("max_steps", [0, -1, None])
def test_a_training_of_unknown_length_tells_no_progress_until_it_is_done(max_steps):
    progress = Progress("a run")
    progress.begin(TrainerState(global_step=7, max_steps=max_steps, epoch=None))
    status = progress.status()
    assert set(status) == {"lastUpdatedTime", "metrics"}
    assert metrics_of(status) == {"current_step": "7"}
    progress.ending = "finished"
    assert progress.status()["progressPercentage"] == 100


def test_a_training_that_would_take_a_century_fits_into_the_field(monkeypatch):
    clock = iter([0.0, 1e6])
    monkeypatch.setattr("trackside_kubeflow.progress.time.monotonic", lambda: next(clock))
    progress, state = Progress("a run"), TrainerState(max_steps=10**6)
    progress.begin(state)
    state.global_step = 1
    assert progress.status()["estimatedRemainingSeconds"] == 2**31 - 1


def test_a_training_that_fails_stays_where_it_was(loop, new, job):
    with pytest.raises(RuntimeError):
        loop(new()).train(fail_at=3)
    last = job.statuses[-1]
    assert last["progressPercentage"] == 50
    assert "estimatedRemainingSeconds" not in last
    assert metrics_of(last)["loss"] == "0.3333333333333333"


def test_what_is_evaluated_after_a_training_comes_to_what_is_there(loop, new, job):
    training = loop(new(), eval_strategy="no")
    training.train()
    training.evaluate()
    before, after = job.statuses[-2:]
    assert after["progressPercentage"] == 100
    assert set(metrics_of(after)) - set(metrics_of(before)) == {"eval_loss", "eval_accuracy", "eval_runtime"}
    assert metrics_of(after)["loss"] == metrics_of(before)["loss"]


def test_an_evaluation_alone_is_no_progress(loop, new, job):
    reporter = new()
    loop(reporter).evaluate()
    reporter.close()
    (status,) = job.statuses
    assert "progressPercentage" not in status
    assert metrics_of(status) == {"eval_loss": "1.0", "eval_accuracy": "0.75", "eval_runtime": "0.5", "epoch": "0"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (True, "1"),
        (3, "3"),
        (1e-30, "1e-30"),
        (2**70, "1180591620717411303424"),
        (10**300, "1e+300"),
        (-(10**300), "-1e+300"),
        ([0.5], None),
        ("half-way", None),
        (None, None),
    ],
    ids=str,
)
def test_a_value_is_told_as_text(loop, new, job, value, text):
    training = loop(new())
    training.begin()
    training.log({"before": 1.5, "odd": value, "after": 2.5})
    training.fire("on_train_end")
    metrics = metrics_of(job.statuses[-1])
    assert (metrics["before"], metrics.get("odd"), metrics["after"]) == ("1.5", text, "2.5")


def test_names_are_kept_as_far_as_the_controller_takes_them(loop, new, job):
    names = ["größe", "損失", "a b/c", "two\nlines", "\ud800", "x" * 65, "x" * 64 + "y"]
    training = loop(new())
    training.begin()
    training.log(dict.fromkeys(names, 1.0))
    training.fire("on_train_end")
    told = [name for name in metrics_of(job.statuses[-1]) if name not in (*POSITION, "epoch")]
    assert told[:5] == ["größe", "損失", "a b/c", "two_lines", "_"]
    assert [re.fullmatch("x{55}_[0-9a-f]{8}", name) is not None for name in told[5:]] == [True, True]
    assert len(set(told)) == 7


@pytest.mark.parametrize(("letter", "kept"), [("m", 253), ("🚂", 179), ('"', 253)])
def test_what_a_status_has_no_room_for_is_left_out_with_one_warning(loop, new, job, caplog, letter, kept):
    names = [f"{number:03}{letter * 61}" for number in range(400)]
    training = loop(new())
    training.begin()
    for value in (0.5, 0.25):
        for name in names:
            training.handler.on_log(training.args, training.state, training.control, logs={name: value})
    training.fire("on_train_end")
    told = logged(job.statuses[-1])
    assert told == dict.fromkeys(names[:kept], 0.25)
    (warning,) = warnings_in(caplog)
    assert warning == f"kubeflow: a status has no room for {names[kept]} and what is new after it."


# ---- pace -----------------------------------------------------------------------------------------------------------


def test_no_more_than_the_beginning_and_the_end_of_a_fast_training_is_told(loop, new, job):
    assert updates.SECONDS_BETWEEN == 5
    loop(new(), num_train_epochs=100, eval_strategy="no").train()
    assert [status["progressPercentage"] for status in job.statuses] == [0, 100]


def test_what_is_new_is_told_after_a_pause(loop, new, job, monkeypatch):
    monkeypatch.setattr(updates, "SECONDS_BETWEEN", 0.2)
    training = loop(new())
    training.state.max_steps = 10_000
    training.begin()
    until = time.monotonic() + 1.1
    while time.monotonic() < until:
        training.state.global_step += 1
        training.log({"loss": float(training.state.global_step)})
        time.sleep(0.001)
    training.fire("on_train_end")
    _, *between, last = job.statuses
    assert 2 <= len(between) <= 5
    pauses = [later - earlier for earlier, later in zip(job.arrivals, job.arrivals[1:-1], strict=False)]
    assert min(pauses) > 0.19
    losses = [logged(status)["loss"] for status in [*between, last]]
    assert losses == sorted(set(losses))
    assert all("estimatedRemainingSeconds" in status for status in between)


def test_a_step_is_told_of_although_nothing_was_logged(loop, new, job, often):
    training = loop(new())
    training.state.max_steps = 10
    training.begin()
    job.wait_for(1)
    training.state.global_step = 5
    assert job.wait_for(2)[1]["progressPercentage"] == 50


def test_a_training_that_hangs_is_not_made_to_look_alive(loop, new, job, often):
    training = loop(new())
    training.state.max_steps = 10
    training.begin()
    training.state.global_step = 1
    job.wait_for(2)
    time.sleep(0.2)
    assert len(job.statuses) == 2


# ---- trouble --------------------------------------------------------------------------------------------------------


def test_a_controller_that_never_answers_costs_the_loop_nothing(loop, new, job, caplog, monkeypatch):
    monkeypatch.setattr(updates, "END_SECONDS", 0.3)
    job.answers = [None] * 10
    training = loop(new(), num_train_epochs=20, eval_strategy="no")
    began = time.monotonic()
    training.train()
    assert time.monotonic() - began < 2
    assert training.state.global_step == 80
    warning = warnings_in(caplog)[0]
    assert warning == "kubeflow: finish failed (TimeoutError: no answer within 0.3 seconds)."


def test_a_controller_that_is_away_for_a_while_is_one_warning(loop, new, job, often, caplog):
    job.answers = [503, 503]
    training = loop(new())
    training.state.max_steps = 4
    training.begin()
    training.state.global_step = 1
    job.wait_for(1)
    training.fire("on_train_end")
    assert job.statuses[-1]["progressPercentage"] == 100
    (warning,) = warnings_in(caplog)
    assert warning.startswith(
        "kubeflow: the status of the TrainJob could not be updated (RefusedError: 503 as the test"
    )


def test_a_controller_that_goes_on_refusing_is_asked_less_and_less_often(loop, new, job, often):
    job.answers = [403] * 100
    training = loop(new())
    training.begin()
    until = time.monotonic() + 0.7
    while time.monotonic() < until:
        training.state.global_step += 1
        time.sleep(0.005)
    assert 3 <= job.requests <= 7


def test_an_end_that_nobody_waits_for_any_more_is_not_told(loop, new, job, monkeypatch):
    monkeypatch.setattr(updates, "END_SECONDS", 0.3)
    monkeypatch.setattr(controller_module, "ANSWER_SECONDS", 0.5)
    job.answers = [None]
    reporter = new()
    training = loop(reporter)
    training.begin()
    thread = reporter.run
    training.fire("on_train_end")
    thread.join(20)
    assert job.statuses == []


def test_the_end_is_told_again_where_the_controller_was_away_just_then(loop, new, job, caplog):
    training = loop(new())
    training.begin()
    job.wait_for(1)
    job.answers = [503]
    training.fire("on_train_end")
    assert [status.get("progressPercentage") for status in job.statuses] == [None, 100]
    assert warnings_in(caplog) == []


def test_the_end_is_not_told_again_where_the_controller_has_refused_it(loop, new, job, caplog):
    training = loop(new())
    training.begin()
    job.wait_for(1)
    job.token = "another"
    training.fire("on_train_end")
    assert job.refusals == ["Forbidden"]
    job.refusals.clear()
    assert warnings_in(caplog)[0] == "kubeflow: finish failed (RefusedError: 403 Forbidden)."


def test_a_controller_that_is_not_there_ends_nothing(loop, new, job, caplog, monkeypatch):
    monkeypatch.setattr(updates, "END_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", f"https://127.0.0.1:{port}/status")
    training = loop(new())
    training.train()
    assert training.state.global_step == 4
    assert "ConnectionRefusedError" in warnings_in(caplog)[0]


# ---- trust ----------------------------------------------------------------------------------------------------------


def test_a_server_that_somebody_else_vouches_for_gets_no_token(loop, new, job, caplog):
    trustme.CA().cert_pem.write_to_path(str(job.ca_cert))
    loop(new()).train()
    assert job.requests == 0
    assert "127.0.0.1 is not trusted: unable to get local issuer certificate" in warnings_in(caplog)[0]


def test_a_server_of_another_name_gets_no_token(loop, new, job, caplog, monkeypatch):
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", job.url.replace("127.0.0.1", "localhost"))
    loop(new()).train()
    assert job.requests == 0
    assert "localhost is not trusted: Hostname mismatch" in warnings_in(caplog)[0]


def test_an_authority_that_the_system_trusts_is_enough_where_no_other_is_named(loop, new, job, monkeypatch):
    monkeypatch.delenv("KUBEFLOW_TRAINER_SERVER_CA_CERT")
    monkeypatch.setenv("SSL_CERT_FILE", str(job.ca_cert))
    loop(new()).train()
    assert len(job.statuses) == 2


def test_token_and_authority_may_be_renewed_in_mid_run(loop, new, job, tmp_path_factory, monkeypatch):
    training = loop(new())
    training.begin()
    job.wait_for(1)
    job.token = "renewed"
    job.token_file.write_text("renewed")
    both = [trustme.CA().cert_pem.bytes(), job.ca_cert.read_bytes()]
    job.ca_cert.write_bytes(b"".join(both))
    training.fire("on_train_end")
    assert len(job.statuses) == 2


@pytest.mark.parametrize("content", ["", "two words", "two\nlines", "schlüssel"])
def test_a_file_without_a_token_is_said_without_what_is_in_it(loop, new, job, caplog, content):
    job.token_file.write_text(content, "utf-8")
    loop(new()).train()
    assert job.requests == 0
    assert "RefusedError: token_file holds no token" in caplog.text
    assert not content or content not in caplog.text


def test_no_redirection_is_followed(loop, new, job, caplog):
    job.answers = [302, 302]
    loop(new()).train()
    assert job.requests == 2
    assert "RefusedError: 302" in warnings_in(caplog)[0]


def test_proxies_are_left_alone(loop, new, job, monkeypatch):
    for variable in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    loop(new()).train()
    assert len(job.statuses) == 2


# ---- where it reports -----------------------------------------------------------------------------------------------


def test_a_training_in_a_job_is_reported_without_anybody_asking_for_it(loop, job, installed):
    (reporter,) = resolve("all")
    loop(reporter).train()
    assert len(job.statuses) == 2


@pytest.mark.parametrize("report_to", ["none", ["none"], [], None])
def test_none_is_none_also_in_a_job(job, installed, report_to):
    assert resolve(report_to) == []


MISSING = {
    "a switch": ({"DISABLE_KUBEFLOW_INTEGRATION": "TRUE"}, "DISABLE_KUBEFLOW_INTEGRATION switches it off"),
    "no url": ({"KUBEFLOW_TRAINER_SERVER_URL": None}, "KUBEFLOW_TRAINER_SERVER_URL is not set"),
    "an empty url": ({"KUBEFLOW_TRAINER_SERVER_URL": ""}, "KUBEFLOW_TRAINER_SERVER_URL is not set"),
    "no TLS": ({"KUBEFLOW_TRAINER_SERVER_URL": "http://127.0.0.1/status"}, "it does not begin with https://"),
    "no url at all": ({"KUBEFLOW_TRAINER_SERVER_URL": "https://[127"}, "no address to send a token to"),
    "no token": ({"KUBEFLOW_TRAINER_SERVER_TOKEN": None}, "KUBEFLOW_TRAINER_SERVER_TOKEN names no file"),
    "a token that is gone": ({"KUBEFLOW_TRAINER_SERVER_TOKEN": "gone"}, "KUBEFLOW_TRAINER_SERVER_TOKEN names no file"),
    "a CA that is gone": ({"KUBEFLOW_TRAINER_SERVER_CA_CERT": "gone"}, "KUBEFLOW_TRAINER_SERVER_CA_CERT names no file"),
}


@pytest.fixture(params=MISSING)
def reason(request, job, monkeypatch):
    """Why it is not configured, where one variable is not as the controller has set it."""
    variables, reason = MISSING[request.param]
    for variable, value in variables.items():
        monkeypatch.delenv(variable, raising=False)
        if value is not None:
            monkeypatch.setenv(variable, value)
    return reason


def test_where_no_job_runs_it_is_left_out_of_all_and_that_is_said(installed, reason, caplog):
    assert resolve("all") == []
    (warning,) = warnings_in(caplog)
    assert warning.startswith("kubeflow is installed but left out: ")
    assert reason in warning


def test_who_asks_for_it_where_no_job_runs_hears_what_is_missing(installed, reason):
    with pytest.raises(NotConfiguredError, match=re.escape(reason)):
        resolve("kubeflow")


def test_a_reporter_of_ones_own_refuses_to_start_where_no_job_runs(loop, new, reason):
    with pytest.raises(StartError, match=re.escape(reason)):
        loop(new()).train()


def test_a_file_without_certificates_stops_the_program_at_its_start(loop, new, job):
    job.ca_cert.write_text("no certificate")
    with pytest.raises(StartError, match=r"ca_cert .* holds no certificate"):
        loop(new()).train()


@pytest.mark.parametrize(
    ("url", "address", "job"),
    [
        (f"https://trainer.kubeflow:8082{PATH}", ("trainer.kubeflow", 8082, PATH), ("team-a", "digits")),
        ("https://[::1]/status?of=a", ("::1", None, "/status?of=a"), None),
        ("https://trainer.kubeflow", ("trainer.kubeflow", None, "/"), None),
    ],
)
def test_an_address_says_whose_status_it_is(url, address, job):
    assert Address.of(url) == address
    assert Address.of(url).job == job


def test_the_run_is_the_job_and_kubectl_shows_it(loop, new, job, capsys):
    reporter = new()
    loop(reporter).train()
    assert reporter.tracker_id == "team-a/digits"
    assert "kubectl describe trainjob digits --namespace team-a" in capsys.readouterr().err


def test_who_runs_elsewhere_does_not_pay_for_tls():
    code = "import sys, trackside_kubeflow; sys.exit('ssl' in sys.modules or 'http.client' in sys.modules)"
    path = os.pathsep.join(filter(None, sys.path))
    assert (
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, timeout=60).returncode == 0
    )
