"""The contract of a reporter, and what is special in Comet, against a fake that refuses what the real one refuses."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import API_KEY

from trackside import Configured, StartError
from trackside.records import Artifact
from trackside_comet_ml import CometCallback
from trackside_testkit import Reported, ReporterContract
from trackside_testkit.integration import declared_options, documented_options

README = Path(__file__).parents[1] / "README.md"


def server():
    from comet_ml.server import SERVER

    return SERVER


def reported(stored):
    files = {}
    for name in stored.assets:
        folder, _, file = name.partition("/")
        files.setdefault(folder, []).append(file)
    return Reported(
        points=Reported.by_key((row["metricName"], row["step"], float(row["metricValue"])) for row in stored.metrics),
        params=stored.params,
        texts=Reported.by_key((row["name"], row["step"], row["text"]) for row in stored.texts),
        artifacts=files,
        status=stored.others.get("trackside.status", "running"),
    )


class TestCometOnline(ReporterContract):
    reporter_class = CometCallback

    def make_reporter(self, **options):
        return CometCallback(log_assets=True, **options)

    def read(self):
        return [reported(stored) for stored in server().experiments.values()]


class TestCometOffline(TestCometOnline):
    def make_reporter(self, **options):
        return CometCallback(log_assets=True, online=False, **options)


def test_the_table_of_options_in_the_readme_is_that_of_the_class():
    assert documented_options(README) == declared_options(CometCallback)


# ---- what tests look at ---------------------------------------------------------------------------------------------


def stored(reporter):
    return server().experiments[reporter.tracker_id]


def started_with():
    return sys.modules["comet_ml"].STARTED_WITH[-1]


# ---- what is logged -------------------------------------------------------------------------------------------------


def test_metrics_have_the_time_step_and_epoch_of_the_loop(loop, new, monkeypatch):
    reporter = new()
    training = loop(reporter)
    training.begin()
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5678)
    training.state.epoch = 0.5
    training.log_at(3, loss=1, eval_loss=0.5)
    names = ("metricName", "metricValue", "step", "epoch", "timestamp")
    found = [tuple(row[name] for name in names) for row in stored(reporter).metrics]
    assert found[:2] == [("train/loss", 1, 3, 0.5, 1234568), ("eval/loss", 0.5, 3, 0.5, 1234568)]


def test_names_are_those_of_the_loop_on_request(loop, new):
    reporter = new(key_style="raw")
    loop(reporter).train()
    assert {row["metricName"] for row in stored(reporter).metrics} >= {"loss", "eval_loss", "train_runtime"}


def test_what_a_user_logs_himself_belongs_to_the_latest_step(loop, new):
    reporter = new()
    training = loop(reporter)
    training.begin()
    training.log_at(7, loss=0.5)
    assert reporter.run.curr_step == 7


def test_a_parameter_is_kept_as_it_is_and_one_that_is_cut_is_whole_in_a_file(loop, new, caplog):
    reporter = new()
    given = {"note": "x" * 1001, "list": [1, None, "two"], "none": None, "huge": 2**70, "flag": True}
    loop(reporter, lr_scheduler_kwargs=given, learning_rate=0.25).train()
    params = stored(reporter).params
    assert params["learning_rate"] == 0.25
    assert params["lr_scheduler_kwargs/list"] == '[1, null, "two"]'
    assert params["lr_scheduler_kwargs/none"] is None
    assert params["lr_scheduler_kwargs/flag"] is True
    assert params["lr_scheduler_kwargs/huge"] == str(2**70)
    assert params["lr_scheduler_kwargs/note"].endswith("... (1001 characters)")
    assert stored(reporter).assets["params/lr_scheduler_kwargs/note.txt"] == b"x" * 1001
    assert sum("note is cut" in message for message in caplog.messages) == 1


def test_undecodable_text_is_stored_with_a_question_mark(loop, new):
    reporter = new()
    training = loop(reporter, run_name="caf\udce9")
    training.begin()
    training.log_at(1, note="caf\udce9", **{"l\udce9ss": 0.5})
    assert stored(reporter).params["run_name"] == stored(reporter).others["Name"] == "caf?"
    assert [row["text"] for row in stored(reporter).texts] == ["caf?"]
    assert stored(reporter).metrics[0]["metricName"] == "train/l_ss"


def test_checkpoints_are_sent_on_request(loop, new, monkeypatch):
    for text, is_sent in ((None, False), ("FALSE", False), ("TRUE", True), ("1", True)):
        if text is not None:
            monkeypatch.setenv("COMET_LOG_ASSETS", text)
        reporter = new()
        loop(reporter).train()
        assert ("checkpoint-4/model.bin" in stored(reporter).assets) == is_sent


def test_a_file_that_cannot_be_logged_is_one_warning(loop, new, monkeypatch, caplog):
    from comet_ml import Experiment

    def refuse(self, name, content):
        raise OSError("the disk is gone")

    monkeypatch.setattr(Experiment, "_keep", refuse)
    training = loop(new(log_assets=True))
    training.train()
    assert training.state.global_step == 4
    assert sum("log_artifact failed (OSError: the disk is gone)" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("trouble", ["refused", "gone"])
def test_a_file_is_sent_again_if_the_server_was_away_and_not_if_it_has_refused_it(loop, new, monkeypatch, trouble):
    from comet_ml.experiment import Streamer

    reporter = new(log_assets=True)
    training = loop(reporter)
    training.begin()
    monkeypatch.setattr(Streamer, "has_upload_failed", lambda self: True)
    server().is_reachable = trouble != "gone"
    training.save()
    with pytest.raises((RuntimeError, ConnectionError)) as raised:
        reporter.log_artifact(Artifact("out/checkpoint-0", "checkpoint-0"))
    assert reporter.is_passing(raised.value) == (trouble == "gone")
    server().is_reachable = True


def test_the_layers_of_the_model_are_its_graph_unless_that_is_switched_off(loop, new, monkeypatch):
    class Model:
        config = None

        def __str__(self):
            return "Model(\n  (layer): Linear()\n)"

    for text, graph in (("1", str(Model())), ("0", None)):
        monkeypatch.setenv("COMET_AUTO_LOG_GRAPH", text)
        reporter = new()
        loop(reporter, model=Model()).train()
        assert stored(reporter).graph == graph


def test_a_model_that_cannot_be_printed_is_trained(loop, new):
    class Model:
        config = None

        def __str__(self):
            raise RuntimeError("no")

    reporter = new()
    loop(reporter, model=Model()).train()
    assert stored(reporter).graph is None


def test_a_trial_says_which_one_it_is(loop, new):
    reporter = new()
    training = loop(reporter)
    training.state.is_hyper_param_search, training.state.trial_name = True, "trial-0"
    training.state.trial_params = {"lr": 0.5}
    training.begin()
    logged = {"optimizer_id": "trial-0", "optimizer_parameters": '{"lr": 0.5}'}
    assert stored(reporter).others.items() >= logged.items()


def test_a_run_says_what_was_typed_without_secrets(loop, new, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "0.1", "--api-key=plain-looking-key"])
    reporter = new(tags=["vision", "sk-ABCDEFGHIJ0123"])
    loop(reporter, run_name="blue").train()
    assert stored(reporter).others["Name"] == "blue"
    assert stored(reporter).others["trackside.command"].startswith("train.py --lr 0.1")
    assert stored(reporter).tags == ["vision", "***"]
    assert "plain-looking-key" not in repr(stored(reporter))


@pytest.mark.parametrize(("status", "has_crashed"), [("failed", True), ("killed", True), ("pruned", False)])
def test_a_training_that_did_not_come_to_its_end_has_crashed(loop, new, status, has_crashed):
    kinds = {"failed": RuntimeError, "killed": KeyboardInterrupt, "pruned": type("TrialPruned", (Exception,), {})}
    reporter = new()
    with pytest.raises(kinds[status]):
        loop(reporter).train(fail_at=2, exception=kinds[status]())
    assert stored(reporter).others["trackside.status"] == status
    assert stored(reporter).has_crashed == has_crashed
    assert not stored(reporter).is_running


# ---- where it goes --------------------------------------------------------------------------------------------------


def test_settings_of_the_environment_hold(loop, new, monkeypatch):
    for variable, text in {
        "COMET_WORKSPACE": "team",
        "COMET_PROJECT_NAME": "digits",
        "COMET_START_EXPERIMENT_NAME": "blue",
        "COMET_START_EXPERIMENT_TAGS": "vision, small",
    }.items():
        monkeypatch.setenv(variable, text)
    reporter = new()
    loop(reporter).train()
    assert (stored(reporter).workspace, stored(reporter).project) == ("team", "digits")
    assert (stored(reporter).others["Name"], stored(reporter).tags) == ("blue", ["vision", "small"])


@pytest.mark.parametrize("folder", [None, "archives"])
def test_offline_each_training_and_what_follows_it_is_an_archive(loop, new, tmp_path, monkeypatch, folder):
    monkeypatch.setenv("COMET_START_ONLINE", "0")
    monkeypatch.delenv("COMET_API_KEY")
    if folder:
        monkeypatch.setenv("COMET_OFFLINE_DIRECTORY", folder)
    reporter = new()
    training = loop(reporter)
    training.train()
    training.evaluate()
    place = str(tmp_path / (folder or "out/comet"))
    assert server().archives == [(place, reporter.tracker_id)] * 2
    assert reporter.where() == f"comet upload {place}/{reporter.tracker_id}*.zip"
    assert reporter.place() == ({"offline_directory": place} if folder else {})
    assert len(reported(stored(reporter)).points["eval/loss"]) == 2


def test_online_it_says_where_the_experiment_is(loop, new):
    reporter = new()
    assert reporter.where() is None
    loop(reporter).train()
    assert reporter.where() == f"https://www.comet.com/team/project/{reporter.tracker_id}"


def test_nothing_is_collected_unasked(loop, new, monkeypatch):
    loop(new()).train()
    collected = [
        name for name in started_with() if name.startswith(("log_", "auto_", "parse_")) and "_rate" not in name
    ]
    by_settings = {"log_graph", "log_env_gpu", "log_env_host", "log_env_cpu", "log_env_network", "log_env_disk"}
    assert {name for name in collected if started_with()[name] is not False} == by_settings
    assert started_with()["display_summary_level"] == 0
    monkeypatch.setenv("COMET_AUTO_LOG_CODE", "true")
    monkeypatch.setenv("COMET_DISPLAY_SUMMARY_LEVEL", "2")
    loop(new()).train()
    assert started_with()["log_code"] is None
    assert started_with()["display_summary_level"] == 1


# ---- resume ---------------------------------------------------------------------------------------------------------

KEY = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("online", [True, False])
def test_the_experiment_of_a_variable_is_made_and_then_continued(loop, new, monkeypatch, online):
    monkeypatch.setenv("COMET_EXPERIMENT_KEY", KEY)
    for _ in range(2):
        reporter = new(online=online)
        loop(reporter).train()
        assert reporter.tracker_id == KEY
    assert len(reported(server().experiments[KEY]).points["train/loss"]) == 8


def test_a_mode_insists_on_an_experiment_or_on_a_new_one(loop, new, monkeypatch):
    monkeypatch.setenv("COMET_EXPERIMENT_KEY", KEY)
    monkeypatch.setenv("COMET_MODE", "GET")
    with pytest.raises(StartError, match=f"there is no experiment {KEY}"):
        loop(new()).begin()
    monkeypatch.setenv("COMET_MODE", "create")
    training = loop(new())
    training.train()
    training.evaluate()
    assert len(reported(server().experiments[KEY]).points["eval/loss"]) == 2
    with pytest.raises(StartError, match=f"there is an experiment {KEY}"):
        loop(new()).begin()


def test_a_mode_that_insists_on_an_experiment_is_told_which_one(loop, new, monkeypatch):
    monkeypatch.setenv("COMET_MODE", "get")
    with pytest.raises(StartError, match=r"COMET_MODE=get insists.*COMET_EXPERIMENT_KEY"):
        loop(new()).begin()
    assert server().experiments == {}


def test_each_trial_is_an_experiment_of_its_own_whatever_is_named(loop, new, monkeypatch):
    monkeypatch.setenv("COMET_EXPERIMENT_KEY", KEY)
    monkeypatch.setenv("COMET_MODE", "get")
    reporter = new()
    for number in range(2):
        training = loop(reporter)
        training.state.is_hyper_param_search, training.state.trial_name = True, f"trial-{number}"
        training.begin()
        training.log_at(1, loss=0.5)
        training.fire("on_train_end")
        training.evaluate()
    runs = [reported(stored) for stored in server().experiments.values()]
    assert [len(run.points["train/loss"]) for run in runs] == [len(run.points["eval/loss"]) for run in runs] == [1, 1]
    assert KEY not in server().experiments


def test_a_mode_that_there_is_not_is_refused(loop, new, monkeypatch):
    monkeypatch.setenv("COMET_MODE", "OFFLINE")
    with pytest.raises(StartError, match="COMET_MODE takes one of get_or_create, get, create, not 'offline'"):
        loop(new()).begin()
    assert "COMET_MODE" in CometCallback().configured().why


def test_a_checkpoint_is_continued_unless_each_training_is_to_be_an_experiment(loop, new, tmp_path):
    first, second, third = new(), new(), new(mode="create")
    loop(first).train()
    for reporter in (second, third):
        loop(reporter, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert second.tracker_id == first.tracker_id
    assert third.tracker_id != first.tracker_id


def test_a_checkpoint_whose_experiment_is_gone_starts_another_one(loop, new, tmp_path, caplog):
    first = new()
    loop(first).train()
    del server().experiments[first.tracker_id]
    second = new()
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert second.tracker_id != first.tracker_id
    assert sum("another one is started" in message for message in caplog.messages) == 1
    assert [step for step, _ in reported(stored(second)).points["train/loss"]] == [5, 6, 7, 8]


def test_a_changed_parameter_of_a_continued_experiment_is_taken(loop, new):
    first = new()
    loop(first, learning_rate=0.5).train()
    second = new(resume=first.tracker_id)
    loop(second, learning_rate=0.25).train()
    assert stored(second).params["learning_rate"] == 0.25


def test_a_start_that_fails_half_way_and_is_tried_again_makes_no_second_experiment(loop, new, monkeypatch):
    reporter = new()
    start, create, failed = reporter.start, reporter._open_experiment, []

    def fail_once(*arguments, **settings):
        experiment = create(*arguments, **settings)
        if not failed:
            failed.append(experiment)
            raise ConnectionError
        return experiment

    def start_twice(run):
        with pytest.raises(ConnectionError):
            start(run)
        return start(run)

    monkeypatch.setattr(reporter, "_open_experiment", fail_once)
    monkeypatch.setattr(reporter, "start", start_twice)
    loop(reporter).begin()
    assert len(server().experiments) == 1


# ---- experiments that the user has running --------------------------------------------------------------------------


def start_an_experiment():
    import comet_ml

    config = comet_ml.ExperimentConfig()
    return comet_ml.start(experiment_key=KEY, mode="create", experiment_config=config)


def test_an_experiment_that_the_user_has_running_is_logged_to_and_never_ended(loop, new):
    import comet_ml

    mine = start_an_experiment()
    reporter = new()
    training = loop(reporter)
    training.train()
    training.evaluate()
    reporter.close()
    assert reporter.tracker_id == KEY
    assert comet_ml.get_running_experiment() is mine
    assert mine.alive
    assert "trackside.status" not in stored(reporter).others
    assert len(reported(stored(reporter)).points["eval/loss"]) == 2
    assert len(server().experiments) == 1


@pytest.mark.parametrize("how", ["a trial", "another key"])
def test_an_experiment_that_is_not_meant_goes_on_beside_ours(loop, new, how):
    import comet_ml

    mine = start_an_experiment()
    reporter = new(resume="f" * 32) if how == "another key" else new()
    training = loop(reporter)
    if how == "a trial":
        training.state.is_hyper_param_search, training.state.trial_name = True, "trial-0"
    training.begin()
    training.log_at(1, loss=0.5)
    training.fire("on_train_end")
    assert reporter.tracker_id != KEY
    assert comet_ml.get_running_experiment() is mine
    assert mine.alive
    assert server().experiments[KEY].metrics == []


def test_what_follows_an_experiment_that_its_user_has_ended_still_arrives(loop, new):
    mine = start_an_experiment()
    reporter = new()
    training = loop(reporter)
    training.train()
    mine.end()
    training.evaluate()
    assert len(reported(stored(reporter)).points["eval/loss"]) == 2
    assert not stored(reporter).is_running


def test_ours_is_the_running_experiment_while_it_is_trained(loop, new):
    reporter = new()
    training = loop(reporter)
    training.begin()
    import comet_ml

    assert comet_ml.get_running_experiment() is reporter.run
    training.fire("on_train_end")
    assert comet_ml.get_running_experiment() is None


def test_an_experiment_that_somebody_else_ends_is_missed_loudly(loop, new, caplog):
    reporter = new()
    training = loop(reporter)
    training.begin()
    training.log_at(1, loss=0.5)
    reporter.run.end()
    training.log_at(2, loss=0.25)
    training.fire("on_train_end")
    assert reported(stored(reporter)).points["train/loss"] == [(1, 0.5)]
    assert sum("was ended by somebody else" in message for message in caplog.messages) == 1


def test_two_reporters_have_two_experiments(loop, new):
    one, two = new(project_name="one"), new(project_name="two")
    loop(one, two).train()
    assert (stored(one).project, stored(two).project) == ("one", "two")
    for reporter in (one, two):
        assert len(reported(stored(reporter)).points["train/loss"]) == 4


# ---- trouble --------------------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_ends_nothing(loop, new, caplog):
    import comet_ml.server

    comet_ml.server.SERVER.is_reachable = False
    training = loop(new())
    training.train()
    assert training.state.global_step == 4
    assert sum("comet_ml cannot be reached" in message for message in caplog.messages) == 1


def test_what_a_server_that_went_away_has_not_got_is_not_said_to_be_safe(loop, new):
    reporter = new()
    loop(reporter).begin()
    assert reporter.flush() is None
    server().is_reachable = False
    assert reporter.flush() is NotImplemented
    with pytest.raises(ConnectionError) as refused:
        reporter.finish("finished")
    assert reporter.is_passing(refused.value)
    assert stored(reporter).is_running
    server().is_reachable = True
    reporter.finish("finished")
    assert not stored(reporter).is_running


def test_an_archive_is_not_safe_before_its_end(loop, new):
    reporter = new(online=False)
    loop(reporter).begin()
    assert reporter.flush() is NotImplemented


def test_what_could_not_be_written_into_an_archive_is_said_at_its_end(loop, new, caplog):
    reporter = new(online=False)
    training = loop(reporter)
    training.begin()
    reporter.run.customer_error_message = "no space left"
    training.fire("on_train_end")
    assert sum("has not taken everything: no space left" in message for message in caplog.messages) == 1


def test_what_comet_drops_is_never_safe_and_said_at_the_end(loop, new, caplog):
    reporter = new()
    training = loop(reporter)
    training.begin()
    sender = logging.getLogger("comet_ml.streamer.handlers.online_handler")
    sender.error("no traceback")
    assert reporter.flush() is None
    try:
        raise ValueError
    except ValueError:
        sender.exception("Failed to send, got 500\n<html>")
    assert reporter.flush() is NotImplemented
    training.fire("on_train_end")
    assert not stored(reporter).is_running
    assert "finish failed (RuntimeError: Comet has not taken everything: Failed to send, got 500)" in caplog.text


def test_a_key_that_is_not_known_is_refused_and_not_shown(loop, new, monkeypatch, tmp_path):
    monkeypatch.setenv("COMET_API_KEY", "plain-looking-api-key")
    with pytest.raises(StartError, match="Comet does not know the API key") as refused:
        loop(new()).begin()
    assert not refused.value.__cause__.__cause__
    assert "plain-looking" not in str(refused.value)


def test_an_experiment_that_does_not_come_alive_is_refused_with_what_was_logged(loop, new, monkeypatch):
    from comet_ml import Experiment

    opened = Experiment.__init__

    def be_dead(self, *arguments):
        opened(self, *arguments)
        self.alive = False
        logging.getLogger("comet_ml.experiment").error("The project is full.\nSee the documentation.")

    monkeypatch.setattr(Experiment, "__init__", be_dead)
    with pytest.raises(StartError, match=r"RuntimeError: The project is full\.\)"):
        loop(new()).begin()


def test_a_start_that_takes_too_long_is_given_up_and_leaves_nothing_running(loop, new, monkeypatch, caplog):
    from comet_ml import Experiment

    monkeypatch.setattr("trackside_comet_ml.experiment.START_SECONDS", 0.05)
    opened, ended = Experiment.__init__, threading.Event()

    def be_slow(self, *arguments):
        time.sleep(0.3)
        opened(self, *arguments)

    monkeypatch.setattr(Experiment, "__init__", be_slow)
    monkeypatch.setattr(Experiment, "_close", lambda self: ended.set())
    loop(new()).begin()
    assert sum("no answer within 0.05 seconds" in message for message in caplog.messages) == 1
    assert ended.wait(10)


# ---- switches -------------------------------------------------------------------------------------------------------


def test_it_is_configured_with_a_key_wherever_comet_looks_for_it_or_offline(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert CometCallback().configured() == Configured()
    monkeypatch.delenv("COMET_API_KEY")
    assert "comet login" in CometCallback().configured().why
    assert CometCallback(online=False).configured() == Configured()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".env").write_text("OTHER_API_KEY=1\n")
    assert not CometCallback().configured()
    (tmp_path / ".env").write_text(f"COMET_API_KEY={API_KEY}\n")
    assert CometCallback().configured() == Configured()
    (tmp_path / ".env").unlink()
    for folder in (tmp_path, tmp_path / "elsewhere"):
        file = folder / ".comet.config"
        file.write_text(f"[comet]\napi_key={API_KEY}\n")
        monkeypatch.setenv("COMET_CONFIG", str(folder))
        assert CometCallback().configured() == Configured()
        file.unlink()
        assert not CometCallback().configured()
    assert "comet_ml" not in sys.modules


def test_a_key_that_the_program_has_given_to_comet_counts(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COMET_API_KEY")
    import comet_ml

    monkeypatch.setattr(comet_ml, "get_api_key", lambda api_key, config: API_KEY)
    assert CometCallback().configured() == Configured()


def test_where_comet_is_disabled_nothing_is_sent_and_nothing_fails(loop, new, monkeypatch, caplog):
    monkeypatch.setenv("COMET_AUTO_LOG_DISABLE", "1")
    reporter = new(log_assets=True)
    assert "COMET_AUTO_LOG_DISABLE" in reporter.configured().why
    training = loop(reporter)
    training.train()
    training.evaluate()
    reporter.close()
    assert server().experiments == {}
    assert reporter.where() is None
    assert not caplog.records


def test_an_import_of_ours_patches_prints_and_hooks_nothing_and_leaves_the_environment_as_it_is(loop, new):
    hook, environment = sys.excepthook, dict(os.environ)
    reporter = new()
    reporter.import_sdk()
    imported = sys.modules["comet_ml"].IMPORTED_WITH
    assert imported["COMET_DISABLE_AUTO_LOGGING"] == "1"
    assert imported["COMET_ERROR_TRACKING_ENABLE"] == "false"
    assert imported["COMET_LOGGING_CONSOLE"] == "CRITICAL"
    assert sys.excepthook is hook
    assert dict(os.environ) == environment


def test_who_wants_to_hear_comet_has_his_way(monkeypatch):
    monkeypatch.setenv("COMET_LOGGING_CONSOLE", "INFO")
    CometCallback().import_sdk()
    assert sys.modules["comet_ml"].IMPORTED_WITH["COMET_LOGGING_CONSOLE"] == "INFO"
    assert logging.getLogger("comet_ml").level == logging.INFO


def test_an_import_of_the_users_own_is_left_as_it_is():
    import comet_ml

    hook = sys.excepthook
    assert hook.__module__ == "comet_ml.exceptionhook"
    assert "COMET_DISABLE_AUTO_LOGGING" not in comet_ml.IMPORTED_WITH
    CometCallback().import_sdk()
    assert sys.excepthook is hook
