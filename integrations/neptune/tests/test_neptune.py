"""The contract of a reporter, and what is special in Neptune, against a fake that refuses what the real one refuses."""

from __future__ import annotations

import logging
import math
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from trackside import Point, Run, StartError
from trackside_neptune import NeptuneCallback
from trackside_testkit import FakeLoop, Reported, ReporterContract
from trackside_testkit.integration import declared_options, documented_options, maker_of

README = Path(__file__).parents[1] / "README.md"
BASE = ("finetuning",)
PARAMS = ("trainer_parameters", "model_parameters")


class TestNeptune(ReporterContract):
    reporter_class = NeptuneCallback

    def make_reporter(self, **options):
        from neptune.server import PROJECT, TOKEN

        return NeptuneCallback(api_token=TOKEN, project=PROJECT, log_checkpoints="same", **options)

    def read(self):
        from neptune import server

        return [reported(stored) for stored in server.RUNS]


def reported(stored):
    """A run as the server holds it; a step that lies a little behind another one is the same."""
    points, params, texts, summary, artifacts = [], {}, [], {}, {}
    for path, field in stored.fields.items():
        group, name = path[1], "/".join(path[2:])
        if path[:1] != BASE or group in ("trackside", "non_finite"):
            continue
        if group in PARAMS:
            params[name] = field.value
        elif group == "texts":
            texts += [(name, int(step), text) for step, text, _ in field.rows]
        elif group == "checkpoints":
            artifacts[name] = stored.files["/".join(path)]
        elif group == "files":
            artifacts.setdefault(group, set()).add(name)
        elif field.kind == "FloatSeries":
            points += [("/".join(path[1:]), int(step), value) for step, value, _ in field.rows]
        else:
            summary["/".join(path[1:])] = field.value
    assert stored.refused == []
    status = stored.fields[(*BASE, "trackside", "status")].value
    return Reported(Reported.by_key(points), params, Reported.by_key(texts), summary, artifacts, status)


def test_the_table_of_options_in_the_readme_is_that_of_the_class():
    assert documented_options(README) == declared_options(NeptuneCallback)


# ---- what tests look at ---------------------------------------------------------------------------------------------


def online(**options):
    from neptune.server import PROJECT, TOKEN

    return NeptuneCallback(**{"api_token": TOKEN, "project": PROJECT, **options})


new = maker_of(online)


@pytest.fixture
def server():
    """The server of the fake, which answers again after the test."""
    from neptune import server

    yield server
    server.answers.set()
    server.refuses_connections.clear()


def stored(reporter):
    from neptune import server

    (found,) = (run for run in (*server.RUNS, *server.OFFLINE) if run.id == reporter.tracker_id)
    return found


def field(reporter, path):
    return stored(reporter).fields[tuple(path.split("/"))]


def value(reporter, path):
    return field(reporter, f"finetuning/{path}").value


def rows(reporter, path):
    return [row[:2] for row in field(reporter, f"finetuning/{path}").rows]


def below(reporter, namespace):
    steps = tuple(namespace.split("/"))
    fields = stored(reporter).fields
    return {"/".join(path[len(steps) :]): found.value for path, found in fields.items() if path[: len(steps)] == steps}


# ---- metrics --------------------------------------------------------------------------------------------------------


def test_points_have_the_step_and_the_time_at_which_the_loop_logged_them(loop, new, monkeypatch):
    reporter = new()
    training = loop(reporter)
    training.begin()
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5678)
    training.log_at(3, loss=1, eval_loss=0.5)
    reporter.close()
    assert field(reporter, "finetuning/train/loss").rows == [(3.0, 1.0, 1234.5678)]
    assert field(reporter, "finetuning/eval/loss").rows == [(3.0, 0.5, 1234.5678)]


def test_the_epoch_is_one_value_as_with_the_callback_of_transformers(loop, new):
    reporter = new()
    loop(reporter, num_train_epochs=2).train()
    assert value(reporter, "train/epoch") == 2.0


