"""A recording reporter keeps what it is told, fails where it should, and keeps the contract of reporters itself."""

import copy
import logging
import pickle
from collections import defaultdict

import pytest

from trackside import resolve
from trackside_testkit import FakeLoop, RecordingReporter, Reported, ReporterContract, leave_out


@pytest.fixture
def loop(tmp_path):
    return lambda *callbacks, **arguments: FakeLoop(callbacks, output_dir=tmp_path / "out", **arguments)


def test_it_keeps_all_that_a_training_reports(loop, tmp_path):
    reporter = RecordingReporter()
    training = loop(reporter, num_train_epochs=1, run_name="blue")
    training.train()
    training.log({"note": "done"})
    reporter.close()
    assert [run.name for run in reporter.runs] == ["blue", "blue"]
    assert reporter.points["train/loss"] == [(1, 1 / 2), (2, 1 / 3), (3, 1 / 4), (4, 1 / 5)]
    assert reporter.points["eval/accuracy"] == [(4, 0.75)]
    assert reporter.params["lr_scheduler_kwargs/warmup/steps"] == 3
    assert reporter.texts == {"train/note": [(4, "done")]}
    assert reporter.summary["train/train_loss"] == 0.25
    assert [artifact.path for artifact in reporter.artifacts] == [str(tmp_path / "out" / "checkpoint-4")]
    assert reporter.statuses == ["finished", "finished"]


def test_calls_are_kept_in_their_order(loop):
    reporter = RecordingReporter()
    training = loop(reporter)
    training.fire("on_train_begin")
    training.log({"loss": 0.5})
    training.fire("on_train_end")
    operations = [operation for operation, _ in reporter.calls]
    assert operations == ["start", "log_params", "attach", "log_points", "detach", "flush", "finish"]


def test_it_fails_always_or_once(loop, caplog):
    reporter = RecordingReporter()
    reporter.fail("log_points", TimeoutError("too slow"), once=True)
    reporter.fail("log_artifact")
    loop(reporter).train()
    failures = [message for message in caplog.messages if "failed (" in message]
    assert failures == [
        "recording: log_points failed (TimeoutError: too slow).",
        "recording: log_artifact failed (RuntimeError: log_artifact fails, as it was told to).",
    ]
    assert caplog.messages[-1].endswith("calls that failed: log_points (1), log_artifact (2).")


def test_what_fails_is_kept_as_well():
    reporter = RecordingReporter()
    reporter.fail("finish", once=True)
    with pytest.raises(RuntimeError, match="finish fails"):
        reporter.finish("failed")
    reporter.finish("finished")
    assert reporter.statuses == ["failed", "finished"]


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda reporter: pickle.loads(pickle.dumps(reporter))])
def test_a_copy_starts_with_nothing(clone, loop):
    reporter = RecordingReporter(resume="new")
    reporter.fail("log_text")
    loop(reporter).train()
    copied = clone(reporter)
    assert copied.calls == []
    assert copied.resume == "new"
    copied.log_text("note", "it does not fail", 0, 0.0)
    assert copied.texts == {"note": [(0, "it does not fail")]}
    assert reporter.texts == {}


def test_two_of_them_report_side_by_side(loop, caplog):
    first, second = RecordingReporter(), RecordingReporter()
    with caplog.at_level(logging.WARNING, "trackside.reporter"):
        loop(first, second).train()
    assert first.points == second.points != {}
    assert not [message for message in caplog.messages if "silent" in message]


def test_one_that_is_given_twice_is_taken_once():
    reporter = RecordingReporter()
    assert resolve([reporter, reporter]) == [reporter]
    assert len(resolve([reporter, RecordingReporter()])) == 2


@leave_out(
    "test_a_checkpoint_arrives_without_the_pickle_of_all_arguments", "it keeps the artifact and not the files of it"
)
@leave_out("test_it_is_registered_under_its_own_name", "nobody asks for it by name: a test makes its own")
class TestRecordingReporter(ReporterContract):
    reporter_class = RecordingReporter

    def read(self):
        calls = defaultdict(list)
        for reporter in self.reporters:
            ids = iter(reporter.ids)
            number = ""
            for operation, arguments in reporter.calls:
                number = next(ids) if operation == "start" else number
                calls[number].append((operation, arguments))
        return [self.reported(run) for run in calls.values()]

    def reported(self, calls):
        run = RecordingReporter()
        run.calls = calls
        artifacts = {artifact.name: () for artifact in run.artifacts}
        status = run.statuses[-1] if calls[-1][0] == "finish" else "running"
        return Reported(run.points, run.params, run.texts, run.summary, artifacts, status)
