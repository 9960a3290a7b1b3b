"""What every reporter promises, as a suite: `class TestMyTracker(ReporterContract)`."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from trackside import Configured, StartError, Status, installed
from trackside.records import STATE_KEY
from trackside_testkit.guard import Guard
from trackside_testkit.loop import FakeConfig, FakeModel
from trackside_testkit.samples import ANY_VALUE, FINITE, KEYS, NO_NUMBERS, NON_FINITE, SECRETS
from trackside_testkit.workbench import Workbench, in_forked_child, losses

Contract = TypeVar("Contract", bound="type[ReporterContract]")

# The operations that a reporter may have, and the part of `Reported` in which each of them leaves its mark.
PARTS = {
    "log_points": "points",
    "log_params": "params",
    "log_text": "texts",
    "log_summary": "summary",
    "log_artifact": "artifacts",
}


def leave_out(test: str, reason: str) -> Callable[[Contract], Contract]:
    """Leave one test out of a contract, for a reason that pytest then shows beside it.

    @leave_out("test_a_copy_reports_a_run_of_its_own", "the SDK allows one run in a process")
    class TestMyTracker(ReporterContract): ...
    """

    def decorate(contract: Contract) -> Contract:
        contract.left_out = {**contract.left_out, test: reason}
        contract._check_left_out()
        return contract

    return decorate


class ReporterContract(Workbench):
    """The promises of a reporter. An integration subclasses this in its tests, and says how to read its tracker.

        class TestMyTracker(ReporterContract):
            reporter_class = MyTrackerCallback

            def read(self):
                return [Reported(points=run.scalars, params=run.config, status=run.state) for run in fake_sdk.runs]

    Each test runs in an empty folder, `self.folder`, which is also the home and the working directory; a fixture of a
    subclass that needs it asks for `folder`. The environment variables of the reporter's options are unset. The loop's
    `output_dir` is `folder/out`.

    A test cannot be overridden. One that does not hold for a tracker is left out with a reason: by `left_out`, or with
    the decorator `leave_out`.

    Attributes:
        reporter_class: the class that is tested.
        left_out: names of tests that do not hold for this tracker, each with the reason.
        nearest_status: what `Reported.status` says for a status that the tracker does not know.
        tolerance: the relative error of a number, for trackers that store 32-bit floats.
    """

    left_out: ClassVar[Mapping[str, str]] = {}

    # ---- a run from start to end --------------------------------------------------------------------------------

    def test_a_run_arrives_complete_and_in_order(self) -> None:
        reporter = self.reporter()
        self.loop(reporter, num_train_epochs=2).train()
        run = self.only_run(reporter)
        self.assert_points(run, "loss", losses(1, 8))
        self.assert_points(run, "grad_norm", [(step, 2 / (step + 1)) for step in range(1, 9)])
        self.assert_points(run, "eval_loss", [(4, 1 / 5), (8, 1 / 9)])
        self.assert_points(run, "eval_accuracy", [(4, 0.75), (8, 0.75)])

    def test_all_that_is_sent_can_be_read_back(self) -> None:
        reporter = self.reporter()
        self.short_training(self.loop(reporter))
        run = self.only_run(reporter)
        unread = [
            part
            for operation, part in PARTS.items()
            if self.reporter_class.has(operation) and getattr(run, part) is None
        ]
        assert unread == [], f"{self.reporter_class.__name__} sends what `read` does not give back: {unread}"

    def test_arguments_and_the_config_of_the_model_arrive_as_params(self) -> None:
        reporter = self.reporter()
        self.short_training(self.loop(reporter, learning_rate=0.125, run_name="blue"))
        self.assert_params(
            self.only_run(reporter),
            {"learning_rate": 0.125, "run_name": "blue", "hidden_size": 32, "lr_scheduler_kwargs/warmup/steps": 3},
        )

    def test_a_long_parameter_is_cut_visibly_and_kept_whole_as_a_file(self) -> None:
        limit = self.reporter_class.limits.param_value
        if limit is None or not self.reporter_class.has("log_params"):
            pytest.skip("this tracker has no such limit")
        reporter = self.reporter()
        self.short_training(self.loop(reporter, run_name="x" * (limit + 1)))
        run = self.only_run(reporter)
        assert str(self.part(run, "params")["run_name"]).endswith(f"({limit + 1} characters)")
        self.assert_points(run, "loss", [(1, 0.5)])
        artifacts = self.part(run, "artifacts")
        assert any("run_name" in f"{name}/{file}" for name, files in artifacts.items() for file in files)

    def test_a_text_arrives_at_its_step(self) -> None:
        reporter = self.reporter()
        self.short_training(self.loop(reporter))
        texts = self.part(self.only_run(reporter), "texts")
        assert list(texts.get(self.key("note"), [])) == [(1, "half-way")]

    def test_what_is_logged_once_arrives_as_summary_or_at_the_last_step(self) -> None:
        reporter = self.reporter()
        self.loop(reporter, num_train_epochs=1).train()
        run = self.only_run(reporter)
        if self.reporter_class.has("log_summary"):
            summary = self.part(run, "summary")
            assert summary[self.key("train_loss")] == pytest.approx(0.25, rel=self.tolerance)
        else:
            self.assert_points(run, "train_loss", [(4, 0.25)])

    def test_a_checkpoint_arrives_without_the_pickle_of_all_arguments(self) -> None:
        reporter = self.reporter()
        self.short_training(self.loop(reporter))
        artifacts = self.part(self.only_run(reporter), "artifacts")
        (files,) = (set(files) for name, files in artifacts.items() if "checkpoint-1" in name)
        assert "trainer_state.json" in files
        assert "training_args.bin" not in files

    def test_a_prediction_arrives(self) -> None:
        reporter = self.reporter()
        loop = self.loop(reporter, num_train_epochs=1)
        loop.train()
        loop.predict()
        self.assert_points(self.only_run(reporter), "test_loss", [(4, 1 / 5)])

    def test_what_was_sent_is_readable_once_the_training_has_ended(self) -> None:
        if not (self.reporter_class.has("flush") or self.reporter_class.reopenable):
            pytest.skip("what this tracker holds is durable after `finish` only")
        reporter = self.reporter()
        self.loop(reporter, num_train_epochs=1).train()
        (run,) = self.read()
        self.assert_points(run, "loss", losses(1, 4))

    # ---- when a run starts and ends -----------------------------------------------------------------------------

    def test_several_trainings_are_several_runs(self) -> None:
        reporter = self.reporter()
        loop = self.loop(reporter, num_train_epochs=1)
        for _ in range(3):
            loop.train()
        reporter.close()
        runs = self.read()
        assert len(runs) == 3
        for run in runs:
            self.assert_points(run, "loss", losses(1, 4))

    def test_two_runs_of_one_name_and_folder_do_not_mix(self) -> None:
        for _ in range(2):
            reporter = self.reporter()
            self.loop(reporter, num_train_epochs=1, run_name="blue").train()
            reporter.close()
        runs = self.read()
        assert len(runs) == 2
        for run in runs:
            self.assert_points(run, "loss", losses(1, 4))

    def test_starting_twice_is_two_runs(self) -> None:
        reporter = self.reporter()
        loop = self.loop(reporter)
        for value in (1.5, 2.5):
            loop.fire("on_train_begin")
            loop.log({"loss": value})
        loop.fire("on_train_end")
        reporter.close()
        assert sorted(self.points_of(run, "loss") for run in self.read()) == [[(0, 1.5)], [(0, 2.5)]]

    def test_ending_twice_closes_a_run_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reporter = self.reporter()
        finished = self.count(reporter, ["finish"], monkeypatch)
        loop = self.loop(reporter)
        loop.train()
        loop.fire("on_train_end")
        reporter.close()
        reporter.close()
        assert finished == ["finish"]
        self.only_run(reporter)

    def test_ending_without_a_start_does_nothing(self) -> None:
        reporter = self.reporter()
        loop = self.loop(reporter)
        loop.fire("on_train_end")
        loop.fire("on_exception", exception=RuntimeError())
        reporter.close()
        assert self.read() == []

    def test_what_is_logged_after_the_end_belongs_to_the_run(self) -> None:
        reporter = self.reporter()
        loop = self.loop(reporter, num_train_epochs=1)
        loop.train()
        loop.log({"late": 9.0})
        self.assert_points(self.only_run(reporter), "late", [(4, 9.0)])

    def test_an_evaluation_alone_is_a_run(self) -> None:
        reporter = self.reporter()
        self.loop(reporter).evaluate()
        self.assert_points(self.only_run(reporter), "eval_loss", [(0, 1.0)])

    def test_evaluations_before_and_after_a_training_belong_to_its_run(self) -> None:
        reporter = self.reporter()
        loop = self.loop(reporter, num_train_epochs=1, eval_strategy="no")
        loop.evaluate()
        loop.train()
        loop.evaluate()
        self.assert_points(self.only_run(reporter), "eval_loss", [(0, 1.0), (4, 1 / 5)])

    def test_a_training_that_came_to_its_end_has_finished(self) -> None:
        reporter = self.reporter()
        self.loop(reporter).train()
        assert self.part(self.only_run(reporter), "status") == self.status("finished")

    @pytest.mark.parametrize(
        ("exception", "status"),
        [
            (RuntimeError("out of memory"), "failed"),
            (KeyboardInterrupt(), "killed"),
            (SystemExit(1), "killed"),
            (type("TrialPruned", (Exception,), {})(), "pruned"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value,
    )
    def test_an_exception_goes_on_and_says_how_the_run_has_ended(
        self, exception: BaseException, status: Status
    ) -> None:
        reporter = self.reporter()
        with pytest.raises(type(exception)) as raised:
            self.loop(reporter).train(fail_at=3, exception=exception)
        assert raised.value is exception
        run = self.only_run(reporter)
        self.assert_points(run, "loss", [(1, 1 / 2), (2, 1 / 3)])
        assert self.part(run, "status") == self.status(status)

    def test_a_failed_run_stays_failed_whatever_is_evaluated_afterwards(self) -> None:
        reporter = self.reporter()
        loop = self.loop(reporter)
        with pytest.raises(RuntimeError):
            loop.train(fail_at=3)
        loop.evaluate()
        assert self.part(self.only_run(reporter), "status") == self.status("failed")

    def test_a_resumed_training_goes_on_in_its_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first = self.reporter()
        with pytest.raises(RuntimeError):
            self.loop(first).train(fail_at=7)
        second = self.reporter()
        loop = self.loop(second)
        monkeypatch.setattr(loop, "loss", lambda step: 10.0 * step)
        loop.train(resume_from=Path(loop.args.output_dir, "checkpoint-4"))
        second.close()
        runs = self.read()
        assert any(self.latest(run, "loss").items() >= {5: 50, 6: 60, 7: 70, 8: 80}.items() for run in runs)
        if not self.reporter_class.reopenable:
            pytest.skip("a closed run of this tracker cannot be continued: the rest of the training is another one")
        (run,) = runs
        assert self.latest(run, "loss") == pytest.approx(
            {**dict(losses(1, 4)), 5: 50, 6: 60, 7: 70, 8: 80}, rel=self.tolerance
        )

    def test_a_resumed_training_goes_on_in_its_run_also_after_an_evaluation(self) -> None:
        if not self.reporter_class.reopenable:
            pytest.skip("a closed run of this tracker cannot be continued")
        first = self.reporter()
        with pytest.raises(RuntimeError):
            self.loop(first).train(fail_at=6)
        second = self.reporter()
        loop = self.loop(second)
        loop.evaluate()
        loop.train(resume_from=Path(loop.args.output_dir, "checkpoint-4"))
        second.close()
        evaluation, training = sorted(self.read(), key=lambda run: len(self.points_of(run, "loss")))
        self.assert_points(evaluation, "eval_loss", [(0, 1.0)])
        assert self.latest(training, "loss") == pytest.approx(dict(losses(1, 8)), rel=self.tolerance)

    def test_a_checkpoint_knows_the_run_also_after_an_evaluation_before_the_training(self) -> None:
        reporter = self.reporter()
        loop = self.loop(reporter)
        loop.evaluate()
        loop.train()
        if reporter.tracker_id is None:
            pytest.skip("a run of this tracker has no id")
        assert reporter.tracker_id in loop.state.stateful_callbacks[STATE_KEY]["trackers"].values()

    def test_a_new_run_is_started_where_the_user_does_not_want_to_resume(self) -> None:
        first = self.reporter()
        self.loop(first).train()
        first.close()
        second = self.reporter(resume="new")
        loop = self.loop(second, num_train_epochs=3)
        loop.train(resume_from=Path(loop.args.output_dir, "checkpoint-8"))
        second.close()
        assert sorted(len(self.points_of(run, "loss")) for run in self.read()) == [4, 8]

    # ---- who speaks ---------------------------------------------------------------------------------------------

    def test_other_ranks_are_silent(self) -> None:
        if self.reporter_class.scope == "every":
            pytest.skip("every rank reports to this tracker")
        reporter = self.reporter()
        loop = self.loop(reporter, rank=8, local_rank=0 if self.reporter_class.scope == "world" else 1)
        loop.evaluate()
        loop.train()
        loop.predict()
        with pytest.raises(RuntimeError):
            loop.train(fail_at=3)
        assert reporter.run is None
        reporter.close()
        assert self.read() == []
        assert list(self.folder.iterdir()) == []

    def test_nothing_is_reported_where_reporting_is_switched_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRACKSIDE_DISABLED", "1")
        reporter = self.reporter()
        self.loop(reporter, save_strategy="no").train()
        reporter.close()
        assert self.read() == []
        assert list(self.folder.iterdir()) == []

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
    def test_a_forked_child_reports_nothing_and_leaves_the_run_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reporter = self.reporter()
        operations = ["start", *PARTS, "flush", "attach", "detach", "finish"]
        called = self.count(reporter, operations, monkeypatch)
        loop = self.loop(reporter)
        loop.fire("on_train_begin")
        loop.log({"loss": 0.5})

        def use_in_child() -> bool:
            called.clear()
            loop.log({"loss": 100.0})
            loop.fire("on_train_end")
            reporter.close()
            return not called

        assert in_forked_child(use_in_child), f"a forked child has called {reporter.name}"
        loop.log({"loss": 0.25})
        loop.fire("on_train_end")
        self.assert_points(self.only_run(reporter), "loss", [(0, 0.5), (0, 0.25)])

    @pytest.mark.parametrize("moment", ["before", "during", "after"])
    @pytest.mark.parametrize("method", ["pickle", "deepcopy"])
    def test_a_copy_reports_a_run_of_its_own(self, method: str, moment: str) -> None:
        clone = copy.deepcopy if method == "deepcopy" else lambda value: pickle.loads(pickle.dumps(value))
        copies = {}
        reporter = self.reporter()
        loop = self.loop(reporter)
        copies["before"] = clone(reporter)
        loop.fire("on_train_begin")
        loop.log({"loss": 0.5})
        copies["during"] = clone(reporter)
        loop.log({"loss": 0.25})
        loop.fire("on_train_end")
        copies["after"] = clone(reporter)
        reporter.close()

        copied = self.closed_later(copies[moment])
        assert copied.run is None
        self.loop(copied, num_train_epochs=1).train()
        copied.close()
        found = sorted((self.points_of(run, "loss") for run in self.read()), key=len)
        assert found == [
            [(0, 0.5), (0, 0.25)],
            [(step, pytest.approx(loss, rel=self.tolerance)) for step, loss in losses(1, 4)],
        ]

    # ---- values and keys ----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", FINITE)
    def test_a_finite_number_arrives_as_it_is(self, kind: str) -> None:
        value, expected = FINITE[kind]
        run = self.run_with({"loss": 0.5, "odd": value, "later": 2.5})
        self.assert_points(run, "odd", [(1, expected)])
        self.assert_neighbours_of_odd(run)

    @pytest.mark.parametrize("kind", NON_FINITE)
    def test_a_number_that_is_not_finite_never_arrives_as_one_that_is(self, kind: str) -> None:
        run = self.run_with({"loss": 0.5, "odd": NON_FINITE[kind], "later": 2.5})
        found = [value for _, value in self.part(run, "points").get(self.key("odd"), [])]
        assert not any(abs(value) < float("inf") for value in found)
        self.assert_neighbours_of_odd(run)

    @pytest.mark.parametrize("kind", NO_NUMBERS)
    def test_what_is_no_number_harms_nothing(self, kind: str) -> None:
        run = self.run_with({"loss": 0.5, "odd": NO_NUMBERS[kind], "later": 2.5, "note": "beside it"})
        self.assert_points(run, "odd", [])
        self.assert_neighbours_of_odd(run)

    def test_nested_values_and_numbers_as_keys_arrive_flat(self) -> None:
        run = self.run_with({0: 0.5, "eval_f1": {"cat": 0.75, 1: 0.25}, "curve": [1.5, 2.5]})
        for name, value in {"0": 0.5, "eval_f1/cat": 0.75, "eval_f1/1": 0.25, "curve/0": 1.5, "curve/1": 2.5}.items():
            self.assert_points(run, name, [(1, value)])

    def test_any_value_may_be_an_argument(self) -> None:
        anything = dict(enumerate(ANY_VALUE.values()))
        config = FakeConfig(anything=anything, **{key or "empty": 1 for key in KEYS})
        reporter = self.reporter()
        self.short_training(self.loop(reporter, model=FakeModel(config), lr_scheduler_kwargs=anything, seed=7))
        run = self.only_run(reporter)
        self.assert_points(run, "loss", [(1, 0.5)])
        self.assert_params(run, {"hidden_size": 32, "anything/0": 3, "seed": 7, "lr_scheduler_kwargs/0": 3})

    def test_values_under_any_keys_arrive_and_stay_apart(self) -> None:
        keys = [*KEYS, str(self.around / "absolute")]
        run = self.run_with({key: float(number) for number, key in enumerate(keys, 1)})
        points = self.part(run, "points")
        found = sorted(value for key, found in points.items() for _, value in found if key != self.key("epoch"))
        assert found == [float(number) for number, _ in enumerate(keys, 1)]

    def test_no_key_leads_out_of_the_folder(self) -> None:
        keys = [*KEYS, str(self.around / "absolute")]
        self.run_with(dict.fromkeys(keys, 1.5) | {f"text of {key}": "a text" for key in keys})
        files = [path for path in self.around.rglob("*") if not path.is_dir()]
        assert [file for file in files if self.folder not in file.parents] == []

    def test_nothing_that_belongs_to_the_loop_is_changed(self) -> None:
        reporter = self.reporter()
        loop = self.loop(Guard(reporter), lr_scheduler_kwargs={"nested": {"hub_token": SECRETS["hub_token"]}})
        loop.evaluate()
        loop.train()
        loop.log(dict(ANY_VALUE))
        loop.fire("on_evaluate", metrics={f"eval_{key}": value for key, value in ANY_VALUE.items()})
        loop.predict()
        with pytest.raises(RuntimeError):
            loop.train(fail_at=3)

    # ---- failure ------------------------------------------------------------------------------------------------

    def test_a_tracker_that_the_user_named_and_that_refuses_ends_the_program(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reporter = self.reporter()
        self.let_fail(reporter, "start", monkeypatch, RuntimeError("there is no such project"))
        with pytest.raises(StartError, match="there is no such project") as refused:
            self.loop(reporter).train()
        sentence = str(refused.value)
        assert reporter.name in sentence
        assert sentence.endswith(".")
        assert "\n" not in sentence
        assert reporter.run is None

    def test_a_tracker_that_nobody_named_and_that_refuses_is_left_out(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        reporter = self.reporter()
        reporter.required = False
        self.let_fail(reporter, "start", monkeypatch, RuntimeError("there is no such project"))
        loop = self.loop(reporter)
        loop.train()
        assert loop.state.global_step == 8
        assert sum("there is no such project" in message for message in caplog.messages) == 1

    def test_a_server_that_cannot_be_reached_ends_nothing(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        reporter = self.reporter()
        self.let_fail(reporter, "start", monkeypatch, ConnectionError("connection refused"))
        loop = self.loop(reporter)
        loop.train()
        assert loop.state.global_step == 8
        assert sum("connection refused" in message for message in caplog.messages) == 1

    def test_after_a_refusal_the_next_training_starts_anew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reporter = self.reporter()
        reporter.required = False
        self.let_fail(reporter, "start", monkeypatch, RuntimeError("there is no such project"), times=1)
        loop = self.loop(reporter, num_train_epochs=1)
        loop.train()
        loop.train()
        self.assert_points(self.only_run(reporter), "loss", losses(1, 4))

    @pytest.mark.parametrize("operation", [*PARTS, "flush", "attach", "detach", "finish"])
    def test_an_operation_that_always_fails_is_one_warning_and_costs_nothing_else(
        self, operation: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        if not self.reporter_class.has(operation):
            pytest.skip(f"{self.reporter_class.__name__} has no {operation}")
        reporter = self.reporter()
        self.let_fail(reporter, operation, monkeypatch, RuntimeError("the disk is full"))
        loop = self.loop(reporter)
        loop.train()
        loop.log({"note": "half-way"})
        loop.log({"note": "at the end"})
        run = self.only_run(reporter)
        assert loop.state.global_step == 8
        assert sum("the disk is full" in message and operation in message for message in caplog.messages) == 1
        for other in (part for name, part in PARTS.items() if name != operation and self.reporter_class.has(name)):
            assert getattr(run, other), f"{other} were lost because {operation} failed"

    def test_a_batch_that_fails_costs_no_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reporter = self.reporter()
        self.let_fail(reporter, "log_points", monkeypatch, TimeoutError("too slow"), times=1)
        self.loop(reporter).train()
        self.assert_points(self.only_run(reporter), "loss", losses(2, 8))

    # ---- secrets ------------------------------------------------------------------------------------------------

    def test_no_secret_reaches_the_tracker_a_file_or_the_console(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
    ) -> None:
        secret = SECRETS
        monkeypatch.setenv("SOME_API_KEY", secret["variable"])
        monkeypatch.setattr(
            sys, "argv", ["train.py", "--hub_token", secret["argument"], f"--password={secret['option']}"]
        )
        reporter = self.reporter()
        nested = {
            "openai": {"api_key": secret["api_key"]},
            "accounts": [{"password": secret["password"]}],
            "endpoint": f"https://user:{secret['login']}@host/path",
            "command": ["--wandb-api-key", secret["option"]],
            "comment": f"the key is {secret['variable']}",
        }
        model = FakeModel(FakeConfig(auth_token=secret["config"]))
        loop = self.loop(
            reporter,
            model=model,
            run_name=f"try {secret['text']}",
            hub_token=secret["hub_token"],
            lr_scheduler_kwargs=nested,
        )
        loop.begin(1)
        loop.log({"note": f"cloned with {secret['text']} and {secret['variable']}", "loss": 0.5})
        loop.log({"header": f"Authorization: Bearer {secret['bearer']}", "git": nested["endpoint"]})
        loop.log({f"loss of {secret['text']}": 0.5, "api_key": {"openai": secret["api_key"]}})
        self.let_fail(reporter, "log_points", monkeypatch, RuntimeError(f"401 for {secret['hub_token']}"))
        loop.log({"loss": 0.25})
        loop.save()
        loop.fire("on_exception", exception=RuntimeError(f"401 for {secret['hub_token']}"))
        reporter.close()

        places = {"the tracker": repr(self.read()), "the console": caplog.text + "".join(capfd.readouterr())}
        places |= {str(file): f"{file} {file.read_bytes().decode(errors='replace')}" for file in self.files()}
        leaks = {f"the {kind} in {place}" for place, text in places.items() for kind in secret if secret[kind] in text}
        assert leaks == set()

    # ---- the class ----------------------------------------------------------------------------------------------

    def test_importing_the_integration_imports_no_sdk_and_says_nothing(self) -> None:
        cls = self.reporter_class
        code = f"import sys, {cls.__module__}\nassert {cls.sdk!r} not in sys.modules, 'the import of {cls.sdk}'"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def test_an_unknown_option_is_a_type_error(self) -> None:
        with pytest.raises(TypeError, match="no_such_option"):
            self.make_reporter(no_such_option=1)

    def test_it_says_whether_it_is_configured(self) -> None:
        assert self.reporter().configured() == Configured(True)

    def test_it_is_registered_under_its_own_name(self) -> None:
        cls = self.reporter_class
        package = cls.__module__.partition(".")[0]
        points = [point for point in installed().values() if point.module.partition(".")[0] == package]
        if not points and not is_installed(package):
            pytest.skip(f"{cls.__module__} is not installed, so that it has no entry points")
        assert [point.name for point in points if point.load() is cls] == [cls.name]

    # ---- leaving out ------------------------------------------------------------------------------------------------

    @pytest.fixture(autouse=True)
    def _skip_if_left_out(self, request: pytest.FixtureRequest) -> None:
        reason = self.left_out.get(request.function.__name__)
        if reason is not None:
            pytest.skip(reason)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._check_left_out()
        overridden = [test for test in contract_tests() if getattr(cls, test) is not getattr(ReporterContract, test)]
        if overridden:
            raise TypeError(
                f"{cls.__name__} overrides {', '.join(overridden)} of the contract; leave out what does not hold, with "
                'its reason: left_out = {"test_...": "reason"}.'
            )

    @classmethod
    def _check_left_out(cls) -> None:
        for test, reason in cls.left_out.items():
            if test not in contract_tests():
                raise TypeError(f"{cls.__name__} leaves out {test!r}, which is no test of the contract.")
            if not reason.strip():
                raise TypeError(f"{cls.__name__} leaves out {test!r} without a reason.")


def contract_tests() -> list[str]:
    """The names of all tests of the contract."""
    return [name for name in vars(ReporterContract) if name.startswith("test_")]


def is_installed(package: str) -> bool:
    """Whether a package stands in an environment as a dist, rather than just on the path."""
    return any(file.parts[0].removesuffix(".py") == package for dist in distributions() for file in dist.files or ())
