"""The contract of a reporter, and what is special in MLflow, against a fake that refuses what the real one refuses."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from pathlib import Path

import pytest

from trackside import StartError
from trackside.records import Artifact
from trackside_mlflow import MLflowCallback
from trackside_testkit import Reported, ReporterContract
from trackside_testkit.integration import declared_options, documented_options, maker_of

README = Path(__file__).parents[1] / "README.md"


class TestMLflow(ReporterContract):
    reporter_class = MLflowCallback
    nearest_status = {"pruned": "killed"}  # noqa: RUF012 - as the contract has it

    def make_reporter(self, **options):
        return MLflowCallback(log_artifacts=True, **options)

    def read(self):
        from mlflow.client import STORES

        return [
            self.reported(run, store.artifacts[run_id])
            for store in STORES.values()
            for run_id, run in store.runs.items()
        ]

    def reported(self, run, artifacts):
        rows = [(metric.key, metric.step, metric.value) for metric in run.data.metrics]
        texts, files = [], {}
        for path, content in artifacts.items():
            if match := re.fullmatch(r"texts/(.+)/(\d+)-\d+\.txt", path):
                texts.append((match[1], int(match[2]), content.decode()))
            elif "/" in path:
                name, _, file = path.partition("/")
                files.setdefault(name, []).append(file)
        return Reported(
            points=Reported.by_key(rows),
            params=run.data.params,
            texts=Reported.by_key(texts),
            artifacts=files,
            status=run.info.status.lower(),
        )


def test_the_table_of_options_in_the_readme_is_that_of_the_class():
    assert documented_options(README) == declared_options(MLflowCallback)


# ---- what tests look at ---------------------------------------------------------------------------------------------


new = maker_of(MLflowCallback)


def store(uri="memory://default"):
    from mlflow.client import STORES, Store

    return STORES.setdefault(uri, Store())


def stored(reporter, uri="memory://default"):
    return store(uri).runs[reporter.tracker_id]


def tags(reporter):
    return stored(reporter).data.tags


def artifact(reporter, path):
    return store().artifacts[reporter.tracker_id][path].decode()


# ---- metrics --------------------------------------------------------------------------------------------------------


def test_metrics_have_raw_names_and_the_time_at_which_the_loop_logged_them(loop, new, monkeypatch):
    reporter = new()
    training = loop(reporter)
    training.begin()
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5678)
    training.log_at(3, loss=1, eval_loss=0.5)
    found = [tuple(metric) for metric in stored(reporter).data.metrics if metric.key != "epoch"]
    assert found == [("loss", 1.0, 1234568, 3), ("eval_loss", 0.5, 1234568, 3)]


def test_names_are_grouped_on_request(loop, new):
    reporter = new(key_style="grouped")
    loop(reporter).train()
    assert {metric.key for metric in stored(reporter).data.metrics} >= {"train/loss", "eval/loss"}


def test_the_same_points_sent_again_are_no_doubles(loop, new, monkeypatch):
    reporter = new()
    sent, send = [], reporter.log_points
    monkeypatch.setattr(reporter, "log_points", lambda points: (sent.append(points), send(points)))
    training = loop(reporter)
    training.begin()
    training.log_at(1, loss=0.5, broken=float("nan"))
    before = [repr(metric) for metric in stored(reporter).data.metrics]
    send(sent[0])
    assert [repr(metric) for metric in stored(reporter).data.metrics] == before


def test_an_infinity_is_no_number_but_a_tag_that_says_where_it_was(loop, new, caplog):
    reporter = new()
    training = loop(reporter)
    training.begin()
    for step in (3, 7, 9):
        training.log_at(step, grad_norm=float("inf"), loss=float(step), **{"a//b": float("-inf")})
    metrics = stored(reporter).data.metrics
    assert [metric.value for metric in metrics if metric.key == "loss"] == [3, 7, 9]
    assert {metric.key for metric in metrics} == {"loss", "epoch"}
    assert tags(reporter)["trackside.infinite.grad_norm"] == "inf at step 3; latest: inf at step 9"
    assert "-inf at step 3; latest: -inf at step 9" in tags(reporter).values()
    assert sum("draws no infinity" in message for message in caplog.messages) == 1


def test_an_infinity_of_a_resumed_run_does_not_hide_the_first(loop, new):
    first = new()
    training = loop(first)
    training.begin()
    training.log_at(3, grad_norm=float("inf"))
    first.close()
    second = new(resume=first.tracker_id)
    training = loop(second)
    training.begin()
    training.log_at(8, grad_norm=float("inf"))
    assert tags(second)["trackside.infinite.grad_norm"] == "inf at step 3; latest: inf at step 8"


@pytest.mark.parametrize("name", ["", ".", "..", "..up", "/abs", "a//b", "a/", "./a"])
def test_a_name_that_is_no_clean_path_is_replaced_by_one_of_its_own(loop, new, name):
    reporter = new()
    training = loop(reporter)
    training.begin()
    training.log_at(1, loss=0.5, **{name: 2.5, f"{name}?": 3.5, "a/b": 4.5})
    values = [metric.value for metric in stored(reporter).data.metrics if metric.key != "epoch"]
    assert sorted(values) == [0.5, 2.5, 3.5, 4.5]


# ---- params ---------------------------------------------------------------------------------------------------------


def test_a_changed_param_of_a_resumed_run_keeps_its_first_value_and_is_noted_in_a_tag(loop, new, caplog):
    first = new()
    loop(first, learning_rate=0.5).train()
    second = new(resume=first.tracker_id)
    loop(second, learning_rate=0.25, seed=7).train()
    assert stored(second).data.params["learning_rate"] == "0.5"
    changed = json.loads(tags(second)["trackside.changed_params"])
    assert changed == {"learning_rate": ["0.5", "0.25"], "seed": ["42", "7"]}
    assert not caplog.records


def test_a_param_that_is_cut_is_whole_in_a_file(loop, new, caplog):
    reporter = new()
    labels = {str(number): "label " * 20 for number in range(500)}
    loop(reporter, lr_scheduler_kwargs={"note": "x" * 6001, "labels": labels, "list": list(range(5000))}).train()
    params = stored(reporter).data.params
    assert len(params["lr_scheduler_kwargs/note"]) == 6000
    assert params["lr_scheduler_kwargs/note"].endswith("... (6001 characters)")
    assert len([name for name in params if name.startswith("lr_scheduler_kwargs/labels/")]) == 500
    assert artifact(reporter, "params/lr_scheduler_kwargs/note.txt") == "x" * 6001
    assert sum("params/lr_scheduler_kwargs/note.txt" in message for message in caplog.messages) == 1


def test_many_long_params_arrive_in_requests_of_a_size_that_a_server_takes(loop, new):
    reporter = new()
    loop(reporter, lr_scheduler_kwargs={str(number): "ü" * 5999 for number in range(150)}).train()
    long = [text for text in stored(reporter).data.params.values() if text == "ü" * 5999]
    assert len(long) == 150


def test_no_more_params_are_sent_than_the_user_wants_and_the_rest_is_in_a_file(loop, new, monkeypatch):
    monkeypatch.setenv("MLFLOW_MAX_LOG_PARAMS", "5")
    reporter = new()
    loop(reporter, seed=7).train()
    assert len(stored(reporter).data.params) == 5
    assert json.loads(artifact(reporter, "params.json"))["seed"] == 7


def test_undecodable_text_is_stored_with_a_question_mark(loop, new):
    reporter = new()
    training = loop(reporter, run_name="caf\udce9")
    training.begin()
    training.log_at(1, note="caf\udce9")
    assert stored(reporter).data.params["run_name"] == "caf?"
    assert "caf?" in [content.decode() for content in store().artifacts[reporter.tracker_id].values()]


# ---- tags and names -------------------------------------------------------------------------------------------------


def test_a_run_says_whose_it_is_and_what_was_typed(loop, new, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "0.1", "--api-key=plain-looking-key"])
    reporter = new()
    loop(reporter, run_name="blue").train()
    assert stored(reporter).info.run_name == "blue"
    assert tags(reporter)["mlflow.user"] == "somebody"
    assert tags(reporter)["trackside.command"].startswith("train.py --lr 0.1")
    assert "plain-looking-key" not in repr(tags(reporter))


def test_tags_of_the_user_are_set_and_what_is_too_long_is_cut_and_whole_in_a_file(loop, new, monkeypatch, caplog):
    text = "x" * 5001
    monkeypatch.setenv("MLFLOW_TAGS", json.dumps({"team": "vision", "n(1)": 3, "long": text}))
    reporter = new()
    loop(reporter).train()
    assert tags(reporter)["team"] == "vision"
    assert tags(reporter)["n_1_"] == "3"
    assert tags(reporter)["long"].endswith("... (5001 characters)")
    assert artifact(reporter, "tags/long.txt") == text
    assert sum("the tag long is cut" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("text", ["{", "[1]", '"text"'])
def test_tags_that_are_no_json_object_stop_the_program_at_its_start(loop, new, monkeypatch, text):
    monkeypatch.setenv("MLFLOW_TAGS", text)
    with pytest.raises(StartError, match="MLFLOW_TAGS"):
        loop(new()).begin()


def test_a_long_name_and_a_long_command_are_cut_and_what_cannot_be_encoded_is_replaced(loop, new, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "caf\udce9", "x" * 9000])
    reporter = new()
    loop(reporter, run_name="caf\udce9" + "x" * 400).train()
    assert len(stored(reporter).info.run_name) == 250
    assert stored(reporter).info.run_name.startswith("caf?xxx")
    assert len(tags(reporter)["trackside.command"]) == 5000


def test_a_start_that_fails_half_way_and_is_tried_again_makes_no_second_run(loop, new, monkeypatch):
    from mlflow import MlflowClient

    reporter = new(tags={"team": "vision"})
    training = loop(reporter)
    monkeypatch.setattr(MlflowClient, "log_batch", refuse_once(MlflowClient.log_batch))
    start = reporter.start

    def start_twice(run):
        with pytest.raises(ConnectionError):
            start(run)
        return start(run)

    monkeypatch.setattr(reporter, "start", start_twice)
    training.begin()
    assert len(store().runs) == 1
    assert tags(reporter)["team"] == "vision"


def refuse_once(method):
    calls = []

    def call(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 1:
            raise ConnectionError
        return method(*arguments, **options)

    return call


# ---- experiments ----------------------------------------------------------------------------------------------------


def experiment_of(reporter):
    by_id = {experiment.experiment_id: name for name, experiment in store().experiments.items()}
    return by_id[stored(reporter).info.experiment_id]


def test_the_experiment_is_that_of_the_name_and_made_if_there_is_none(loop, new, monkeypatch):
    plain = new()
    loop(plain).train()
    assert experiment_of(plain) == "Default"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "digits")
    for options, name in (({}, "digits"), ({"experiment_name": "letters"}, "letters"), ({}, "digits")):
        reporter = new(**options)
        loop(reporter).train()
        assert experiment_of(reporter) == name


def test_the_experiment_that_the_user_has_set_for_mlflow_is_taken(loop, new, monkeypatch):
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", MlflowClient().create_experiment("mine"))
    reporter = new()
    loop(reporter).train()
    assert experiment_of(reporter) == "mine"


def test_an_experiment_that_another_process_makes_meanwhile_is_taken(loop, new, monkeypatch):
    from mlflow import MlflowClient

    create = MlflowClient.create_experiment

    def be_late(self, name):
        create(self, name)
        return create(self, name)

    monkeypatch.setattr(MlflowClient, "create_experiment", be_late)
    reporter = new(experiment_name="digits")
    loop(reporter).train()
    assert experiment_of(reporter) == "digits"


# ---- resume ---------------------------------------------------------------------------------------------------------


def test_the_run_of_a_variable_is_continued(loop, new, monkeypatch):
    first = new()
    loop(first).train()
    monkeypatch.setenv("MLFLOW_RUN_ID", first.tracker_id)
    second = new()
    training = loop(second)
    training.begin()
    assert second.tracker_id == first.tracker_id
    assert stored(second).info.status == "RUNNING"
    training.fire("on_train_end")
    assert stored(second).info.status == "FINISHED"


def test_a_run_that_the_user_names_and_that_is_not_there_is_refused(loop, new):
    with pytest.raises(StartError, match="there is no run 0000"):
        loop(new(resume="0000")).begin()


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_checkpoint_whose_run_is_gone_starts_another_one(loop, new, tmp_path, caplog, is_deleted):
    first = new()
    loop(first).train()
    if is_deleted:
        stored(first).info.lifecycle_stage = "deleted"
    else:
        del store().runs[first.tracker_id]
    second = new()
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert second.tracker_id != first.tracker_id
    assert sum("another one is started" in message for message in caplog.messages) == 1
    assert {metric.step for metric in stored(second).data.metrics if metric.key == "loss"} == {5, 6, 7, 8}


def test_a_pruned_trial_is_killed_and_says_why(loop, new):
    reporter = new()
    with pytest.raises(Exception, match="too bad"):
        loop(reporter).train(fail_at=2, exception=type("TrialPruned", (Exception,), {})("too bad"))
    assert stored(reporter).info.status == "KILLED"
    assert tags(reporter)["trackside.status"] == "pruned"


# ---- runs that the user has open ------------------------------------------------------------------------------------


def test_a_run_that_the_user_has_open_is_logged_to_and_never_closed(loop, new):
    import mlflow

    with mlflow.start_run() as mine:
        reporter = new(tags={"team": "vision"})
        training = loop(reporter)
        training.train()
        assert reporter.tracker_id == mine.info.run_id
        assert mlflow.active_run() is mine
        assert stored(reporter).info.status == "RUNNING"
    training.evaluate()
    reporter.close()
    assert stored(reporter).info.status == "FINISHED"
    assert len(store().runs) == 1
    assert tags(reporter)["team"] == "vision"
    losses = [metric.step for metric in stored(reporter).data.metrics if metric.key == "eval_loss"]
    assert losses == [4, 4]


def test_an_evaluation_does_not_reopen_a_run_that_its_user_has_failed(loop, new):
    import mlflow

    reporter = new()
    training = loop(reporter)
    with mlflow.start_run() as mine:
        training.train()
    stored_run(mine).info.status = "FAILED"
    training.evaluate()
    assert stored(reporter).info.status == "FAILED"


@pytest.mark.parametrize("how", ["on request", "for a trial"])
def test_a_run_may_stand_below_the_one_that_the_user_has_open(loop, new, how):
    import mlflow
    from mlflow import MlflowClient

    experiment = MlflowClient().create_experiment("mine")
    with mlflow.start_run(experiment_id=experiment) as mine:
        reporter = new(nested_run=how == "on request")
        training = loop(reporter)
        if how == "for a trial":
            training.state.is_hyper_param_search, training.state.trial_name = True, "trial-0"
        training.begin()
        training.fire("on_train_end")
        assert mlflow.active_run() is mine
    assert reporter.tracker_id != mine.info.run_id
    assert tags(reporter)["mlflow.parentRunId"] == mine.info.run_id
    assert stored(reporter).info.experiment_id == experiment


@pytest.mark.parametrize("options", [{"tracking_uri": "memory://other"}, {"resume": "the first"}])
def test_a_run_that_the_user_has_open_elsewhere_is_left_alone(loop, new, options):
    import mlflow

    first = new()
    loop(first).train()
    if "resume" in options:
        options = {"resume": first.tracker_id}
    with mlflow.start_run() as mine:
        reporter = new(**options)
        loop(reporter).train()
        assert reporter.tracker_id != mine.info.run_id
        assert mlflow.active_run() is mine
    assert stored_run(mine).data.metrics == []


def stored_run(run):
    return store().runs[run.info.run_id]


# ---- the active run -------------------------------------------------------------------------------------------------


def test_the_run_is_mlflows_active_one_while_it_is_trained(loop, new):
    reporter = new()
    training = loop(reporter)
    training.begin()
    import mlflow

    assert mlflow.active_run().info.run_id == reporter.tracker_id
    assert reporter.run.info.run_id == reporter.tracker_id
    training.log_at(1, loss=0.5)
    assert stored(reporter).info.status == "RUNNING"
    training.fire("on_train_end")
    assert mlflow.active_run() is None
    assert stored(reporter).info.status == "FINISHED"
    assert [run.info.end_time is not None for run in store().runs.values()] == [True]


def test_the_active_run_of_another_thread_is_not_touched(loop, new):
    import mlflow

    reporter = new()
    training = loop(reporter)
    thread = threading.Thread(target=training.begin)
    thread.start()
    thread.join()
    assert mlflow.active_run() is None
    with mlflow.start_run() as mine:
        reporter.close()
        assert mlflow.active_run() is mine


def test_a_run_that_its_user_has_ended_himself_is_ended_once_more_with_its_true_status(loop, new):
    reporter = new()
    training = loop(reporter)
    training.begin()
    import mlflow

    mlflow.end_run()
    training.log_at(1, loss=0.5)
    training.fire("on_exception", exception=RuntimeError())
    assert [metric.value for metric in stored(reporter).data.metrics if metric.key == "loss"] == [0.5]
    assert stored(reporter).info.status == "FAILED"


def test_a_run_that_has_not_started_yet_is_not_missed_at_its_end(loop, new, caplog):
    reporter = new()
    reporter.attach()
    reporter.detach()
    assert not caplog.records


def test_a_run_in_another_store_is_not_made_active_where_a_users_calls_would_not_find_it(loop, new):
    import mlflow

    loop(new(tracking_uri="memory://other")).begin()
    assert mlflow.active_run() is None


def test_a_second_reporter_does_not_take_the_run_of_the_first_for_the_users(loop, new):
    one, two = new(experiment_name="one"), new(experiment_name="two")
    loop(one, two).train()
    assert one.tracker_id != two.tracker_id
    assert {experiment_of(one), experiment_of(two)} == {"one", "two"}


# ---- servers --------------------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_ends_nothing(loop, new, caplog):
    reporter = new(tracking_uri="http://unreachable:5000")
    training = loop(reporter)
    training.train()
    assert training.state.global_step == 4
    assert sum("mlflow cannot be reached" in message for message in caplog.messages) == 1


def test_a_call_is_tried_for_seconds_and_an_upload_may_take_its_time(loop, new):
    from mlflow import environment_variables as settings
    from mlflow.client import REQUESTS

    reporter = new(log_artifacts=True)
    loop(reporter, lr_scheduler_kwargs={"note": "x" * 7000}).train()
    bounds = {request: (retries, timeout) for request, retries, timeout in REQUESTS}
    uploads = {request: bounds.pop(request) for request in ("log_artifact", "log_text")}
    assert set(bounds.values()) == {(2, 10)}
    assert set(uploads.values()) == {(2, 120)}
    assert settings.MLFLOW_HTTP_REQUEST_MAX_RETRIES.get() == 7
    assert settings.MLFLOW_HTTP_REQUEST_TIMEOUT.get() == 120


def test_the_users_own_bounds_hold(loop, new, monkeypatch):
    from mlflow.client import REQUESTS

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "5")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    loop(new()).train()
    assert {(retries, timeout) for _, retries, timeout in REQUESTS} == {(5, 60)}


def test_bounds_hold_until_the_last_of_several_calls_has_returned():
    from mlflow import environment_variables as settings

    from trackside_mlflow.client import _quickly

    with _quickly():
        with _quickly():
            pass
        assert settings.MLFLOW_HTTP_REQUEST_MAX_RETRIES.get() == 2
    assert settings.MLFLOW_HTTP_REQUEST_MAX_RETRIES.get() == 7


def test_nothing_is_printed_on_standard_output(loop, new, capfd):
    loop(new()).train()
    assert capfd.readouterr().out == ""


def test_a_part_of_mlflow_that_is_not_installed_is_named(loop, new):
    with pytest.raises(StartError, match=r"No module named 'sqlalchemy'.*pip install mlflow"):
        loop(new(tracking_uri="incomplete://x")).begin()


@pytest.mark.parametrize(
    ("uri", "shown_by"),
    [
        ("http://host:5000/", "http://host:5000/#/experiments/0/runs/{id}"),
        ("https://user:plain-looking@host", "https://***@host/#/experiments/0/runs/{id}"),
        ("memory://a b", "mlflow ui --backend-store-uri 'memory://a b'"),
        ("databricks", None),
    ],
)
def test_it_says_what_shows_the_run(loop, new, uri, shown_by):
    reporter = new(tracking_uri=uri)
    assert reporter.where() is None
    loop(reporter).begin()
    reporter.close()
    assert reporter.where() == (shown_by and shown_by.format(id=reporter.tracker_id))


# ---- switches -------------------------------------------------------------------------------------------------------


def test_mlflow_is_imported_without_its_telemetry_and_the_environment_stays_as_it_is(loop, new):
    loop(new()).begin()
    assert sys.modules["mlflow"].IMPORTED_WITHOUT_TELEMETRY
    assert "MLFLOW_DISABLE_TELEMETRY" not in os.environ


@pytest.mark.parametrize("text", ["false", "true"])
def test_who_decides_on_telemetry_himself_has_his_way(loop, new, monkeypatch, text):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", text)
    loop(new()).begin()
    assert (text == "true") == sys.modules["mlflow"].IMPORTED_WITHOUT_TELEMETRY
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == text


@pytest.mark.parametrize(("text", "is_on"), [("TRUE", False), ("1", False), ("FALSE", True), ("", True)])
def test_the_switch_of_transformers_switches_it_off(monkeypatch, text, is_on):
    monkeypatch.setenv("DISABLE_MLFLOW_INTEGRATION", text)
    answer = MLflowCallback().configured()
    assert answer.ok == is_on
    assert is_on or "DISABLE_MLFLOW_INTEGRATION" in answer.why


@pytest.mark.parametrize(("text", "is_sent"), [(None, False), ("FALSE", False), ("TRUE", True)])
def test_checkpoints_are_sent_on_request(loop, new, monkeypatch, text, is_sent):
    if text is not None:
        monkeypatch.setenv("HF_MLFLOW_LOG_ARTIFACTS", text)
    reporter = new()
    loop(reporter).train()
    assert ("checkpoint-4/model.bin" in store().artifacts[reporter.tracker_id]) == is_sent


def test_folders_within_an_artifact_stay_and_a_file_may_be_one(loop, new, tmp_path):
    reporter = new(log_artifacts=True)
    loop(reporter).begin()
    (tmp_path / "model" / "inner").mkdir(parents=True)
    for file in ("a.txt", "inner/b.txt", "inner/training_args.bin"):
        (tmp_path / "model" / file).write_text(file)
    reporter.log_artifact(Artifact(str(tmp_path / "model"), "best", "model"))
    reporter.log_artifact(Artifact(str(tmp_path / "model" / "a.txt"), "notes", "file"))
    assert set(store().artifacts[reporter.tracker_id]) == {"best/a.txt", "best/inner/b.txt", "notes/a.txt"}