def test_all_of_it_is_in_the_namespace_that_the_user_wants(loop, new):
    reporter = new(base_namespace="one/two")
    loop(reporter).train()
    assert {path[:2] for path in stored(reporter).fields if path[0] != "sys"} == {("one", "two")}


def test_an_evaluation_after_the_training_is_not_refused_for_its_step(loop, new):
    reporter = new()
    training = loop(reporter)
    training.train()
    for _ in range(2):
        training.evaluate()
    reporter.close()
    assert rows(reporter, "eval/loss") == [(4.0, 0.2), (4.001, 0.2), (4.002, 0.2)]
    assert stored(reporter).refused == []


def test_what_is_sent_again_arrives_once(loop, new, monkeypatch):
    reporter = new()
    sent, send = [], reporter.log_points
    monkeypatch.setattr(reporter, "log_points", lambda points: (sent.extend(points), send(points)))
    training = loop(reporter)
    training.begin()
    for step in (1, 2, 2):
        training.log_at(step, loss=float(step))
    send(sent)
    reporter.close()
    assert rows(reporter, "train/loss") == [(1.0, 1.0), (2.0, 2.0), (2.001, 2.0)]


def test_what_is_not_finite_is_a_text_at_its_step(loop, new, caplog):
    reporter = new()
    training = loop(reporter)
    training.begin()
    for step, number in ((3, math.inf), (4, 0.5), (5, math.nan)):
        training.log_at(step, grad_norm=number, loss=float(step))
    training.log_at(6, train_loss=-math.inf)
    reporter.close()
    assert rows(reporter, "train/grad_norm") == [(4.0, 0.5)]
    assert rows(reporter, "non_finite/train/grad_norm") == [(3.0, "inf"), (5.0, "nan")]
    assert rows(reporter, "train/loss") == [(3.0, 3.0), (4.0, 4.0), (5.0, 5.0)]
    assert value(reporter, "train/train_loss") == "-inf"
    assert sum("no nan and no infinity" in message for message in caplog.messages) == 1


@pytest.mark.parametrize(
    ("first", "second", "paths"),
    [
        ("f1", "f1/cat", ["train/f1", "train/f1.cat"]),
        ("f1/cat", "f1", ["train/f1/cat", "train/f1_"]),
        ("f1", "f1/cat/old", ["train/f1", "train/f1.cat.old"]),
    ],
)
def test_a_metric_below_another_one_gets_a_place_beside_it(loop, new, first, second, paths):
    reporter = new()
    training = loop(reporter)
    training.begin()
    training.log_at(1, **{first: 1.0, second: 2.0, "f1.cat": 3.0, "f1_": 4.0})
    training.log_at(2, **{second: 5.0})
    reporter.close()
    assert rows(reporter, paths[0]) == [(1.0, 1.0)]
    found = {path: rows(reporter, f"train/{path}") for path in below(reporter, "finetuning/train") if path != "epoch"}
    assert found[paths[1].removeprefix("train/")] == [(1.0, 2.0), (2.0, 5.0)]
    assert sorted(found.values()) == [[(1.0, 1.0)], [(1.0, 2.0), (2.0, 5.0)], [(1.0, 3.0)], [(1.0, 4.0)]]


# ---- parameters and texts -------------------------------------------------------------------------------------------


def test_parameters_keep_their_type_where_neptune_has_it(loop, new):
    reporter = new()
    odd = {"big": 2**40, "odd": 2**60 + 1, "nan": math.nan, "none": None, "list": [1, "a"], "flag": True, "int": 7}
    loop(reporter, lr_scheduler_kwargs=odd, run_name="caf\udce9").train()
    found = below(reporter, "finetuning/trainer_parameters/lr_scheduler_kwargs")
    assert found == {**odd, "big": 2.0**40, "odd": str(2**60 + 1), "nan": "nan", "none": "None", "list": "[1, 'a']"}
    assert value(reporter, "trainer_parameters/run_name") == "caf?"
    assert value(reporter, "model_parameters/hidden_size") == 32


def test_parameters_can_be_left_out(loop, new):
    reporter = new(log_parameters=False)
    loop(reporter).train()
    assert not below(reporter, "finetuning/trainer_parameters")
    assert not below(reporter, "finetuning/model_parameters")


