"""The contract of a reporter, and what is special in wandb, against a fake that refuses what the real one refuses."""

from __future__ import annotations

import math
import os
import pickle
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from reported import reported
from server import serving

from trackside import Point, StartError
from trackside_testkit import ReporterContract
from trackside_testkit.integration import declared_options, documented_options, maker_of
from trackside_testkit.loop import FakeConfig, FakeModel
from trackside_wandb import WandbCallback
from trackside_wandb.rows import Rows

README = Path(__file__).parents[1] / "README.md"


class TestWandb(ReporterContract):
    reporter_class = WandbCallback
    nearest_status = {"pruned": "killed"}  # noqa: RUF012 - as the contract has it

    def make_reporter(self, **options):
        return WandbCallback(mode="offline", log_model="checkpoint", **options)

    def read(self):
        from wandb.run import RUNS

        return [self.reported(run) for run in RUNS]

    def reported(self, run):
        artifacts = [(artifact.aliases, list(artifact.files)) for artifact in run.artifacts]
        return reported(run.rows, run.config, run.summary, artifacts, run.exit_code)


# ---- what tests look at ---------------------------------------------------------------------------------------------


new = maker_of(partial(WandbCallback, mode="offline"))


def runs():
    from wandb.run import RUNS

    return RUNS


def test_the_table_of_options_in_the_readme_is_that_of_the_class():
    assert documented_options(README) == declared_options(WandbCallback)


# ---- points ---------------------------------------------------------------------------------------------------------


def test_steps_that_go_back_and_calls_of_the_user_lose_nothing(loop, new):
    import wandb

    reporter = new()
    training = loop(reporter)
    training.begin()
    for number in range(3):
        wandb.log({"mine": number})
    training.log_at(1, loss=0.5)
    training.log_at(10, loss=0.25)
    wandb.log({"mine": 3})
    training.log_at(5, eval_loss=0.75)
    (run,) = runs()
    assert run.metrics == {"train/global_step": None, "trackside/logged_at": None, "*": "train/global_step"}
    assert [row["mine"] for row in run.rows if "mine" in row] == [0, 1, 2, 3]
    found = [(row["train/global_step"], row.get("train/loss"), row.get("eval/loss")) for row in run.rows[3:]]
    assert found == [(1, 0.5, None), (10, 0.25, None), (10, None, None), (5, None, 0.75)]


def test_a_row_has_the_time_at_which_the_loop_logged_it(loop, new, monkeypatch):
    training = loop(new())
    training.begin()
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5678)
    training.log_at(1, loss=0.5, note="half-way")
    assert [row["_timestamp"] for row in runs()[0].rows] == [1234.5678] * 2


def points(*times):
    return [Point({"train/loss": 0.5}, step, None, time) for step, time in enumerate(times)]


def times(run):
    return [row["_timestamp"] for row in run.rows]


def test_points_that_a_continued_run_has_already_are_not_sent_again(loop, new):
    reporter = new()
    loop(reporter).fire("on_train_begin")
    (run,) = runs()
    reporter.log_points(points(1000.0, 1001.0))
    reporter._rows = Rows(run, run.rows[-1]["trackside/logged_at"])  # as the next process finds it
    reporter.log_text("train/note", "old", 0, 1000.0)
    reporter.log_points(points(1000.0, 1001.0, 1002.0))
    reporter.log_text("train/note", "new", 2, 1002.0)
    assert times(run) == [1000.0, 1001.0, 1002.0, 1002.0]
    assert run.rows[-1]["train/note"] == "new"


def test_a_clock_that_was_set_back_loses_nothing(loop, new):
    reporter = new()
    loop(reporter).fire("on_train_begin")
    (run,) = runs()
    reporter._rows = Rows(run, 1001.0)
    reporter.log_points(points(1000.0, 1001.0, 900.0, 901.0))
    assert times(run) == [900.0, 901.0]


