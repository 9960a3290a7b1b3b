"""The contract of a reporter, and what is special in ClearML, against a fake that refuses what the real one refuses."""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
from dataclasses import make_dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from trackside import StartError
from trackside.records import Artifact
from trackside.values import flatten
from trackside_clearml import ClearMLCallback
from trackside_testkit import Reported, ReporterContract
from trackside_testkit.integration import declared_options, documented_options, maker_of

README = Path(__file__).parents[1] / "README.md"
SUMMARY = "Summary"


def server():
    from clearml import SERVER

    return SERVER


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("CLEARML_API_ACCESS_KEY", "a-key")


class TestClearML(ReporterContract):
    reporter_class = ClearMLCallback
    nearest_status = {"finished": "completed", "killed": "stopped", "pruned": "stopped"}  # noqa: RUF012 - as the contract has it

    def make_reporter(self, **options):
        return ClearMLCallback(log_model=True, **options)

    def read(self):
        return [self.reported(task) for task in server().tasks.values()]

    def reported(self, task):
        scalars, console = server().scalars(task["id"]), server().console(task["id"])
        texts = [match.groups() for line in console if (match := re.fullmatch(r"(?s)(.+) at step (\d+): (.*)", line))]
        model = json.loads(task["configuration"].get("Model Configuration", {"value": "{}"})["value"])
        return Reported(
            points=Reported.by_key((f"{title}/{series}", step, value) for title, series, step, value in scalars),
            params={**flatten(model), **server().parameters(task["id"], "Transformers")},
            texts=Reported.by_key((key, int(step), text) for key, step, text in texts),
            summary={f"train/{series}": value for title, series, _, value in scalars if title == SUMMARY},
            artifacts={path: self.files_in(path) for path in server().files if f"/{task['id']}/" in path},
            status=task["status"],
        )

    def files_in(self, path):
        if not path.endswith(".zip"):
            return [path.rpartition("/")[2]]
        file = self.around / "package.zip"
        file.write_bytes(server().files[path])
        names = ZipFile(file).namelist()
        file.unlink()
        return names


def test_the_table_of_options_in_the_readme_is_that_of_the_class():
    assert documented_options(README) == declared_options(ClearMLCallback)


# ---- what tests look at ---------------------------------------------------------------------------------------------


new = maker_of(ClearMLCallback)


@pytest.fixture
def mine(loop):
    """A task that the user has open, of which he is still in charge after the test."""
    from clearml import Task
    from clearml.backend_api import Session
    from clearml.backend_interface.base import InterfaceBase

    InterfaceBase._set_default_session(Session(http_retries_config={"total": 2}))
    Task._report_subprocess_enabled = False
    leave = sys.exit
    task = Task.init("mine", "task")
    sys.exit = leave
    yield task
    assert Task.current_task() is task
    atexit.unregister(task._at_exit)
    task.close()


def task_of(reporter):
    return server().tasks[reporter.tracker_id]


def parameters(reporter, section="Transformers"):
    return server().parameters(reporter.tracker_id, section)


# ---- values ---------------------------------------------------------------------------------------------------------


def test_scalars_have_their_own_iteration_and_the_time_at_which_the_loop_logged_them(loop, new, monkeypatch):
    reporter = new()
    training = loop(reporter)
    training.begin()
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5678)
    training.log_at(30, loss=1)
    training.log_at(3, eval_loss=0.5)
    scalars = [event for event in server().events if event["type"] == "training_stats_scalar"]
    assert {event["timestamp"] for event in scalars} == {1234568}
    found = [scalar for scalar in server().scalars(reporter.tracker_id) if scalar[1] != "epoch"]
    assert found == [("train", "loss", 30, 1.0), ("eval", "loss", 3, 0.5)]


def test_a_raw_name_has_a_plot_of_its_own(loop, new):
    reporter = new(key_style="raw")
    training = loop(reporter)
    training.begin()
    training.log_at(1, loss=0.5)
    assert ("loss", "loss", 1, 0.5) in server().scalars(reporter.tracker_id)