def test_a_trial_says_which_one_it_is(loop, new):
    reporter = new()
    training = loop(reporter)
    training.state.trial_name, training.state.trial_params = "trial-3", {"learning_rate": 0.5}
    training.begin()
    training.fire("on_train_end")
    assert value(reporter, "trial") == "trial-3"
    assert value(reporter, "trial_params/learning_rate") == 0.5


def test_a_text_that_is_cut_is_whole_in_a_file(loop, new):
    reporter = new(mode="offline")
    training = loop(reporter)
    training.begin()
    training.log_at(3, note="y" * 1001)
    ((_, text),) = rows(reporter, "texts/train/note")
    assert text.endswith("... (1001 characters)")
    assert Path(value(reporter, "files/texts/train/note/00000003")).read_text("utf-8") == "y" * 1001


def test_texts_of_offline_runs_of_one_training_stay_apart(loop, new, tmp_path):
    reporters = []
    for letter in "xy":
        reporters.append(new(mode="offline"))
        training = loop(reporters[-1], run_name=letter * 16385)
        if letter == "x":
            training.train()
        else:
            training.train(resume_from=tmp_path / "out" / "checkpoint-4")
        reporters[-1].close()
    texts = [Path(value(reporter, "files/params/run_name")).read_text("utf-8") for reporter in reporters]
    assert texts == ["x" * 16385, "y" * 16385]


def test_a_run_says_what_was_typed_and_how_it_is_called(loop, new, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "0.1", "--api-key=plain-looking-key"])
    reporter = new()
    loop(reporter, run_name="blue").train()
    assert field(reporter, "sys/name").value == "blue"
    assert value(reporter, "trackside/command").startswith("train.py --lr 0.1")
    assert "plain-looking-key" not in repr(below(reporter, "finetuning"))


# ---- options --------------------------------------------------------------------------------------------------------


def test_it_takes_the_arguments_of_the_callback_of_transformers(loop, new):
    reporter = new(name="mine", tags=["a"], capture_stdout=True, run=None, log_checkpoints=None)
    training = loop(reporter, run_name="blue")
    training.begin()
    assert field_of_client(reporter, "sys/name") == "mine"
    assert reporter.run.arguments == {
        "capture_stdout": True,
        "capture_stderr": False,
        "capture_traceback": False,
        "capture_hardware_metrics": None,
        "fail_on_exception": False,
        "source_files": [],
        "git_ref": False,
        "tags": ["a"],
    }


def field_of_client(reporter, path):
    return reporter.run._fields[tuple(path.split("/"))].value


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({}, "set NEPTUNE_API_TOKEN and NEPTUNE_PROJECT, or NEPTUNE_MODE=offline"),
        ({"NEPTUNE_API_TOKEN": "x"}, "set NEPTUNE_PROJECT, or NEPTUNE_MODE=offline"),
        ({"NEPTUNE_API_TOKEN": "x", "NEPTUNE_PROJECT": "a/b"}, ""),
        ({"NEPTUNE_MODE": "offline"}, ""),
        ({"NEPTUNE_MODE": "debug"}, ""),
        ({"NEPTUNE_MODE": "read-only"}, "'read-only', which is none of async, sync, offline, debug"),
    ],
)
def test_it_says_what_is_missing(monkeypatch, environment, why):
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    answer = NeptuneCallback().configured()
    assert answer.ok == (not why)
    assert why in answer.why


def test_an_unknown_wish_for_checkpoints_is_refused():
    with pytest.raises(ValueError, match=r"'all'; it takes .same., .last., .best."):
        NeptuneCallback(log_checkpoints="all")


def test_the_environment_stays_as_it_is(loop, new, monkeypatch, tmp_path):
    before = dict(os.environ)
    loop(new(mode="offline")).begin()
    assert dict(os.environ) == before
    monkeypatch.setenv("NEPTUNE_DATA_DIRECTORY", str(tmp_path / "mine"))
    loop(new(mode="offline")).begin()
    assert os.environ["NEPTUNE_DATA_DIRECTORY"] == str(tmp_path / "mine")


