import copy
import dataclasses
import errno
import logging
import math
import os
import pickle
import subprocess
import sys
import textwrap
import traceback
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from types import SimpleNamespace

import pytest
from training import Loop, Notebook

from trackside import Configured, Limits, StartError, TrainerState, env


def kinds(reporter):
    return [name for name, _ in reporter.calls]


# ---- a run --------------------------------------------------------------------------------------------------------


def test_a_run_is_told_from_start_to_end():
    reporter = Notebook()
    loop = Loop(reporter, learning_rate=0.1)
    loop.begin()
    loop.log({"loss": 2.0}, step=1)
    loop.evaluate({"eval_loss": 1.0})
    loop.end()
    assert kinds(reporter) == ["start", "log_params", "log_points", "log_points", "finish"]
    assert reporter.points == [(1, {"train/loss": 2.0}), (1, {"eval/loss": 1.0})]
    assert reporter.told("finish") == ["finished"]
    assert reporter.run is None


def test_params_are_those_of_the_loop_and_the_model_flat_and_redacted():
    reporter = Notebook()
    Loop(reporter, hub_token="hf_SECRET", optim={"betas": [0.9, 0.99]}, _private=1).begin()
    (params,) = reporter.told("log_params")
    assert params["hub_token"] == "***"
    assert params["optim/betas"] == [0.9, 0.99]
    assert params["hidden_size"] == 8
    assert "_private" not in params


def test_the_ids_of_the_trackers_travel_in_the_state():
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    carried = loop.state.stateful_callbacks["trackside"]
    assert carried["trackers"] == {"notebook": reporter.tracker_id}
    assert reporter.tracker_id.endswith(carried["run"])


def test_two_trackers_of_one_name_keep_an_id_each():
    class Numbered(Notebook):
        def start(self, run):
            super().start(run)
            return run.tracker_id or f"id-{id(self)}"

    reporters = [Numbered(), Numbered()]
    loop = Loop(*reporters)
    loop.begin()
    carried = [reporter.tracker_id for reporter in reporters]
    assert list(loop.state.stateful_callbacks["trackside"]["trackers"].values()) == carried
    again = [Numbered(), Numbered()]
    Loop(*again).begin(copy.deepcopy(loop.state))
    assert [reporter.tracker_id for reporter in again] == carried


def test_a_state_that_carries_an_id_continues_that_run():
    loop = Loop(Notebook())
    loop.begin()
    state = copy.deepcopy(loop.state)
    state.global_step = 500
    first, second = loop.reporters[0], Notebook()
    Loop(second).begin(state)
    (run,) = second.told("start")
    assert run.tracker_id == first.tracker_id
    assert run.step == 500
    assert run.name == first.told("start")[0].name


@pytest.mark.parametrize(("resume", "expected"), [("new", None), ("its-id", "its-id")])
def test_the_user_may_overrule_what_is_continued(resume, expected):
    loop = Loop(Notebook())
    loop.begin()
    reporter = Notebook(resume=resume)
    Loop(reporter).begin(copy.deepcopy(loop.state))
    (run,) = reporter.told("start")
    assert run.tracker_id == expected
    assert (run.id == loop.reporters[0].told("start")[0].id) is (resume != "new")


def test_names_of_runs_are_readable_and_differ():
    names = set()
    for _ in range(2):
        reporter = Notebook()
        Loop(reporter, output_dir="out/digits", run_name="out/digits").begin()
        names.add(reporter.told("start")[0].name)
    assert len(names) == 2
    assert all(name.startswith("digits-") for name in names)
    reporter = Notebook()
    Loop(reporter, run_name="baseline").begin()
    assert reporter.told("start")[0].name == "baseline"


def test_arguments_in_a_dict_name_the_run_and_its_folder():
    reporter = Notebook()
    loop = Loop(reporter)
    loop.args = {"output_dir": "out/digits", "run_name": "baseline", "project": "digits", "lr": 0.1}
    loop.begin()
    (run,) = reporter.told("start")
    assert (run.output_dir, run.name, run.project, run.args["lr"]) == ("out/digits", "baseline", "digits", 0.1)