def test_what_is_no_number_of_32_bits_is_a_line_of_the_console_and_no_zero(loop, new, caplog):
    reporter = new()
    training = loop(reporter)
    training.begin()
    for step in (3, 7):
        training.log_at(step, loss=float(step), grad_norm=float("inf"), broken=float("nan"), huge=-1e39)
    training.log_at(7, train_loss=float("nan"), total_flos=5.0)
    assert [value for *_, value in server().scalars(reporter.tracker_id) if value] == [3.0, 7.0, 5.0]
    assert server().console(reporter.tracker_id) == [
        "train/grad_norm is inf at step 3",
        "train/broken is nan at step 3",
        "train/huge is -1e+39 at step 3",
        "train/grad_norm is inf at step 7",
        "train/broken is nan at step 7",
        "train/huge is -1e+39 at step 7",
        "train_loss is nan",
    ]
    assert sum("draws no nan" in message for message in caplog.messages) == 1


def test_what_is_logged_once_is_a_single_value(loop, new):
    reporter = new()
    loop(reporter).train()
    single = {series: step for title, series, step, _ in server().scalars(reporter.tracker_id) if title == SUMMARY}
    assert single == dict.fromkeys(("train_runtime", "train_samples_per_second", "train_loss", "total_flos"), -(2**31))


# ---- parameters -----------------------------------------------------------------------------------------------------


def test_arguments_and_the_config_of_the_model_have_sections_of_their_own(loop, new):
    reporter = new()
    loop(reporter, learning_rate=0.25).train()
    assert parameters(reporter)["learning_rate"] == "0.25"
    assert "hidden_size" not in parameters(reporter)
    config = task_of(reporter)["configuration"]["Model Configuration"]
    assert (json.loads(config["value"])["hidden_size"], config["type"]) == (32, "json")


def test_what_a_resumed_run_has_changed_is_a_line_of_the_console(loop, new):
    first = new()
    loop(first, learning_rate=0.5).train()
    second = new(resume=first.tracker_id)
    training = loop(second, learning_rate=0.25, seed=7)
    training.begin()
    assert parameters(second)["learning_rate"] == "0.25"
    lines = server().console(second.tracker_id)
    assert "Transformers/learning_rate was 0.5, is 0.25 from step 0" in lines
    assert sum(" was " in line for line in lines) == 2


def test_a_parameter_that_is_cut_is_whole_in_an_artifact(loop, new, caplog):
    reporter = new()
    loop(reporter, lr_scheduler_kwargs={"note": "x" * 10_001}).train()
    assert parameters(reporter)["lr_scheduler_kwargs/note"].endswith("... (10001 characters)")
    (content,) = (content for path, content in server().files.items() if "lr_scheduler_kwargs/note" in path)
    assert content == b"x" * 10_001
    assert sum("lr_scheduler_kwargs/note" in message for message in caplog.messages) == 1


def test_a_run_says_what_was_typed_and_how_it_has_ended(loop, new, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "0.1", "--api-key=plain-looking-key"])
    reporter = new()
    loop(reporter).train()
    about = parameters(reporter, "trackside")
    assert about["command"].startswith("train.py --lr 0.1")
    assert "plain-looking-key" not in about["command"]
    assert about["status"] == "finished"


# ---- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "options", "project", "name"),
    [
        ({}, {}, "HuggingFace Transformers", "blue"),
        ({"CLEARML_PROJECT": "digits", "CLEARML_TASK": "first"}, {}, "digits", "first"),
        ({"CLEARML_PROJECT": "digits"}, {"project_name": "letters", "task_name": "second"}, "letters", "second"),
    ],
)
def test_project_and_task_are_named_by_options_variables_or_the_run(
    loop, new, monkeypatch, variables, options, project, name
):
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    reporter = new(**options)
    loop(reporter, run_name="blue").train()
    assert (task_of(reporter)["project"], task_of(reporter)["name"]) == (project, name)


def test_trials_of_a_search_are_told_apart_in_a_task_that_the_user_has_named(loop, new):
    reporter = new(task_name="search")
    training = loop(reporter)
    training.state.is_hyper_param_search, training.state.trial_name = True, "trial-0"
    training.begin()
    assert task_of(reporter)["name"] == "search-trial-0"