@pytest.mark.parametrize(
    ("options", "shown_by"), [({}, "https://app.neptune.ai/team/digits/e/DIG-1"), ({"mode": "debug"}, None)]
)
def test_it_says_what_shows_the_run(loop, new, options, shown_by):
    reporter = new(**options)
    assert reporter.where() is None
    loop(reporter).begin()
    assert reporter.where() == shown_by


def test_it_says_what_sends_an_offline_run(loop, new, tmp_path):
    reporter = new(mode="offline")
    loop(reporter, output_dir=tmp_path / "my out").begin()
    assert reporter.where() == f"neptune sync --path '{tmp_path}/my out/_neptune' --project team/digits"


def test_the_run_of_a_trainer_is_found_and_none_where_nothing_is_reported(loop, new):
    reporter, silent = new(), new()
    training = loop(reporter)
    training.begin()
    loop(silent).begin(0)
    trainer = type("Trainer", (), {"callback_handler": training.handler})
    assert NeptuneCallback.get_run(trainer) is reporter.run
    assert reporter.run is not None
    other_rank = FakeLoop([NeptuneCallback()], rank=1, output_dir=training.args.output_dir)
    other_rank.begin()
    assert NeptuneCallback.get_run(type("Trainer", (), {"callback_handler": other_rank.handler})) is None
    with pytest.raises(LookupError, match="has no NeptuneCallback"):
        NeptuneCallback.get_run(type("Trainer", (), {"callback_handler": FakeLoop([]).handler}))


# ---- checkpoints ----------------------------------------------------------------------------------------------------


def checkpoints(reporter):
    files = stored(reporter).files
    prefix = "finetuning/checkpoints/"
    return {path.removeprefix(prefix): found for path, found in files.items() if path.startswith(prefix)}


FILES = {"model.bin", "trainer_state.json"}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(None, {}), ("same", {"checkpoint-4": FILES, "checkpoint-8": FILES}), ("last", {"last": FILES})],
)
def test_checkpoints_are_sent_as_wanted(loop, new, wanted, expected):
    reporter = new(log_checkpoints=wanted)
    loop(reporter, num_train_epochs=2).train()
    assert checkpoints(reporter) == expected


def test_the_best_checkpoint_replaces_the_one_before_and_a_worse_one_does_not(loop, new, monkeypatch):
    reporter = new(log_checkpoints="best")
    training = loop(reporter, num_train_epochs=3, metric_for_best_model="loss", greater_is_better=False)
    monkeypatch.setattr(training, "loss", lambda step: 99.0 if step == 12 else 12.0 - step)
    sent, send = [], reporter.log_artifact
    monkeypatch.setattr(reporter, "log_artifact", lambda artifact: (sent.append(artifact.name), send(artifact)))
    training.train()
    assert sent == ["checkpoint-4", "checkpoint-8"]
    assert checkpoints(reporter) == {"best": FILES}


def test_the_best_checkpoint_cannot_be_known_without_a_metric(loop, new):
    with pytest.raises(ValueError, match="set metric_for_best_model"):
        loop(new(log_checkpoints="best")).begin()


@pytest.mark.parametrize("mode", ["async", "offline"])
def test_a_checkpoint_arrives_though_the_loop_deletes_it(loop, new, tmp_path, mode, server):
    reporter = new(log_checkpoints="last", mode=mode)
    training = loop(reporter)
    training.begin()
    for step in (1, 2):
        training.state.global_step = step
        folder = training.save()
        folder.joinpath("model.bin").write_text("written again")
        shutil.rmtree(folder)
    reporter.close()
    if mode == "async":
        assert checkpoints(reporter) == {"last": FILES}
        assert not list((tmp_path / "out").rglob("model.bin"))
        return
    (kept,) = value(reporter, "checkpoints/last")
    assert {path.name for path in Path(kept).iterdir()} == FILES
    assert Path(kept, "model.bin").read_bytes() == b"weights"