@pytest.mark.parametrize("trial", ["trial-3", 3])
def test_a_trial_without_a_run_name_is_in_the_name(trial):
    reporter = Notebook()
    Loop(reporter, output_dir="out").begin(TrainerState(trial_name=trial))
    assert reporter.told("start")[0].name.startswith(f"out-{trial}-")


def test_a_run_knows_the_commit_that_it_was_started_from(tmp_path, monkeypatch):
    for name in ("GIT_DIR", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    author = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    for words in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *words], check=True)
    loop.begin()
    without, within = (run.source.get("git_commit") for run in reporter.told("start"))
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert without is None
    assert within == head.stdout.strip()


def test_a_trial_has_a_name_of_its_own():
    reporter = Notebook()
    Loop(reporter, run_name="search").begin(TrainerState(trial_name="trial-3", trial_params={"lr": 0.1}))
    (run,) = reporter.told("start")
    assert run.name == "search-trial-3"
    assert run.trial_params == {"lr": 0.1}


def test_each_training_is_a_run_of_its_own():
    reporter = Notebook()
    loop = Loop(reporter)
    for _ in range(3):
        loop.begin()
        loop.log({"loss": 1.0}, step=1)
        loop.end()
        loop.evaluate({"eval_loss": 2.0})
    runs = {run.id for run in reporter.told("start")}
    assert len(runs) == 3
    assert len(reporter.points) == 6


def test_a_state_object_that_is_used_again_begins_a_new_run_for_all():
    reporters = [Notebook(), Notebook()]
    loop = Loop(*reporters)
    loop.begin()
    loop.end()
    loop.begin(loop.state)
    ids = [[run.id for run in reporter.told("start")] for reporter in reporters]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2
    assert [run.tracker_id for run in reporters[0].told("start")] == [None, None]


def test_what_comes_before_a_training_belongs_to_it():
    reporters = [Notebook(), Notebook()]
    loop = Loop(*reporters)
    loop.evaluate({"eval_loss": 3.0})
    loop.begin()
    loop.log({"loss": 1.0}, step=1)
    for reporter in reporters:
        assert len(reporter.told("start")) == 1
        assert reporter.points == [(0, {"eval/loss": 3.0}), (1, {"train/loss": 1.0})]
    assert reporters[0].told("start")[0].id == reporters[1].told("start")[0].id


def test_a_training_that_an_evaluation_came_before_carries_the_ids_of_its_run():
    reporter = Notebook()
    loop = Loop(reporter)
    loop.evaluate({"eval_loss": 3.0})
    loop.begin()
    assert loop.state.stateful_callbacks["trackside"]["trackers"] == {"notebook": reporter.tracker_id}


def test_a_state_that_carries_an_id_continues_that_run_also_after_an_evaluation():
    reporter = Notebook()
    loop = Loop(reporter)
    loop.evaluate({"eval_loss": 3.0})
    carried = {"run": "r", "name": "n", "trackers": {"notebook": "id-of-r"}}
    loop.begin(TrainerState(stateful_callbacks={"trackside": carried}))
    assert [run.tracker_id for run in reporter.told("start")] == [None, "id-of-r"]
    assert reporter.told("finish") == ["finished"]


def test_what_follows_a_failed_training_leaves_it_failed():
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    loop.end(RuntimeError())
    loop.evaluate({"eval_loss": 3.0})
    loop.log({"loss": 3.0})
    reporter.close()
    assert reporter.told("finish") == ["failed"] * 3


def test_what_follows_a_training_reopens_its_run_and_closes_it_again():
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    loop.end()
    loop.evaluate({"eval_loss": 3.0})
    loop.fire("on_predict", metrics={"test_acc": 0.5})
    assert reporter.points == [(0, {"eval/loss": 3.0}), (0, {"test/acc": 0.5})]
    assert kinds(reporter).count("log_params") == 1
    assert reporter.told("finish") == ["finished"] * 3
    assert {run.tracker_id for run in reporter.told("start")[1:]} == {reporter.tracker_id}