def test_points_that_come_after_the_latest_row_are_all_sent(loop, new):
    reporter = new()
    loop(reporter).fire("on_train_begin")
    (run,) = runs()
    reporter._rows = Rows(run, 1001.0)
    reporter.log_points(points(1001.5, 1000.0))
    assert times(run) == [1001.5, 1000.0]


def test_a_row_after_a_refusal_does_not_say_that_all_before_it_is_there(loop, new, monkeypatch):
    reporter = new()
    loop(reporter).fire("on_train_begin")
    (run,) = runs()
    reporter.log_points(points(1000.0))
    with monkeypatch.context() as patch:
        patch.setattr(run, "log", refuse)
        with pytest.raises(RuntimeError):
            reporter.log_points(points(1001.0))
    reporter.log_points(points(1002.0))
    assert times(run) == [1000.0, 1002.0]
    assert [row.get("trackside/logged_at") for row in run.rows] == [1000.0, None]


def refuse(*args, **kwargs):
    raise RuntimeError("not today")


# ---- params and texts -----------------------------------------------------------------------------------------------


def test_params_that_json_cannot_hold_are_texts(loop, new):
    loop(
        new(), lr_scheduler_kwargs={"ratio": math.nan, "most": math.inf, "list": [1, -math.inf], "huge": 10**30}
    ).train()
    config = runs()[0].config
    found = [config[f"lr_scheduler_kwargs/{name}"] for name in ("ratio", "most", "list", "huge")]
    assert found == ["nan", "inf", [1, "-inf"], 10**30]


def test_params_whose_names_differ_by_dashes_at_their_ends_stay_apart(loop, new):
    model = FakeModel(FakeConfig(**{"x": 1, "-x": 2, "x-": 3, "--x": 4}))
    loop(new(), model=model).train()
    config = runs()[0].config
    assert config["x"] == 1
    assert sorted(value for key, value in config.items() if key.startswith("x_")) == [2, 3, 4]


def test_changed_params_of_a_continued_run_are_kept_old_and_new(loop, new):
    reporter = new()
    training = loop(reporter)
    training.begin()
    reporter.log_params({"lr": 0.5, "seed": 1})
    reporter.log_params({"lr": 0.25, "seed": 1})
    reporter.log_params({"lr": 0.25, "seed": 2})
    config = runs()[0].config
    assert (config["lr"], config["seed"]) == (0.25, 2)
    assert config["trackside/changed_params"] == {"lr": [0.5, 0.25], "seed": [1, 2]}


def test_a_run_says_what_was_typed_without_secrets_and_how_large_its_model_is(loop, new, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "0.1", "--api-key=plain-looking-key"])
    model = FakeModel()
    model.num_parameters = lambda: 7
    loop(new(), model=model).train()
    (run,) = runs()
    assert run.config["trackside/command"].startswith("train.py --lr 0.1")
    assert run.config["model/num_parameters"] == 7
    assert run.settings.x_disable_meta is True
    assert "plain-looking-key" not in repr(run.config)


def test_a_command_without_secrets_may_be_found_out_by_wandb(loop, new, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "0.1"])
    loop(new()).train()
    assert runs()[0].settings.x_disable_meta is False


@pytest.mark.parametrize(("here", "is_left_out"), [(["-c"], False), (["trackside", "replay", "out"], True)])
def test_a_run_is_of_the_program_that_trains_whoever_reports_it(loop, new, monkeypatch, here, is_left_out):
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "0.1"])
    reporter = new()
    training = loop(reporter)
    start = reporter.start

    def start_elsewhere(run):
        monkeypatch.setattr(sys, "argv", here)
        return start(run)

    monkeypatch.setattr(reporter, "start", start_elsewhere)
    training.begin()
    settings = runs()[0].settings
    assert (settings.program, settings.x_disable_meta) == ("train.py", is_left_out)