def test_a_large_file_is_linked_rather_than_copied(loop, new, tmp_path):
    reporter = new(log_checkpoints="same", mode="offline")
    training = loop(reporter)
    training.begin()
    folder = tmp_path / "out" / "checkpoint-0"
    folder.mkdir(parents=True)
    (folder / "large.bin").write_bytes(bytes(1 << 20))
    training.fire("on_save")
    (kept,) = value(reporter, "checkpoints/checkpoint-0")
    assert os.path.samefile(Path(kept, "large.bin"), folder / "large.bin")


def test_a_checkpoint_that_comes_while_the_server_confirms_others_is_kept(loop, new, server, monkeypatch, tmp_path):
    reporter = new(log_checkpoints="same")
    training = loop(reporter)
    training.begin()
    training.save()
    wait = reporter.run.wait
    monkeypatch.setattr(reporter.run, "wait", lambda: (wait(), log_checkpoint(training, 1)))
    reporter.flush()
    monkeypatch.setattr(reporter.run, "wait", wait)
    reporter.flush()
    assert checkpoints(reporter) == {"checkpoint-0": FILES, "checkpoint-1": FILES}
    assert not list((tmp_path / "out" / "_neptune").rglob("*.bin"))


def log_checkpoint(training, step):
    training.state.global_step = step
    training.save()


def test_a_reporter_whose_run_is_delivered_elsewhere_has_nothing_to_wait_for(new):
    assert new().flush() is NotImplemented


# ---- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exception", "has_failed", "status"),
    [
        (RuntimeError("no memory"), True, "failed"),
        (KeyboardInterrupt(), True, "killed"),
        (type("TrialPruned", (Exception,), {})(), False, "pruned"),
    ],
)
def test_a_run_that_was_left_by_an_exception_says_so(loop, new, exception, has_failed, status):
    reporter = new()
    with pytest.raises(type(exception)):
        loop(reporter).train(fail_at=2, exception=exception)
    assert field(reporter, "sys/failed").value is has_failed
    assert value(reporter, "trackside/status") == status


def test_a_run_that_its_user_has_stopped_is_left_alone(loop, new):
    reporter = new()
    training = loop(reporter)
    training.begin()
    training.log_at(1, loss=0.5)
    reporter.run.stop()
    training.fire("on_train_end")
    reporter.close()
    assert rows(reporter, "train/loss") == [(1.0, 0.5)]


# ---- resume ---------------------------------------------------------------------------------------------------------


def test_a_training_that_goes_on_replaces_what_came_after_its_checkpoint(loop, new, tmp_path, monkeypatch):
    first = new()
    with pytest.raises(RuntimeError):
        loop(first, num_train_epochs=2).train(fail_at=7)
    second = new()
    training = loop(second, num_train_epochs=2)
    monkeypatch.setattr(training, "loss", lambda step: 10.0 * step)
    training.train(resume_from=tmp_path / "out" / "checkpoint-4")
    second.close()
    assert second.tracker_id == first.tracker_id
    before, after = [(step, 1 / (step + 1)) for step in (1, 2, 3, 4)], [(step, 10 * step) for step in (5, 6, 7, 8)]
    assert rows(second, "train/loss") == [*before, *after]
    assert field(second, "finetuning/train/loss").rows[0][2] == pytest.approx(time.time(), abs=600)
    assert field(second, "sys/failed").value is False
    assert stored(second).refused == []


def test_a_courier_that_is_started_once_more_does_not_set_the_run_back_again(new, tmp_path):
    run = Run(id="0123456789ab", name="blue", output_dir=str(tmp_path), time=1234.5)
    points = [Point({"train/loss": 1 / step}, step, None, 1234.5 + step) for step in (1, 2, 3, 4, 5)]
    reporter = new()
    run = replace(run, tracker_id=reporter.start(run))
    reporter.log_points(points)
    reporter.finish("killed")
    for again in (points[2:4], points[3:]):
        reporter = new()
        reporter.tracker_id = reporter.start(replace(run, step=2, time=2345.5))
        reporter.log_points(again)
        reporter.flush()
    assert rows(reporter, "train/loss") == [(step, 1 / step) for step in (1, 2, 3, 4, 5)]
    assert stored(reporter).refused == []