class Pencil(Notebook):
    """A tracker whose runs cannot be reopened."""

    reopenable = False


def test_a_run_that_cannot_be_reopened_stays_open_until_the_next_one():
    reporter = Pencil()
    loop = Loop(reporter)
    loop.begin()
    loop.end()
    loop.evaluate({"eval_loss": 3.0})
    assert reporter.told("finish") == []
    loop.begin()
    assert reporter.told("finish") == ["finished"]


def test_what_comes_after_such_a_run_was_closed_is_named_once(caplog):
    reporter = Pencil()
    loop = Loop(reporter)
    loop.begin()
    loop.end()
    reporter.close()
    for _ in range(2):
        loop.evaluate({"eval_loss": 3.0})
    assert reporter.points == []
    assert len(caplog.records) == 1
    assert "not reported" in caplog.text


class TrialPruned(Exception):
    pass


@pytest.mark.parametrize(
    ("exception", "status"),
    [(RuntimeError(), "failed"), (KeyboardInterrupt(), "killed"), (SystemExit(1), "killed"), (TrialPruned(), "pruned")],
)
def test_an_exception_closes_the_run_with_its_status(exception, status):
    reporter = Pencil()
    loop = Loop(reporter)
    loop.begin()
    loop.end(exception)
    assert reporter.told("finish") == [status]


def test_a_training_that_never_ended_has_failed_when_the_next_begins():
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    loop.begin()
    assert reporter.told("finish") == ["failed"]


def test_ends_without_a_beginning_or_twice_are_nothing():
    reporter = Notebook()
    loop = Loop(reporter)
    loop.end()
    loop.end(ValueError())
    assert reporter.calls == []
    loop.begin()
    loop.end()
    loop.end()
    assert reporter.told("finish") == ["finished"]


def test_a_run_is_closed_also_when_its_parameters_are_interrupted():
    class Slow(Notebook):
        def log_params(self, params):
            raise KeyboardInterrupt

    reporter = Slow()
    loop = Loop(reporter)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        loop.begin()
    loop.end(interrupt.value)
    assert reporter.told("finish") == ["killed"]
    assert reporter.run is None


def test_a_run_is_finished_also_when_its_flush_is_interrupted():
    class Slow(Notebook):
        def flush(self):
            raise KeyboardInterrupt

    reporter = Slow()
    loop = Loop(reporter)
    loop.begin()
    with pytest.raises(KeyboardInterrupt):
        loop.end()
    assert reporter.told("finish") == ["finished"]
    assert reporter.run is None


def test_an_adopted_run_is_logged_to_and_never_finished():
    class Adopting(Notebook):
        def start(self, run):
            self.adopted = True
            return super().start(run)

    reporter = Adopting()
    loop = Loop(reporter)
    loop.begin()
    loop.log({"loss": 1.0})
    loop.end()
    assert reporter.points
    assert reporter.told("finish") == []