def test_the_address_of_the_repository_has_no_credentials(loop, new, tmp_path):
    for command in (
        ["init", "-q"],
        ["remote", "add", "origin", "https://TOKEN@host/team/repository.git"],
        ["-c", "user.email=a@b", "-c", "user.name=c", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    loop(new()).train()
    settings = runs()[0].settings
    assert settings.git_remote_url == "https://***@host/team/repository.git"
    assert len(settings.git_commit) == 40


def test_a_text_that_is_cut_is_whole_in_a_file_whatever_its_name(loop, new, caplog):
    training = loop(new())
    training.begin()
    text = "word " * 4000
    for name in ("note", "../up", "a//b", "x" * 300, "two\nlines", "what?*"):
        training.log_at(7, **{name: text})
    (run,) = runs()
    cut = [row["train/note"] for row in run.rows if "train/note" in row]
    assert len(cut[0]) == 10_000
    assert run.files["texts/train/note/00000007.txt"] == text
    assert list(run.files.values()) == [text] * 6
    assert not [name for name in run.files if ".." in name or "?" in name or "*" in name]


def test_text_that_is_not_decodable_is_stored_with_a_question_mark(loop, new):
    training = loop(new(), run_name="caf\udce9")
    training.begin()
    training.log_at(1, note="caf\udce9")
    (run,) = runs()
    assert run.config["run_name"] == "caf?"
    assert run.rows[0]["train/note"] == "caf?"
    assert run.name == "caf?"


# ---- which run ------------------------------------------------------------------------------------------------------


def test_a_run_is_what_the_options_and_their_variables_say(loop, new, monkeypatch):
    options = {
        "WANDB_PROJECT": "digits",
        "WANDB_ENTITY": "team",
        "WANDB_NAME": "blue",
        "WANDB_RUN_GROUP": "colours",
        "WANDB_JOB_TYPE": "train",
        "WANDB_TAGS": f"one, two, {'x' * 70}",
        "WANDB_NOTES": "a first try",
        "WANDB_RUN_ID": "my-id",
        "WANDB_RESUME": "must",
    }
    for variable, value in options.items():
        monkeypatch.setenv(variable, value)
    loop(new()).train()
    (run,) = runs()
    assert (run.project, run.entity, run.name, run.group) == ("digits", "team", "blue", "colours")
    assert (run.job_type, run.tags, run.notes) == (
        "train",
        ("one", "two", "x" * 45 + "... (70 characters)"),
        "a first try",
    )
    assert (run.id, run.resume) == ("my-id", "must")


def test_the_folder_is_that_of_the_loop_unless_the_user_has_another(loop, new, tmp_path):
    loop(new()).train()
    loop(new(dir=str(tmp_path / "elsewhere"))).train()
    assert [Path(run.dir).parents[2] for run in runs()] == [tmp_path / "out", tmp_path / "elsewhere"]


def test_a_project_that_wandb_refuses_stops_the_program_at_its_start(loop, new):
    with pytest.raises(StartError, match="Invalid project name 'a/b'"):
        loop(new(project="a/b")).begin()


def test_a_trial_is_a_run_of_its_own_in_the_group_of_its_search(loop, new):
    import wandb

    users = wandb.init(project="mine", dir="out", mode="offline")
    training = loop(new(), run_name="search")
    for number in range(2):
        training.state = training._new_state()
        training.state.trial_name, training.state.trial_params = f"trial-{number}", {"lr": number}
        training.begin()
        training.log_at(1, loss=0.5)
        training.fire("on_train_end")
    assert [(run.name, run.group) for run in runs()[1:]] == [("trial-0", "search"), ("trial-1", "search")]
    assert users.rows == []
    users.finish()


def test_a_pruned_trial_is_killed_and_says_so_in_a_tag(loop, new):
    class TrialPruned(Exception):
        pass

    with pytest.raises(TrialPruned):
        loop(new(tags=["first"])).train(fail_at=2, exception=TrialPruned())
    assert (runs()[0].exit_code, runs()[0].tags) == (255, ("first", "pruned"))


def test_two_reporters_of_one_training_report_two_runs(loop, new):
    loop(new(project="one"), new(project="two")).train()
    first, second = runs()
    assert (first.project, second.project) == ("one", "two")
    assert first.id != second.id
    assert [len(run.rows) for run in runs()] == [6, 6]


def test_a_start_that_fails_half_way_and_is_tried_again_makes_no_second_run(loop, new, monkeypatch):
    from wandb.run import Run

    reporter = new()
    failures = [ConnectionError("not yet")]
    define = Run.define_metric

    def define_metric(self, *args, **kwargs):
        if failures:
            raise failures.pop()
        return define(self, *args, **kwargs)

    monkeypatch.setattr(Run, "define_metric", define_metric)
    start = reporter.start

    def start_twice(run):
        with pytest.raises(ConnectionError):
            start(run)
        return start(run)

    monkeypatch.setattr(reporter, "start", start_twice)
    loop(reporter).begin()
    assert len(runs()) == 1


# ---- runs of the user's own -----------------------------------------------------------------------------------------


@pytest.fixture
def users_run(loop):
    """A run that the user has opened before the training."""
    import wandb

    run = wandb.init(project="mine", dir="out", mode="offline")
    yield run
    run.finish()


def test_a_run_that_the_user_has_open_is_logged_to_and_never_finished(loop, new, users_run):
    import wandb

    reporter = new(tags=["ours"])
    loop(reporter).train()
    reporter.close()
    assert runs() == [users_run]
    assert [row["train/loss"] for row in users_run.rows if "train/loss" in row] == [0.5, 1 / 3, 0.25, 0.2]
    assert users_run.exit_code is None
    assert wandb.run is users_run


def test_a_run_that_the_user_has_open_is_left_alone_where_another_id_is_wanted(loop, new, users_run):
    import wandb

    reporter = new(resume="another")
    training = loop(reporter)
    training.begin()
    assert wandb.run is users_run
    training.log_at(1, loss=0.5)
    reporter.close()
    assert [run.id for run in runs()] == [users_run.id, "another"]
    assert users_run.rows == []


def test_our_run_is_what_wandb_means_until_it_is_closed(loop, new):
    import wandb

    reporter = new()
    training = loop(reporter)
    training.begin()
    assert wandb.run is reporter.run
    training.fire("on_train_end")
    wandb.log({"late": 1})
    assert runs()[0].rows[-1]["late"] == 1
    training.begin()
    assert wandb.run is reporter.run is runs()[1]
    reporter.close()
    assert wandb.run is None
    assert [run.exit_code for run in runs()] == [0, 0]


# ---- off, online, and what is known before the start ----------------------------------------------------------------


@pytest.mark.parametrize("word", ["1", "true", "TRUE", "yes", "on", "Y", "t"])
def test_each_spelling_of_true_switches_wandb_off_without_an_error(loop, new, monkeypatch, caplog, word):
    import wandb

    monkeypatch.setenv("WANDB_DISABLED", word)
    reporter = new()
    assert reporter.configured()
    training = loop(reporter)
    training.begin()
    wandb.log({"mine": 1})  # harmless, as in any other run
    training.fire("on_train_end")
    reporter.close()
    assert runs() == []
    assert sum("switched off" in message for message in caplog.messages) == 1
    reporter.required = False  # nobody has named it
    assert "switches it off" in reporter.configured().why


@pytest.mark.parametrize("word", ["0", "false", "FALSE", "no", "off", "N", "f", ""])
def test_each_spelling_of_false_leaves_it_on(loop, new, monkeypatch, word):
    monkeypatch.setenv("WANDB_DISABLED", word)
    loop(new()).train()
    assert len(runs()) == 1


def test_wandb_is_switched_off_by_its_mode_too(loop, new, monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    reporter = WandbCallback(log_model="end")
    loop(reporter).train()
    reporter.close()
    assert runs() == []
    assert not (tmp_path / "out" / "wandb").exists()


@pytest.fixture
def home(tmp_path, monkeypatch):
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_key_it_is_not_configured_and_says_what_to_type(home):
    answer = WandbCallback().configured()
    assert not answer
    assert "wandb login" in answer.why


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("WANDB_API_KEY", "0" * 40),
        ("WANDB_IDENTITY_TOKEN_FILE", "/token"),
        ("WANDB_MODE", "offline"),
        ("WANDB_MODE", "dryrun"),
        ("WANDB_MODE", "disabled"),
        ("WANDB_DISABLED", "true"),
    ],
)
def test_it_is_configured_by_what_the_environment_says(home, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    assert WandbCallback().configured()


@pytest.mark.parametrize(
    ("file", "content", "base_url"),
    [
        (".netrc", "machine api.wandb.ai login user password secret", None),
        (".netrc", "machine wandb.example.org:8080 login user password secret", "https://wandb.example.org:8080"),
        ("_netrc", "machine api.wandb.ai login user password secret", None),
        (".config/wandb/settings", "[default]\nmode = offline", None),
        ("wandb/settings", "[default]\nmode = offline", None),
    ],
)
def test_it_is_configured_by_what_wandb_has_written_down(home, file, content, base_url):
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    (home / file).write_text(content)
    assert WandbCallback(base_url=base_url).configured()


def test_a_key_for_another_server_is_none(home):
    (home / ".netrc").write_text("machine api.wandb.ai login user password secret")
    (home / ".config/wandb").mkdir(parents=True)
    (home / ".config/wandb/settings").write_text("[default]\nbase_url = https://wandb.example.org")
    assert not WandbCallback().configured()


def test_without_a_key_nobody_is_asked_for_one(loop, new):
    with pytest.raises(StartError, match="type: wandb login"):
        loop(new(mode="online")).begin()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble_ends_nothing_and_leaves_nothing_behind(loop, new, monkeypatch, caplog, tmp_path, status):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    with serving() as server:
        server.statuses["graphql"] = status
        training = loop(new(mode="online", base_url=server.url))
        training.train()
    assert training.state.global_step == 4
    assert sum("wandb cannot be reached" in message for message in caplog.messages) == 1
    assert not list((tmp_path / "out").glob("wandb/*"))


def test_a_server_behind_a_proxy_of_wandbs_own_is_not_asked(loop, new, monkeypatch, caplog):
    from wandb.settings import Settings

    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setattr(Settings, "https_proxy", "http://proxy:3128")
    monkeypatch.setattr(Settings, "server", "up", raising=False)
    loop(new(mode="online", base_url="https://wandb.invalid/")).train()
    assert [run.url for run in runs()] == [f"https://wandb.test/huggingface/runs/{runs()[0].id}"]
    assert not caplog.records


def test_a_server_that_is_gone_ends_nothing(loop, new, monkeypatch, caplog):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    with serving() as server:
        pass
    loop(new(mode="online", base_url=server.url)).train()
    assert sum("wandb cannot be reached" in message for message in caplog.messages) == 1


def test_what_the_server_refuses_for_good_is_told_from_what_may_pass(new):
    from wandb.errors import CommError, UsageError

    reporter = new()
    for passing in (CommError("context deadline exceeded"), CommError("returned error 503"), CommError("error 429")):
        assert reporter.is_passing(passing)
    for final in (CommError("returned error 401: {}"), CommError("returned error 404"), UsageError("no such project")):
        assert not reporter.is_passing(final)


def test_an_end_that_the_server_does_not_take_in_time_is_told_however_often_it_is_tried(loop, new, monkeypatch):
    from wandb.run import Run

    reporter = new()
    loop(reporter).begin()
    finish = Run.finish

    def finish_late(self, exit_code=None):
        is_first = self.exit_code is None
        finish(self, exit_code)
        if is_first:
            raise TimeoutError("Timed out finishing run.")

    monkeypatch.setattr(Run, "finish", finish_late)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="in time") as late:
            reporter.finish("finished")
        assert not reporter.is_passing(late.value)


# ---- models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["false", "0", "no", "", "FALSE"])
def test_no_model_is_sent_unless_it_is_wanted(loop, new, monkeypatch, word):
    monkeypatch.setenv("WANDB_LOG_MODEL", word)
    reporter = new()
    loop(reporter).train()
    assert not reporter.takes_artifacts
    assert runs()[0].artifacts == []


def sent():
    """The step and the files of each artifact, by its alias."""
    (run,) = runs()
    return {one.aliases[-1]: (one.metadata["global_step"], sorted(one.files)) for one in run.artifacts}


CHECKPOINT = ["model.bin", "trainer_state.json"]


def test_each_checkpoint_and_the_final_model_are_sent_on_request(loop, new, monkeypatch):
    monkeypatch.setenv("WANDB_LOG_MODEL", "checkpoint")
    loop(new(), num_train_epochs=2, run_name="blue").train()
    assert sent() == {
        "base_model": (0, ["model_architecture.txt"]),
        "checkpoint_global_step_4": (4, CHECKPOINT),
        "checkpoint_global_step_8": (8, CHECKPOINT),
        "final_model": (8, CHECKPOINT),
    }
    (run,) = runs()
    assert {one.name for one in run.artifacts} == {"model-blue"}
    assert run.artifacts[1].aliases == ["latest", "epoch_1.0", "checkpoint_global_step_4"]
    assert run.artifacts[1].metadata["eval/loss"] == 0.2


def test_the_final_model_alone_is_sent_on_request(loop, new):
    loop(new(log_model="end"), num_train_epochs=2).train()
    assert sent() == {"base_model": (0, ["model_architecture.txt"]), "final_model": (8, CHECKPOINT)}
    assert {one.name for one in runs()[0].artifacts} == {f"model-{runs()[0].id}"}


def test_the_best_model_is_sent_where_the_loop_ends_with_that(loop, new, tmp_path):
    training = loop(new(log_model="end"), load_best_model_at_end=True)
    training.begin()
    training.state.global_step = 4
    best = training.save()
    (best / "best.txt").write_text("yes")
    training.state.global_step = 8
    training.save()
    training.state.best_model_checkpoint = str(best)
    training.fire("on_train_end")
    assert sent()["final_model"] == (8, ["best.txt", *CHECKPOINT])


def test_a_final_model_that_nobody_has_saved_is_one_warning(loop, new, caplog):
    loop(new(log_model="end"), save_strategy="no").train()
    assert sent().keys() == {"base_model"}
    assert sum("nothing was saved at" in message for message in caplog.messages) == 1


def test_a_model_that_cannot_be_printed_is_one_warning(loop, new, caplog):
    class Unprintable(FakeModel):
        def __str__(self):
            raise RuntimeError("the weights are elsewhere")

    loop(new(log_model="end"), model=Unprintable()).train()
    assert sent().keys() == {"final_model"}
    assert sum("the weights are elsewhere" in message for message in caplog.messages) == 1


UNKNOWN_WORDS = {"WANDB_LOG_MODEL": "sometimes", "WANDB_WATCH": "closely", "WANDB_DISABLED": "maybe"}


@pytest.mark.parametrize("variable", UNKNOWN_WORDS)
def test_a_word_that_nobody_knows_stops_the_program_at_its_start(loop, new, monkeypatch, variable):
    monkeypatch.setenv(variable, UNKNOWN_WORDS[variable])
    with pytest.raises(StartError, match=f"{variable}='{UNKNOWN_WORDS[variable]}' is not understood"):
        loop(new()).train()


@pytest.mark.parametrize("variable", UNKNOWN_WORDS)
def test_a_word_that_nobody_knows_ends_no_training_where_nobody_named_wandb(loop, new, monkeypatch, caplog, variable):
    monkeypatch.setenv(variable, UNKNOWN_WORDS[variable])
    reporter = new()
    reporter.required = False
    training = loop(reporter)
    training.train()
    assert training.state.global_step == 4
    assert sum(variable in message for message in caplog.messages) == 1
    with pytest.raises(ValueError, match=variable):
        reporter.configured()


@pytest.mark.parametrize("name", ["x" * 200, "a/b:c é", "../up"])
def test_an_artifact_has_a_name_that_wandb_takes(loop, new, name):
    loop(new(log_model="end"), run_name=name).train()
    (artifact_name,) = {one.name for one in runs()[0].artifacts}
    assert re.fullmatch(r"model-[A-Za-z0-9_.-]{1,122}", artifact_name)


def test_metadata_are_what_json_can_hold_and_no_more_than_wandb_takes(loop, new):
    training = loop(new(log_model="checkpoint"))
    training.begin()
    training.log_at(1, loss=math.nan, **{f"metric_{number}": number for number in range(200)})
    training.save()
    (artifact,) = (one for one in runs()[0].artifacts if "checkpoint_global_step_1" in one.aliases)
    assert artifact.metadata["train/loss"] == "nan"
    assert len(artifact.metadata) == 100


# ---- watching a model -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["on_train_end", "on_exception", "close"])
def test_a_watched_model_has_hooks_until_the_training_ends_and_can_be_pickled_then(loop, new, end):
    model = FakeModel()
    reporter = new(watch="all")
    training = loop(reporter, model=model)
    training.begin()
    assert model._wandb_hook_names == ["all"]
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(model)
    reporter.close() if end == "close" else training.fire(end)
    assert pickle.loads(pickle.dumps(model)).config.hidden_size == 32
    assert not [name for name in vars(reporter) if vars(reporter)[name] is model]


def test_hooks_that_cannot_be_taken_off_end_no_training(loop, new, monkeypatch, caplog):
    from wandb.run import Run

    monkeypatch.setattr(Run, "unwatch", refuse)
    training = loop(new(watch="all"))
    training.train()
    assert training.state.global_step == 4
    assert sum("still watched" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("word", ["false", "0", "off", ""])
def test_no_model_is_watched_unless_it_is_wanted(loop, new, monkeypatch, word):
    monkeypatch.setenv("WANDB_WATCH", word)
    model = FakeModel()
    training = loop(new(), model=model)
    training.begin()
    assert pickle.dumps(model)


def test_histograms_are_no_more_frequent_than_the_logs(loop, new):
    model = FakeModel()
    training = loop(new(watch="gradients"), model=model)
    training.state.logging_steps = 500
    training.begin()
    assert model.hook() == 500


# ---- what others need -----------------------------------------------------------------------------------------------


def test_it_says_how_to_upload_an_offline_run_and_where_an_online_one_is_shown(loop, new):
    reporter = new()
    loop(reporter).begin()
    assert reporter.where() == f"wandb sync {Path(reporter.run.dir).parent}"
    reporter.run.offline = False
    assert reporter.where() == f"https://wandb.test/huggingface/runs/{reporter.tracker_id}"


def test_a_replay_is_told_where_the_run_is(loop, new):
    reporter = new(project="digits", entity="team")
    loop(reporter).begin()
    assert reporter.place() == {"project": "digits", "entity": "team", "base_url": "https://api.wandb.ai"}


def test_a_process_leaves_the_service_that_ends_with_its_parent(loop, new, monkeypatch):
    for token, is_left in ((f"3-{os.getppid()}-unix-/tmp/socket", True), ("3-1-tcp-localhost-80", False)):
        monkeypatch.setenv("WANDB_SERVICE", token)
        loop(new()).train()
        assert ("WANDB_SERVICE" not in os.environ) == is_left


def test_a_reporter_without_a_start_names_no_place():
    assert WandbCallback().place() == {}
    assert WandbCallback().where() is None