def test_what_is_owed_to_a_finished_run_is_no_branch_of_it(loop, new):
    first = new()
    loop(first).train()
    first.close()
    second = new()
    run = Run(id="0123456789ab", name="blue", output_dir="out", tracker_id=first.tracker_id)
    assert second.start(run) == first.tracker_id


def test_a_changed_parameter_of_a_resumed_run_is_noted(loop, new):
    first = new()
    loop(first, learning_rate=0.5, seed=7).train()
    first.close()
    second = new(with_id=first.tracker_id)
    loop(second, learning_rate=0.25, seed="eleven").train()
    second.close()
    assert value(second, "trainer_parameters/learning_rate") == 0.25
    assert value(second, "trainer_parameters/seed") == "eleven"
    changes = [text for _, text in rows(second, "trackside/changed_params")]
    assert changes == ["learning_rate: 0.5 -> 0.25", "seed: 7 -> eleven"]


def test_a_training_that_starts_anew_in_an_old_run_adds_what_goes_beyond_it(loop, new, caplog):
    first = new()
    loop(first).train()
    first.close()
    second = new(resume=first.tracker_id)
    loop(second, num_train_epochs=2).train()
    second.close()
    assert [step for step, _ in rows(second, "train/loss")] == [1.0, 2.0, 3.0, 4.0, 4.501, 5.0, 6.0, 7.0, 8.0]
    assert sum("has the points of this run up to step 4" in message for message in caplog.messages) == 1


def test_a_branch_from_a_finished_run_is_a_run_that_names_it(loop, new, tmp_path):
    first = new()
    loop(first, num_train_epochs=2).train()
    first.close()
    second = new()
    loop(second, num_train_epochs=3).train(resume_from=tmp_path / "out" / "checkpoint-4")
    second.close()
    assert second.tracker_id != first.tracker_id
    assert value(second, "trackside/continues") == first.tracker_id
    assert [step for step, _ in rows(first, "train/loss")] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [step for step, _ in rows(second, "train/loss")] == [5, 6, 7, 8, 9, 10, 11, 12]


def test_a_run_that_is_gone_is_followed_by_another_one(loop, new, tmp_path, caplog, server):
    first = new()
    loop(first).train()
    first.close()
    server.RUNS.clear()
    second = new()
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert value(second, "trackside/continues") == first.tracker_id
    assert sum("another one is started" in message for message in caplog.messages) == 1


def test_a_run_that_the_user_names_and_that_is_not_there_is_refused(loop, new):
    with pytest.raises(StartError, match="RunNotFound DIG-99"):
        loop(new(resume="DIG-99")).begin()


@pytest.mark.parametrize(("before", "after"), [("offline", "async"), ("async", "offline")])
def test_what_cannot_be_continued_is_named(loop, new, tmp_path, before, after):
    first = new(mode=before)
    loop(first).train()
    second = new(mode=after)
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    second.close()
    assert value(second, "trackside/continues") == first.tracker_id
    assert [step for step, _ in rows(second, "train/loss")] == [5, 6, 7, 8]


# ---- runs of the user's ---------------------------------------------------------------------------------------------


@pytest.fixture
def users_run(server):
    import neptune

    return neptune.init_run(project=server.PROJECT, api_token=server.TOKEN, name="mine")


def test_a_run_of_the_users_is_logged_to_and_never_closed(loop, new, users_run):
    reporter = new(run=users_run)
    loop(reporter, run_name="blue").train()
    assert reporter.run is users_run
    reporter.close()
    assert users_run.get_state() == "started"
    assert len(rows(reporter, "train/loss")) == 4
    assert field(reporter, "sys/name").value == "mine"
    assert "status" not in below(reporter, "finetuning/trackside")


def test_a_second_training_has_a_run_of_its_own(loop, new, users_run):
    reporter = new(run=users_run)
    loop(reporter).train()
    first = reporter.tracker_id
    loop(reporter).train()
    reporter.close()
    assert reporter.tracker_id != first
    assert len(rows(reporter, "train/loss")) == 4
    assert stored(reporter).refused == []