def test_what_else_the_sdk_can_do_is_off_unless_the_user_wants_it(loop, new):
    from clearml import Task

    loop(new(task_init={"auto_connect_streams": True, "tags": ["vision"]})).begin()
    arguments, frameworks, streams, machine = Task.current_task().connected
    assert (arguments, set(frameworks.values()), streams, machine) == (False, {False}, True, False)
    assert task_of_current()["tags"] == ["vision"]


def task_of_current():
    from clearml import Task

    return server().tasks[Task.current_task().id]


# ---- resume ---------------------------------------------------------------------------------------------------------


def test_a_resumed_run_has_its_iterations_right_after_the_start(loop, new, tmp_path):
    first = new()
    with pytest.raises(RuntimeError):
        loop(first, num_train_epochs=2).train(fail_at=6)
    second = new()
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert second.tracker_id == first.tracker_id
    losses = [
        step for title, series, step, _ in server().scalars(second.tracker_id) if (title, series) == ("train", "loss")
    ]
    assert losses == [1, 2, 3, 4, 5, 5, 6, 7, 8]
    assert task_of(second)["status"] == "completed"


@pytest.mark.parametrize("fate", ["deleted", "published"])
def test_a_checkpoint_whose_task_takes_no_more_starts_another_one(loop, new, tmp_path, caplog, fate):
    first = new()
    loop(first).train()
    if fate == "deleted":
        del server().tasks[first.tracker_id]
    else:
        task_of(first)["status"] = "published"
    second = new()
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert second.tracker_id != first.tracker_id
    assert sum("another one is started" in message for message in caplog.messages) == 1


def test_a_task_that_the_user_names_and_that_is_not_there_is_refused(loop, new):
    with pytest.raises(StartError, match="there is no task 0000"):
        loop(new(resume="0000")).begin()


def test_a_start_that_fails_half_way_and_is_tried_again_makes_no_second_task(loop, new, monkeypatch):
    from clearml import Task

    reporter = new()
    start, update = reporter.start, Task.update_parameters
    monkeypatch.setattr(Task, "update_parameters", refuse)

    def start_twice(run):
        with pytest.raises(ConnectionError):
            start(run)
        monkeypatch.setattr(Task, "update_parameters", update)
        return start(run)

    monkeypatch.setattr(reporter, "start", start_twice)
    loop(reporter).begin()
    assert len(server().tasks) == 1
    assert parameters(reporter, "trackside")["run"]


def refuse(*arguments, **options):
    raise ConnectionError


def test_a_finish_that_fails_half_way_can_be_made_again(loop, new):
    reporter = new()
    loop(reporter).begin()
    server().trouble = 500
    with pytest.raises(Exception, match="there is trouble"):
        reporter.finish("failed")
    server().trouble = None
    reporter.finish("failed")
    reporter.finish("failed")
    assert task_of(reporter)["status"] == "failed"


# ---- a task that the user has open ----------------------------------------------------------------------------------


def test_each_run_has_sections_plots_and_models_of_its_own_in_a_task_of_the_users(loop, new, mine):
    mine.set_parameters({"General/mine": 1})
    runs = [new(log_model=True) for _ in range(2)]
    for number, reporter in enumerate(runs, 1):
        loop(reporter, learning_rate=number / 4).train()
    assert {reporter.tracker_id for reporter in runs} == {mine.id}
    assert server().parameters(mine.id, "General") == {"mine": "1"}
    assert server().parameters(mine.id, "Transformers")["learning_rate"] == "0.25"
    assert server().parameters(mine.id, "Transformers_2")["learning_rate"] == "0.5"
    assert set(server().tasks[mine.id]["configuration"]) == {"Model Configuration", "Model Configuration_2"}
    assert server().names_of_models(mine.id) == ["checkpoint-4", "checkpoint-4_2"]
    titles = {title for title, *_ in server().scalars(mine.id)}
    assert titles == {"train", "train_2", "eval", "eval_2", SUMMARY}
    single = {series for title, series, *_ in server().scalars(mine.id) if title == SUMMARY}
    assert {"train_loss", "train_loss_2"} <= single
    assert server().tasks[mine.id]["status"] == "in_progress"


