"""The contract of a reporter, and what is special in Azure ML, against a fake SDK and a service with limits."""

from __future__ import annotations

import math
import re
import threading
from pathlib import Path

import pytest
from azure_service import Service, StoredRun
from reading import reported

from trackside import StartError
from trackside.records import Artifact
from trackside_azure_ml import AzureMLCallback
from trackside_azure_ml.service import ServiceError, ask
from trackside_testkit import ReporterContract
from trackside_testkit.integration import declared_options, documented_options

README = Path(__file__).parents[1] / "README.md"


class TestChildRuns(ReporterContract):
    reporter_class = AzureMLCallback
    nearest_status = {"pruned": "killed"}  # noqa: RUF012 - as the contract has it

    @pytest.fixture(autouse=True)
    def _service(self, folder, service: Service) -> None:
        self.service = service

    def make_reporter(self, **options):
        return AzureMLCallback(child_runs=True, log_artifacts=True, **options)

    def read(self):
        return [reported(run) for run in self.service.children]


def test_the_table_of_options_in_the_readme_is_that_of_the_class():
    assert documented_options(README) == declared_options(AzureMLCallback)


# ---- what tests look at ---------------------------------------------------------------------------------------------


@pytest.fixture
def new(service):
    """A function that makes a reporter, which is closed after the test."""
    made = []

    def make(*arguments, **options):
        made.append(AzureMLCallback(*arguments, **options))
        return made[-1]

    yield make
    for reporter in made:
        reporter.close()


def points(run, name):
    return [(step, value) for key, step, value in run.numbers if key == name]


# ---- the run of the job ---------------------------------------------------------------------------------------------


def test_the_run_of_the_job_is_logged_to_and_never_closed(loop, new, service):
    reporter = new()
    training = loop(reporter)
    training.train()
    training.evaluate()
    with pytest.raises(RuntimeError):
        loop(new()).train(fail_at=2)
    assert reporter.tracker_id == "job-1"
    assert len(points(service.job, "loss")) == 5
    assert points(service.job, "eval_loss") == [(4, 0.2), (4, 0.2)]
    assert (service.job.status, service.job.tags, service.children) == ("Running", {}, [])


def test_a_run_that_is_given_is_reported_to_wherever_it_comes_from(loop, new, service, monkeypatch):
    from azureml.core.run import Run

    monkeypatch.delenv("AZUREML_RUN_ID")
    reporter = new(Run("experiment", "job-1"))
    assert reporter.azureml_run.id == "job-1"
    loop(reporter).train()
    assert len(points(service.job, "loss")) == 4
    assert service.job.status == "Running"


def test_a_run_that_is_asked_for_by_its_id_is_reported_to_and_never_closed(loop, new, service):
    service.runs["mine"] = StoredRun("mine", status="Completed")
    loop(new(resume="mine", child_runs=True)).train()
    assert len(points(service.runs["mine"], "loss")) == 4
    assert service.job.metrics == {}


def test_a_run_that_is_asked_for_and_not_there_is_refused_in_one_sentence(loop, new):
    with pytest.raises(StartError, match="Run mine not found") as refused:
        loop(new(resume="mine")).begin()
    assert "\n" not in str(refused.value)


def test_it_says_what_shows_the_run(loop, new):
    reporter = new()
    assert reporter.where() is None
    loop(reporter).begin()
    assert reporter.where() == "https://ml.example.org/runs/job-1"


