"""When a run starts and ends, who it is, and where it goes on."""

import copy
import dataclasses
import os
import subprocess
import sys
import textwrap

import pytest
from training import Loop, Notebook, kinds

from trackside import Run, TrainerState


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


class Sized(list):
    """Like a parameter of torch: it says how many numbers it holds."""

    numel = list.__len__


class Torchlike:
    def parameters(self):
        return iter((Sized("weights"), Sized("bias")))


class Transformerslike:
    def num_parameters(self):
        return 7


class Unloaded:
    def parameters(self):
        raise RuntimeError("not loaded yet")


@pytest.mark.parametrize(("model", "size"), [(Torchlike, 11), (Transformerslike, 7), (Unloaded, None), (object, None)])
def test_a_run_knows_the_size_of_its_model_if_that_says_so(model, size):
    assert Run.gather({}, TrainerState(), model()).num_parameters == size


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


def test_it_is_closed_as_well_if_the_next_training_has_a_reporter_of_its_own():
    first, second, other = Pencil(), Pencil(), Notebook()
    for reporter in (first, other, second):
        loop = Loop(reporter)
        loop.begin()
        loop.end()
    assert first.told("finish") == ["finished"]
    assert second.told("finish") == []


def test_a_training_in_a_training_leaves_the_run_of_the_outer_one_open():
    outer, inner = Pencil(), Pencil()
    Loop(outer).begin()
    Loop(inner).begin()
    assert outer.told("finish") == []


def test_a_tracker_that_refuses_to_go_on_after_the_end_ends_no_program(caplog):
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    loop.end()
    reporter.failing = ("start",)
    loop.evaluate({"eval_loss": 3.0})
    assert caplog.text.count("notebook cannot continue the run (RuntimeError: no start today)") == 1
    reporter.failing = ()
    loop.evaluate({"eval_loss": 2.0})
    assert reporter.points == [(0, {"eval/loss": 2.0})]


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


def test_a_run_says_flat_where_it_comes_from_and_of_which_trial_and_size_it_is():
    bare = Run("ab", "blue", "out", source={"python": "3.11"})
    assert bare.origin(None) == {"trackside/run": "ab", "trackside/python": "3.11"}
    run = dataclasses.replace(
        bare, tracker_id="7", trial_name="trial-2", trial_params={"lr": {"base": 0.1}}, num_parameters=12
    )
    told = {**bare.origin(None), "trial/name": "trial-2", "trial/lr/base": 0.1, "model/num_parameters": 12}
    assert run.origin("7") == told
    assert run.origin("8") == {**told, "trackside/continues": "7"}