def test_a_run_that_is_resumed_or_evaluated_keeps_its_section_in_a_task_of_the_users(loop, new, mine, tmp_path):
    loop(new()).train()
    training = loop(new(), output_dir=tmp_path / "second", num_train_epochs=2)
    with pytest.raises(RuntimeError):
        training.train(fail_at=6)
    training.evaluate()
    loop(new(), output_dir=tmp_path / "second", num_train_epochs=2).train(
        resume_from=tmp_path / "second" / "checkpoint-4"
    )
    titles = {title for title, *_ in server().scalars(mine.id)}
    assert titles == {"train", "train_2", "eval", "eval_2", SUMMARY}


def test_another_task_cannot_be_continued_while_the_users_is_open(loop, new, mine):
    with pytest.raises(StartError, match="a task is open in this program"):
        loop(new(resume="0000")).begin()


def test_two_runs_cannot_be_open_at_once(loop, new, tmp_path):
    loop(new(project_name="one")).begin()
    with pytest.raises(StartError, match="one task at a time"):
        loop(new(project_name="two"), output_dir=tmp_path / "second").begin()


def test_the_task_that_an_agent_runs_is_logged_to_and_left_to_the_agent(loop, new, monkeypatch):
    task_id = server().answer("tasks.create", {"name": "queued", "project": "digits"})["id"]
    server().answer("tasks.started", {"task": task_id})
    monkeypatch.setenv("CLEARML_TASK_ID", task_id)
    reporter = new()
    loop(reporter).train()
    assert (reporter.tracker_id, reporter.adopted) == (task_id, True)
    assert task_of(reporter)["status"] == "in_progress"
    assert len(server().tasks) == 1


# ---- models ---------------------------------------------------------------------------------------------------------


def limited(training, limit, best=None):
    """A training that keeps `limit` checkpoints, of which one is said to be the best."""
    extended = make_dataclass("Extended", [("save_total_limit", int, limit)], bases=(type(training.args),))
    training.args = extended(**vars(training.args))
    keep_best = training._keep_best

    def know_best(metrics):
        keep_best(metrics)
        training.state.best_model_checkpoint = best

    training._keep_best = know_best
    return training


@pytest.mark.parametrize(
    ("limit", "best", "kept"),
    [(2, None, [12, 16]), (1, None, [16]), (2, "out/checkpoint-4", [4, 16]), (1, "out/checkpoint-8", [8, 16])],
)
def test_models_are_rotated_with_the_checkpoints_and_the_best_one_stays(loop, new, limit, best, kept):
    reporter = new(log_model=True)
    limited(loop(reporter, num_train_epochs=4), limit, best).train()
    assert server().names_of_models(reporter.tracker_id) == [f"checkpoint-{step}" for step in kept]
    assert len(server().files) == len(kept)


def test_models_of_a_resumed_run_are_rotated_too(loop, new, tmp_path):
    with pytest.raises(RuntimeError):
        loop(new(log_model=True), num_train_epochs=4).train(fail_at=10)
    reporter = new(log_model=True)
    training = limited(loop(reporter, num_train_epochs=4), 1)
    training.train(resume_from=tmp_path / "out" / "checkpoint-8")
    assert server().names_of_models(reporter.tracker_id) == ["checkpoint-16"]


def test_a_checkpoint_that_is_saved_again_takes_the_place_of_its_model(loop, new):
    reporter = new(log_model=True)
    training = loop(reporter)
    training.begin(4)
    for _ in range(2):
        training.save()
        training.log({"loss": 0.5})
    assert server().names_of_models(reporter.tracker_id) == ["checkpoint-4"]
    assert [path.rpartition("/")[2] for path in server().files] == ["checkpoint-4.zip"]


@pytest.mark.parametrize(("text", "is_sent"), [(None, False), ("FALSE", False), ("TRUE", True)])
def test_checkpoints_are_sent_on_request(loop, new, monkeypatch, text, is_sent):
    if text is not None:
        monkeypatch.setenv("CLEARML_LOG_MODEL", text)
    loop(new()).train()
    assert bool(server().models) == is_sent


def test_a_single_file_is_sent_as_it_is(loop, new, tmp_path):
    reporter = new(log_model=True)
    loop(reporter).begin()
    file = tmp_path / "notes.txt"
    file.write_text("a text")
    reporter.log_artifact(Artifact(str(file), "notes", "file"))
    assert list(server().files.values()) == [b"a text"]


# ---- the process ----------------------------------------------------------------------------------------------------