def test_a_training_that_goes_on_in_another_job_names_the_run_before(loop, new, service, monkeypatch, tmp_path):
    loop(new()).train()
    service.runs["job-2"] = StoredRun("job-2")
    monkeypatch.setenv("AZUREML_RUN_ID", "job-2")
    reporter = new()
    loop(reporter, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert reporter.tracker_id == "job-2"
    assert [step for step, _ in points(service.runs["job-2"], "loss")] == [5, 6, 7, 8]
    assert service.runs["job-2"].tags == {"trackside.continues": "job-1"}


def test_a_job_that_is_started_again_goes_on_in_its_run(loop, new, service, tmp_path):
    loop(new()).train()
    loop(new(), num_train_epochs=2, seed=7).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert [step for step, _ in points(service.job, "loss")] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert service.job.tags == {}
    seeds = [row for row in service.job.table("trackside/params") if row["name"] == "seed"]
    assert seeds == [{"step": 0, "name": "seed", "value": "42"}, {"step": 4, "name": "seed", "value": "7"}]


# ---- child runs -----------------------------------------------------------------------------------------------------


def test_a_trial_of_a_search_is_a_run_below_that_of_the_job(loop, new, service):
    training = loop(new(), run_name="search")
    training.state.is_hyper_param_search, training.state.trial_name = True, "trial-0"
    training.begin()
    training.fire("on_exception", exception=type("TrialPruned", (Exception,), {})())
    (child,) = service.children
    assert child.name == "train>search-trial-0"
    assert (child.status, child.tags) == ("Canceled", {"trackside.status": "pruned"})


@pytest.mark.parametrize("is_open", [True, False])
def test_a_child_run_is_continued_only_if_it_is_still_open(loop, new, service, tmp_path, is_open):
    first = new(child_runs=True)
    loop(first).train()
    first.close()
    if is_open:
        service.runs[first.tracker_id].status = "Running"  # as one that was killed has left it
    second = new(child_runs=True)
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    second.close()
    assert len(service.children) == (1 if is_open else 2)
    steps = [step for step, _ in points(service.runs[second.tracker_id], "loss")]
    assert steps == ([1, 2, 3, 4, 5, 6, 7, 8] if is_open else [5, 6, 7, 8])
    tags = service.runs[second.tracker_id].tags
    assert tags == ({} if is_open else {"trackside.continues": first.tracker_id})


def test_a_child_run_that_is_gone_is_replaced(loop, new, service, tmp_path):
    first = new(child_runs=True)
    loop(first).train()
    first.close()
    del service.runs[first.tracker_id]
    second = new(child_runs=True)
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert [child.id for child in service.children] == [second.tracker_id]


def test_a_child_run_of_which_nothing_can_be_learned_is_not_replaced(loop, new, service, tmp_path, caplog):
    first = new(child_runs=True)
    loop(first).train()
    service.trouble = {first.tracker_id: 503}
    loop(new(child_runs=True), num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert [child.id for child in service.children] == [first.tracker_id]
    assert sum("azure_ml cannot be reached" in message for message in caplog.messages) == 1


def test_a_start_that_is_tried_again_finds_the_child_run_that_it_has_made(loop, new, service, monkeypatch):
    reporter = new(child_runs=True)
    start = reporter.start

    def start_twice(run):
        start(run)
        return start(run)

    monkeypatch.setattr(reporter, "start", start_twice)
    loop(reporter).begin()
    assert [child.id for child in service.children] == [reporter.tracker_id]


def test_what_a_user_has_logged_to_a_child_run_is_sent_before_it_ends_and_nothing_runs_on(loop, new, service):
    reporter = new(child_runs=True)
    loop(reporter).begin()
    run = reporter.run
    run.log("mine", 1.5, step=2)
    reporter.close()
    client = run._client.metrics
    assert points(service.children[0], "mine") == [(2, 1.5)]
    assert not client._task_queue_internal.is_looking
    assert not client._task_queue_v2_internal.is_looking


def test_a_child_run_ends_also_where_the_program_does_and_starts_no_threads(loop, new, service, monkeypatch):
    def refuse(*arguments):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    reporter = new(child_runs=True)
    loop(reporter).begin()
    reporter.run.log("mine", 1.5, step=2)
    monkeypatch.setattr(reporter.run, "flush", refuse)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    reporter.close("failed")
    assert service.children[0].status == "Failed"


# ---- values ---------------------------------------------------------------------------------------------------------


def test_numbers_have_one_type_raw_names_and_the_time_at_which_the_loop_logged_them(loop, new, service, monkeypatch):
    training = loop(new())
    training.begin()
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5)
    training.log_at(3, loss=1, eval_loss=0.5, count=2**70)
    found = [value for value in service.job.metrics.values() if value["name"] in ("loss", "eval_loss", "count")]
    assert [value["data"] for value in found] == [{"loss": 1.0}, {"eval_loss": 0.5}, {"count": float(2**70)}]
    assert {(value["step"], value["createdUtc"]) for value in found} == {(3, "1970-01-01T00:20:34.500000Z")}


def test_what_is_not_finite_is_a_row_of_a_table_and_one_warning(loop, new, service, caplog):
    training = loop(new())
    training.begin()
    training.log_at(3, loss=math.nan, grad_norm=math.inf)
    training.log_at(4, loss=-math.inf, grad_norm=2.5)
    assert service.job.table("trackside/not_finite") == [
        {"step": 3, "name": "loss", "value": "nan"},
        {"step": 3, "name": "grad_norm", "value": "inf"},
        {"step": 4, "name": "loss", "value": "-inf"},
    ]
    assert (points(service.job, "loss"), points(service.job, "grad_norm")) == ([], [(4, 2.5)])
    assert sum("trackside/not_finite" in message for message in caplog.messages) == 1


def test_the_same_points_sent_again_are_no_doubles(loop, new, service, monkeypatch):
    reporter = new()
    sent, send = [], reporter.log_points
    monkeypatch.setattr(reporter, "log_points", lambda points: (sent.append(points), send(points)))
    training = loop(reporter)
    training.begin()
    training.log_at(1, loss=0.5, broken=math.nan)
    training.log_at(1, loss=0.5)
    before = list(service.job.metrics)
    send(sent[0])
    assert list(service.job.metrics) == before
    assert points(service.job, "loss") == [(1, 0.5), (1, 0.5)]


def test_more_metrics_than_a_run_may_have_cost_no_others_and_are_named(loop, new, service, caplog):
    training = loop(new())
    training.begin()
    training.log_at(1, loss=0.5, **{f"class_{number}": 0.25 for number in range(60)})
    training.log_at(2, loss=0.25, **{f"class_{number}": 0.5 for number in range(60)})
    assert points(service.job, "loss") == [(1, 0.5), (2, 0.25)]
    assert len({metric["name"] for metric in service.job.metrics.values()}) == 50
    refused = [message for message in caplog.messages if "a run has no more than 50 metrics" in message]
    assert len(refused) == len(set(refused)) == 60 - 50 + 3  # beside the classes there are loss, epoch and the params


def test_a_long_text_is_cut_and_whole_in_a_file_and_what_cannot_be_encoded_is_replaced(loop, new, service):
    training = loop(new(), run_name="caf\udce9")
    training.begin()
    training.log_at(1, note="x" * 256)
    training.log_at(2, note="caf\udce9")
    first, second = service.job.table("trackside/texts")
    assert first["text"].endswith("... (256 characters)")
    assert second == {"step": 2, "name": "note", "text": "caf?"}
    assert service.job.files == {"texts/note/00000001.txt": b"x" * 256}
    assert {"step": 0, "name": "run_name", "value": "caf?"} in service.job.table("trackside/params")


# ---- files ----------------------------------------------------------------------------------------------------------


def test_checkpoints_are_sent_on_request(loop, new, service):
    loop(new()).train()
    assert service.job.files == {}
    loop(new(log_artifacts=True)).train()
    assert "checkpoint-4/trainer_state.json" in service.job.files


def test_a_file_whose_name_is_taken_is_kept_beside_the_other(loop, new, service, tmp_path):
    reporter = new(log_artifacts=True)
    loop(reporter).begin()
    for text in ("old", "new"):
        (tmp_path / "model.txt").write_text(text)
        reporter.log_artifact(Artifact(str(tmp_path / "model.txt"), "best", "model"))
        reporter.log_file("params/seed.txt", text)
    found = {re.sub(r"-\d{13}", "-<time>", path): content for path, content in service.job.files.items()}
    assert found == {
        "best/model.txt": b"old",
        "best-<time>/model.txt": b"new",
        "params/seed.txt": b"old",
        "params/seed-<time>.txt": b"new",
    }


def test_a_file_that_is_refused_for_another_reason_is_tried_once(loop, new, service):
    reporter = new(log_artifacts=True)
    loop(reporter).begin()
    with pytest.raises(ServiceError, match="no path of a file"):
        reporter.log_file("../up.txt", "text")
    assert sum("/artifacts/" in request for request in service.requests) == 1


# ---- where no job runs ----------------------------------------------------------------------------------------------


def test_where_no_job_runs_the_sdk_prints_what_it_is_told_and_one_warning_says_so(
    loop, new, monkeypatch, capsys, caplog
):
    monkeypatch.delenv("AZUREML_RUN_ID")
    reporter = new(log_artifacts=True)
    training = loop(reporter, run_name="x" * 300)
    training.train()
    training.log({"note": "half-way", "loss": math.nan})
    printed = capsys.readouterr().out
    assert "Attempted to log scalar metric loss:\n0.5" in printed
    assert "Attempted to log table metric trackside/texts" in printed
    assert "checkpoint-4" in printed
    assert "params/run_name.txt" in printed
    assert reporter.tracker_id is None
    assert sum("no job runs here" in message for message in caplog.messages) == 1
    assert not [message for message in caplog.messages if "failed" in message]


@pytest.mark.parametrize(
    ("job", "is_named", "is_chosen"), [(True, False, True), (False, False, False), (False, True, True)]
)
def test_where_no_job_runs_it_is_for_those_who_name_it(new, service, monkeypatch, job, is_named, is_chosen):
    if not job:
        monkeypatch.delenv("AZUREML_RUN_ID")
    reporter = new()
    reporter.required = is_named
    assert reporter.configured().ok == is_chosen
    assert is_chosen or reporter.configured().why == "no job of Azure ML runs here"


# ---- trouble --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "is_passing"), [(500, True), (503, True), (429, True), (401, False), (400, False)])
def test_it_tells_a_trouble_that_passes_from_one_that_does_not(loop, new, service, status, is_passing):
    reporter = new()
    loop(reporter).begin()
    service.trouble = {"": status}
    with pytest.raises(ServiceError) as failed:
        reporter.log_text("note", "half-way", 1, 0.0)
    assert str(failed.value) == "the service is not well"
    assert reporter.is_passing(failed.value) == is_passing


def test_what_the_sdk_wraps_says_whether_a_trouble_passes(new):
    wrapper = RuntimeError("of the client")
    wrapper.inner_exception = ConnectionError("connection refused")
    assert new().is_passing(wrapper)


def test_a_request_without_an_answer_is_given_up_and_may_be_made_again(new):
    is_over = threading.Event()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 seconds") as late:
        ask(0.05, is_over.wait)
    is_over.set()
    assert new().is_passing(late.value)


def test_a_request_is_made_in_the_thread_that_asks_where_no_more_threads_start(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert ask(1, threading.get_ident) == threading.get_ident()