def program(body):
    """Run a program that has a reporter of its own and prints what that is told."""
    here = os.path.dirname(__file__)
    source = f"import sys; sys.path.insert(0, {here!r})\n" + textwrap.dedent(
        """
        from training import Loop, Notebook
        class Printing(Notebook):
            reopenable = False
            def note(self, operation, content):
                print(operation, content if operation == "finish" else "", flush=True)
        reporter = Printing()
        loop = Loop(reporter)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", source + textwrap.dedent(body)], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout.split("\n")[:-1]


def test_the_end_of_the_program_closes_what_is_open():
    assert program("loop.begin(); loop.end()")[-1] == "finish finished"
    assert program("loop.begin(); raise ValueError")[-1] == "finish failed"


def test_the_end_of_the_program_closes_also_what_nobody_holds_any_more():
    assert program("loop.begin(); loop.end(); del loop, reporter")[-1] == "finish finished"
    assert program("loop.begin(); del loop, reporter")[-1] == "finish failed"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_reports_nothing_and_closes_nothing():
    told = program(
        """
        import os
        loop.begin()
        child = os.fork()
        if child == 0:
            loop.log({"loss": 1.0}); loop.end(); sys.exit()
        os.waitpid(child, 0)
        loop.log({"loss": 2.0}); loop.end()
        """
    )
    assert [line.strip() for line in told] == ["start", "log_params", "log_points", "finish finished"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_training_in_a_forked_child_is_a_run_of_its_own():
    told = program(
        """
        import os
        loop.begin()
        child = os.fork()
        if child == 0:
            loop.evaluate({"eval_loss": 1.0}); print("begin")
            loop.begin(); loop.log({"loss": 1.0}); loop.end(); sys.exit()
        os.waitpid(child, 0)
        loop.log({"loss": 2.0}); loop.end()
        """
    )
    training = ["start", "log_params", "log_points", "finish finished"]
    assert [line.strip() for line in told] == [*training[:2], "begin", *training, *training[2:]]


# ---- who speaks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "speaks"), [("world", [True, False, False]), ("node", [True, True, False]), ("every", [True, True, True])]
)
def test_only_ranks_in_scope_report(scope, speaks):
    class Scoped(Notebook):
        pass

    Scoped.scope = scope
    for rank, expected in zip([(True, True), (False, True), (False, False)], speaks, strict=True):
        reporter = Scoped()
        loop = Loop(reporter)
        loop.begin(TrainerState(is_world_process_zero=rank[0], is_local_process_zero=rank[1]))
        loop.evaluate({"eval_loss": 1.0})
        loop.end()
        assert bool(reporter.calls) is expected
        assert reporter.run is None


def test_reporting_can_be_switched_off_for_all(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_DISABLED", "1")
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    loop.log({"loss": 1.0})
    loop.end()
    assert reporter.calls == []


def test_two_that_report_to_one_place_are_one_and_a_warning(caplog):
    class Twin(Notebook):
        def is_duplicate_of(self, other):
            return type(other) is Twin

    first, second = Twin(), Twin()
    loop = Loop(first, second)
    loop.begin()
    loop.log({"loss": 1.0})
    loop.end()
    assert len(first.points) == 1
    assert second.calls == []
    assert len(caplog.records) == 1


# ---- one sequence for all -----------------------------------------------------------------------------------------


def test_reporters_share_the_records_of_a_run():
    reporters = [Notebook(), Notebook(), Notebook()]
    loop = Loop(*reporters)
    loop.begin()
    loop.log({"loss": 1.0}, step=1)
    times = {reporter.told("log_points")[0][0].time for reporter in reporters}
    assert len(times) == 1
    assert len({run.id for reporter in reporters for run in reporter.told("start")}) == 1


def test_one_that_joins_late_is_removed_or_misses_an_event_shifts_nothing():
    first, second, late = Notebook(), Notebook(), Notebook()
    loop = Loop(first, second)
    loop.begin()
    loop.log({"a": 1})
    loop.reporters = [first]
    loop.log({"b": 2})
    loop.reporters = [late, second, first]
    loop.log({"c": 3})
    loop.log({"d": 4})
    keys = [[key for _, values in reporter.points for key in values] for reporter in (first, second, late)]
    assert keys == [
        ["train/a", "train/b", "train/c", "train/d"],
        ["train/a", "train/c", "train/d"],
        ["train/c", "train/d"],
    ]
    counted = {point.time for reporter in (first, second, late) for (point,) in reporter.told("log_points")}
    assert len(counted) == 4


def test_the_same_dict_logged_again_is_a_record_again():
    reporters = [Notebook(), Notebook()]
    loop, logs = Loop(*reporters), {"loss": 1.0}
    loop.begin()
    for step in (1, 1, 2):
        logs["loss"] += 1
        loop.log(logs, step)
    for reporter in reporters:
        assert reporter.points == [(1, {"train/loss": 2.0}), (1, {"train/loss": 3.0}), (2, {"train/loss": 4.0})]


def test_a_log_within_a_log_reaches_all_in_their_order():
    class Nesting:
        def on_log(self, args, state, control, logs=None, **kwargs):
            if "inner" not in logs:
                loop.log({"inner": 1})

        def on_train_begin(self, *args, **kwargs):
            pass

    first, second = Notebook(), Notebook()
    loop = Loop(first, Nesting(), second)
    loop.begin()
    loop.log({"outer": 1}, step=1)
    assert [list(values) for _, values in first.points] == [["train/outer"], ["train/inner"]]
    assert [list(values) for _, values in second.points] == [["train/inner"], ["train/outer"]]


def test_a_reporter_of_two_trainings_at_once_keeps_them_apart():
    reporter = Notebook()
    one, two = Loop(reporter, run_name="one"), Loop(reporter, run_name="two")
    one.begin()
    two.begin()
    for step in (1, 2):
        one.log({"one": 1.0}, step=step)
        two.log({"two": 2.0}, step=step)
    one.end()
    two.end()
    told, name = [], None
    for operation, content in reporter.calls:
        if operation == "start":
            name = content.name
        if operation == "log_points":
            told += [(name, point.step, dict(point.values)) for point in content]
    assert told == [
        (name, step, {f"train/{name}": value}) for step in (1, 2) for name, value in (("one", 1), ("two", 2))
    ]
    assert len({run.id for run in reporter.told("start")}) == 2


def test_logs_of_several_threads_reach_all_reporters():
    reporters = [Notebook(), Notebook()]
    loop = Loop(*reporters)
    loop.begin()

    def log(name):
        for number in range(300):
            loop.log({name: number})

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(log, "abcd"))
    finally:
        sys.setswitchinterval(interval)
    for reporter in reporters:
        for name in "abcd":
            told = [values[f"train/{name}"] for _, values in reporter.points if f"train/{name}" in values]
            assert told == list(range(300))


def test_runs_of_equal_states_are_not_the_same_run():
    first, second = Notebook(), Notebook()
    Loop(first).begin(TrainerState())
    Loop(second).begin(TrainerState())
    assert first.told("start")[0].id != second.told("start")[0].id


# ---- values -------------------------------------------------------------------------------------------------------


def test_each_kind_of_value_arrives_beside_its_neighbours(caplog):
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    logs = {
        "loss": 1.5,
        "half": Fraction(1, 2),
        "yes": True,
        "phase": "warmup",
        "per": {"a": [1, 2]},
        "none": None,
        0: 7,
    }
    before = copy.deepcopy(logs)
    loop.log(logs, step=3)
    assert logs == before
    assert reporter.points == [
        (
            3,
            {
                "train/loss": 1.5,
                "train/half": 0.5,
                "train/yes": 1,
                "train/per/a/0": 1,
                "train/per/a/1": 2,
                "train/0": 7,
            },
        )
    ]
    assert reporter.told("log_text") == [("train/phase", "warmup", 3)]
    assert "none is left out" in caplog.text


def test_a_number_that_no_float_holds_is_told_as_text():
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    loop.log({"loss": 1.5, "huge": 10**400})
    assert reporter.points == [(0, {"train/loss": 1.5})]
    assert reporter.told("log_text") == [("train/huge", str(10**400), 0)]


def test_a_value_that_is_not_finite_is_named_once_with_its_step(caplog):
    loop = Loop(Notebook(), Notebook())
    loop.begin()
    for step in (6, 7):
        loop.log({"a": 1.0, "b": math.nan, "c": math.inf}, step)
    assert [record.getMessage() for record in caplog.records] == ["b is nan at step 6.", "c is inf at step 6."]


def test_an_evaluation_adds_only_what_its_log_did_not_hold():
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    metrics = {"eval_loss": 1.0}
    loop.log(dict(metrics))
    metrics["eval_x"] = 1
    loop.fire("on_evaluate", metrics=metrics)
    assert reporter.points == [(0, {"eval/loss": 1.0}), (0, {"eval/x": 1})]


def test_values_of_the_end_go_to_the_summary_where_there_is_one():
    class Summing(Notebook):
        def log_summary(self, values):
            self.note("log_summary", values)

    with_one, without = Summing(), Notebook()
    loop = Loop(with_one, without)
    loop.begin()
    loop.log({"train_loss": 0.5, "epoch": 3.0}, step=9)
    assert with_one.told("log_summary") == [{"train/train_loss": 0.5}]
    assert with_one.points == [(9, {"train/epoch": 3.0})]
    assert without.points == [(9, {"train/train_loss": 0.5, "train/epoch": 3.0})]


def test_limits_are_kept_visibly(caplog):
    class Small(Notebook):
        limits = Limits(param_value=40, params_per_call=3, points_per_call=2, key=r"\w/")
        key_style = "raw"

    reporter = Small()
    loop = Loop(reporter, note="x" * 100)
    loop.begin()
    loop.log({"a@1": 1, "b": 2, "c": 3})
    params = {key: value for chunk in reporter.told("log_params") for key, value in chunk.items()}
    assert params["note"].endswith("(100 characters)")
    assert max(map(len, reporter.told("log_params"))) == 3
    assert reporter.points == [(0, {"a_1": 1, "b": 2}), (0, {"c": 3})]
    assert caplog.text.count("note is cut") == 1


def test_a_text_that_is_cut_is_kept_whole_where_a_tracker_keeps_files(caplog):
    class Filing(Notebook):
        limits = Limits(param_value=40, text=50)
        key_style = "raw"

        def log_file(self, name, text):
            self.note("log_file", (name, text))

    reporter = Filing()
    loop = Loop(reporter, note="x" * 100, short="y" * 40)
    loop.begin()
    loop.log({"story": "z" * 60}, step=7)
    loop.log({"story": "short"}, step=8)
    assert dict(reporter.told("log_file")) == {"params/note.txt": "x" * 100, "texts/story/00000007.txt": "z" * 60}
    assert "note is cut, and whole in the run's file params/note.txt" in caplog.text


def test_checkpoints_are_told_where_a_tracker_takes_files(tmp_path):
    class Filing(Notebook):
        def log_artifact(self, artifact):
            self.note("log_artifact", artifact)

    reporter = Filing()
    loop = Loop(reporter, Notebook(), output_dir=str(tmp_path))
    loop.begin()
    loop.state.global_step = 5
    loop.fire("on_save")
    (tmp_path / "checkpoint-5").mkdir()
    loop.fire("on_save")
    (artifact,) = reporter.told("log_artifact")
    assert artifact.path == str(tmp_path / "checkpoint-5")
    assert artifact.step == 5


# ---- failure ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["log_params", "log_points", "log_text", "finish"])
def test_a_tracker_that_fails_never_ends_a_training(operation, caplog):
    failing, healthy = Notebook(failing=(operation,)), Notebook()
    loop = Loop(failing, healthy)
    loop.begin()
    for step in range(3):
        loop.log({"loss": 1.0, "phase": "x"}, step)
    loop.end()
    assert len(healthy.points) == 3
    failures = [record.getMessage() for record in caplog.records if f"no {operation} today" in record.getMessage()]
    assert len(failures) == 1
    assert f"calls that failed: {operation} (" in caplog.records[-1].getMessage()


def test_a_tracker_that_cannot_say_where_a_run_is_shown_never_ends_a_training(capsys):
    class Lost(Notebook):
        def where(self):
            raise RuntimeError("no address")

    loop = Loop(Lost())
    loop.begin()
    loop.log({"loss": 1.0}, step=1)
    loop.end()
    assert loop.reporters[0].points == [(1, {"train/loss": 1.0})]
    assert loop.reporters[0].sent() == "notebook: 1 values of 1 metrics"
    assert capsys.readouterr().err == "Reporting to notebook\n"


def test_an_error_that_cannot_even_say_what_it_is_never_ends_a_training(caplog):
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    class Failing(Notebook):
        def log_points(self, points):
            raise Mute

    loop = Loop(Failing())
    loop.begin()
    loop.log({"loss": 1.0}, step=1)
    loop.end()
    assert "log_points failed (Mute: " in caplog.text


def test_a_named_tracker_that_refuses_stops_the_program_with_one_sentence():
    with pytest.raises(StartError, match="notebook cannot start") as caught:
        Loop(Notebook(failing=("start",))).begin()
    assert "no start today" in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_refusal_shows_no_secret_in_its_traceback_either():
    class Chatty(Notebook):
        def start(self, run):
            raise RuntimeError("refused key hf_AbCdEfGhIj0123456789")

    with pytest.raises(StartError, match=r"refused key \*\*\*") as caught:
        Loop(Chatty()).begin()
    assert "hf_Ab" not in "".join(traceback.format_exception(caught.value))


def test_a_run_that_was_half_opened_when_its_tracker_refused_is_none():
    class Late(Notebook):
        def start(self, run):
            super().start(run)
            raise PermissionError("read only")

    reporter = Late()
    reporter.required = False
    Loop(reporter).begin()
    assert reporter.run is None


def test_one_that_was_not_named_is_left_out_with_a_warning(caplog):
    reporter = Notebook(failing=("start",))
    reporter.required = False
    loop = Loop(reporter)
    loop.begin()
    loop.log({"loss": 1.0})
    loop.end()
    assert kinds(reporter) == ["start"]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("error", [ConnectionRefusedError("refused"), TimeoutError("too late")])
def test_training_goes_on_without_a_tracker_that_cannot_be_reached(error, caplog):
    class Far(Notebook):
        def start(self, run):
            raise error

    loop = Loop(Far())
    loop.begin()
    loop.log({"loss": 1.0})
    loop.end()
    assert "cannot be reached" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied", "/locked/runs"),
        OSError(errno.ENOSPC, "No space left on device"),
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
    ],
)
def test_a_disk_that_cannot_be_written_is_a_refusal(error):
    class Unwritable(Notebook):
        def start(self, run):
            raise error

    with pytest.raises(StartError, match=error.strerror):
        Loop(Unwritable()).begin()


def test_an_sdk_that_is_broken_is_not_called_missing():
    class Importing(Notebook):
        def start(self, run):
            import a_module_that_is_not_there  # noqa: F401

    with pytest.raises(StartError, match=r"installed but broken.*a_module_that_is_not_there"):
        Loop(Importing()).begin()


def test_errors_of_a_tracker_show_no_secret(caplog):
    class Chatty(Notebook):
        def log_points(self, points):
            raise RuntimeError("POST https://me:hunter2@host refused key hf_AbCdEfGhIj0123456789")

    loop = Loop(Chatty())
    loop.begin()
    loop.log({"loss": 1.0})
    loop.end()
    assert "hunter2" not in caplog.text
    assert "hf_Ab" not in caplog.text
    assert "refused key ***" in caplog.text


SECRET = "hf_AbCdEfGhIj0123456789"


def test_no_secret_is_told_wherever_it_stands(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--password=two words", "--hub_token", SECRET])
    reporter = Notebook()
    loop = Loop(reporter, run_name=f"try {SECRET}", project=SECRET)
    loop.begin(TrainerState(trial_name=SECRET, trial_params={"password": "two words"}))
    loop.log({f"loss of {SECRET}": 1.0})
    loop.log({"api_key": {"openai": "two words"}, "password": ["two words"]})
    loop.evaluate({f"eval_{SECRET}": 0.5, "eval_note": f"cloned with {SECRET}"})
    told = repr(reporter.calls)
    assert SECRET not in told
    assert "words" not in told
    assert (0, {"train/loss of ***": 1.0}) in reporter.points


def test_the_folder_of_a_run_stays_what_it_is_whatever_its_name_looks_like():
    reporter = Notebook()
    Loop(reporter, output_dir="out/hf_Llama2Chat").begin()
    assert reporter.told("start")[0].output_dir == "out/hf_Llama2Chat"


# ---- what a person sees --------------------------------------------------------------------------------------------


def test_who_reports_is_said_at_the_start_and_how_much_on_request(capsys):
    class Shown(Notebook):
        def where(self):
            return "notebook --open out"

    reporter = Shown()
    assert reporter.sent() == "notebook: nothing"
    loop = Loop(reporter)
    loop.begin()
    assert capsys.readouterr().err == "Reporting to notebook; see the run with: notebook --open out\n"
    for step in range(1000):
        loop.log({"loss": 1.0, "lr": 0.1}, step)
    loop.end()
    loop.evaluate({"eval_loss": 1.0})
    assert reporter.sent() == "notebook: 2,001 values of 3 metrics; see the run with: notebook --open out"
    assert capsys.readouterr() == ("", "")


# ---- options and copies -------------------------------------------------------------------------------------------


class Optional(Notebook):
    project: str = env("OPTIONAL_PROJECT", "default")
    watch: bool = env("OPTIONAL_WATCH", False)
    every: int = env("OPTIONAL_EVERY", 10)
    plain: object = env(None)


def test_an_option_is_what_was_given_else_the_environment_else_the_default(monkeypatch):
    reporter = Optional()
    assert (reporter.project, reporter.watch, reporter.every, reporter.plain) == ("default", False, 10, None)
    monkeypatch.setenv("OPTIONAL_PROJECT", "p")
    monkeypatch.setenv("OPTIONAL_WATCH", "Yes")
    monkeypatch.setenv("OPTIONAL_EVERY", "5")
    assert (reporter.project, reporter.watch, reporter.every) == ("p", True, 5)
    assert Optional(project="q", watch=False).watch is False


@pytest.mark.parametrize(("variable", "text"), [("OPTIONAL_EVERY", "often"), ("OPTIONAL_WATCH", "perhaps")])
def test_a_variable_that_is_not_understood_is_named(monkeypatch, variable, text):
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueError, match=f"{variable}='{text}'"):
        _ = (Optional().every, Optional().watch)


def test_an_unknown_option_is_refused_with_those_that_there_are():
    with pytest.raises(TypeError, match=r"'logdir'.*every, key_style, plain, project, resume, watch"):
        Optional(logdir="x")


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda reporter: pickle.loads(pickle.dumps(reporter))])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_a_copy_starts_anew_at_any_moment(duplicate, moment):
    reporter = Optional(project="p")
    loop = Loop(reporter)
    if moment != "before":
        loop.begin()
        reporter.handle = lambda: None
    if moment == "after":
        loop.end()
    copied = duplicate(reporter)
    assert copied.project == "p"
    copied.calls = []
    other = Loop(copied)
    other.begin()
    other.log({"loss": 1.0})
    other.end()
    assert kinds(copied) == ["start", "log_params", "log_points", "finish"]


def test_setup_is_called_before_the_start_and_may_set_options():
    class Setting(Optional):
        def setup(self, args, state, model, **kwargs):
            self.project = f"of {model.config['hidden_size']}"

        def start(self, run):
            self.note("project", self.project)
            return super().start(run)

    reporter = Setting()
    Loop(reporter).begin()
    assert reporter.told("project") == ["of 8"]


def test_what_a_tracker_attaches_is_detached_at_the_end():
    class Attaching(Notebook):
        def attach(self):
            self.note("attach", None)

        def detach(self):
            self.note("detach", None)

    reporter = Attaching()
    loop = Loop(reporter)
    loop.begin()
    loop.end()
    assert kinds(reporter) == ["start", "log_params", "attach", "detach", "finish"]


def test_nothing_of_the_users_is_changed():
    @dataclasses.dataclass
    class Args:
        output_dir: str = "out"
        nested: dict = dataclasses.field(default_factory=lambda: {"api_key": "sk-abcdefgh"})

    loop = Loop(Notebook())
    loop.args, loop.model = Args(), SimpleNamespace(config={"deep": {"token": "hf_SECRET"}})
    before = copy.deepcopy((loop.args, loop.model.config))
    loop.begin()
    loop.evaluate({"eval_loss": 1.0})
    loop.end()
    assert (loop.args, loop.model.config) == before
    changed = {
        name for name, value in vars(loop.state).items() if value != getattr(TrainerState(), name) and name[0] != "_"
    }
    assert changed == {"stateful_callbacks"}


def test_configured_is_true_or_tells_why():
    assert Configured()
    assert not Configured(False, "no key")


@pytest.fixture(autouse=True)
def _warnings_only(caplog):
    caplog.set_level(logging.WARNING)