def test_nothing_closes_the_task_but_us_and_nothing_is_printed_or_patched(loop, new, capfd):
    from clearml import Task
    from clearml.binding.environ_bind import PatchOsFork

    leave = sys.exit
    loop(new()).begin()
    assert Task.hooks == {"exit"}
    assert sys.exit is leave
    assert PatchOsFork._current_task is None
    atexit.unregister(Task.current_task()._at_exit)
    assert not Path.home().joinpath(".clearml").exists()
    assert capfd.readouterr().out == ""


def test_a_task_that_the_user_opens_later_does_all_that_it_is_used_to(loop, new, capfd):
    import clearml.logger

    loop(new()).train()
    assert clearml.Task._report_subprocess_enabled
    clearml.logger.report_text("mine")
    assert capfd.readouterr().out == "mine\n"


def test_a_child_of_a_program_that_had_a_task_has_one_of_its_own(loop, new, monkeypatch):
    monkeypatch.setenv("CLEARML_PROC_MASTER_ID", "1:00000000")
    reporter = new()
    loop(reporter).train()
    assert task_of(reporter)["status"] == "completed"
    assert "CLEARML_PROC_MASTER_ID" not in os.environ


def test_the_run_is_the_current_task_while_it_is_trained(loop, new):
    from clearml import Task

    reporter = new()
    training = loop(reporter)
    training.begin()
    assert Task.current_task() is reporter.run
    assert Task.current_task().id == reporter.tracker_id
    training.fire("on_train_end")
    assert Task.current_task() is None


# ---- servers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [0, 429, 500, 502])
def test_a_server_that_cannot_be_reached_ends_nothing(loop, new, caplog, trouble):
    server().trouble = trouble
    training = loop(new())
    training.train()
    assert training.state.global_step == 4
    assert sum("clearml cannot be reached" in message for message in caplog.messages) == 1


def test_a_wrong_key_is_refused_at_once(loop, new, monkeypatch):
    monkeypatch.setenv("CLEARML_API_ACCESS_KEY", "wrong")
    with pytest.raises(StartError, match="invalid credentials"):
        loop(new()).begin()


def test_without_a_key_it_says_what_to_type(loop, new, monkeypatch):
    monkeypatch.delenv("CLEARML_API_ACCESS_KEY")
    with pytest.raises(StartError, match="type clearml-init"):
        loop(new()).begin()


@pytest.mark.parametrize(("trouble", "is_passing"), [(0, True), (500, True), (503, True), (429, True), (400, False)])
def test_what_a_call_raises_tells_whether_trying_again_may_help(loop, new, trouble, is_passing):
    from trackside import Point

    reporter = new()
    loop(reporter).begin()
    server().trouble = trouble
    for call in (
        lambda: reporter.log_points([Point({"train/loss": 0.5}, 1, None, 1.0)]),
        lambda: reporter.log_params({}),
    ):
        with pytest.raises(Exception, match=r"trouble|Max retries") as raised:
            call()
        assert reporter.is_passing(raised.value) == is_passing
    server().trouble = None


@pytest.mark.parametrize(
    ("variables", "is_configured"),
    [
        ({}, False),
        ({"CLEARML_API_ACCESS_KEY": "key"}, True),
        ({"CLEARML_AUTH_TOKEN": "key"}, True),
        ({"CLEARML_OFFLINE_MODE": "1"}, True),
        ({"CLEARML_OFFLINE_MODE": "2.30"}, True),
        ({"CLEARML_OFFLINE_MODE": "0"}, False),
        ({"CLEARML_CONFIG_FILE": __file__}, True),
        ({"CLEARML_CONFIG_FILE": "/gone"}, False),
    ],
)
def test_it_is_configured_by_a_key_a_file_or_the_offline_mode(monkeypatch, variables, is_configured):
    monkeypatch.delenv("CLEARML_API_ACCESS_KEY")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    answer = ClearMLCallback().configured()
    assert answer.ok == is_configured
    assert is_configured or "clearml-init" in answer.why


def test_it_says_where_the_run_is_shown(loop, new):
    reporter = new()
    assert reporter.where() is None
    loop(reporter).train()
    assert reporter.where() == f"https://app.clear.ml/projects/*/experiments/{reporter.tracker_id}/output/log"