def test_a_training_that_goes_on_from_a_checkpoint_goes_on_in_the_users_run(loop, new, users_run, tmp_path):
    reporter = new(run=users_run)
    loop(reporter).train()
    loop(reporter, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    reporter.close()
    assert reporter.run is None
    assert [step for step, _ in rows(reporter, "train/loss")] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert stored(reporter).id == "DIG-1"


def test_a_run_that_the_user_has_stopped_already_is_not_used(loop, new, users_run):
    users_run.stop()
    reporter = new(run=users_run)
    loop(reporter).train()
    assert reporter.tracker_id == "DIG-2"


# ---- servers --------------------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_ends_nothing(loop, new, caplog, server):
    server.refuses_connections.set()
    training = loop(new())
    training.train()
    assert training.state.global_step == 4
    assert sum("neptune cannot be reached" in message for message in caplog.messages) == 1


def test_a_server_that_stays_silent_ends_nothing_and_the_next_try_makes_no_second_run(
    new, server, monkeypatch, tmp_path
):
    monkeypatch.setattr("trackside_neptune.reporter.START_SECONDS", 0.05)
    server.answers.clear()
    reporter = new()
    run = Run(id="0123456789ab", name="blue", output_dir=str(tmp_path))
    for _ in range(2):
        with pytest.raises(TimeoutError, match="has not answered") as late:
            reporter.start(run)
        assert reporter.is_passing(late.value)
    server.answers.set()
    monkeypatch.setattr("trackside_neptune.reporter.START_SECONDS", 20)
    assert reporter.start(run) == "DIG-1"
    assert [stored.id for stored in server.RUNS] == ["DIG-1"]


def test_a_start_of_another_process_that_is_made_again_finds_its_run(new, server, tmp_path):
    run = Run(id="0123456789ab", name="blue", output_dir=str(tmp_path))
    assert new().start(run) == new().start(run) == "DIG-1"


def test_what_the_server_has_not_confirmed_is_not_taken_for_safe(loop, new, server, monkeypatch, caplog):
    monkeypatch.setattr("trackside_neptune.reporter.FLUSH_SECONDS", 0.05)
    monkeypatch.setattr("trackside_neptune.reporter.FINISH_SECONDS", 0.05)
    reporter = new()
    training = loop(reporter)
    training.begin()
    server.answers.clear()
    training.log_at(1, loss=0.5)
    assert [reporter.flush(), reporter.flush()] == [NotImplemented, NotImplemented]
    with pytest.raises(TimeoutError, match="has not confirmed") as late:
        reporter.finish("finished")
    assert reporter.is_passing(late.value)
    server.answers.set()
    monkeypatch.setattr("trackside_neptune.reporter.FLUSH_SECONDS", 20)
    training.log_at(2, loss=0.25)
    assert reporter.flush() is None
    assert rows(reporter, "train/loss") == [(1.0, 0.5), (2.0, 0.25)]
    reporter.finish("finished")
    assert value(reporter, "trackside/status") == "finished"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"api_token": "wrong"}, "Unauthorized: Trouble of the kind Unauthorized"),
        ({"project": "no/such"}, "ProjectNotFound no/such"),
    ],
)
def test_what_the_server_refuses_is_said_in_a_sentence(loop, new, options, sentence):
    with pytest.raises(StartError) as refused:
        loop(new(**options)).begin()
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_log_of_the_client_is_short(loop, caplog, capfd):
    loop(NeptuneCallback(mode="debug")).begin()
    log = logging.getLogger("neptune")
    for number in range(3):
        log.error("Error: %s", f"X-coordinates must be increasing for the series {'a' * 50}{number}")
    log.error("Error: %s", "the project is archived")
    assert len(caplog.messages) == 2
    assert capfd.readouterr().out == ""


def test_the_log_of_a_client_that_the_user_has_imported_is_his_own(loop, capfd):
    import neptune  # noqa: F401

    loop(NeptuneCallback(mode="debug")).begin()
    assert "Neptune initialized" in capfd.readouterr().out
