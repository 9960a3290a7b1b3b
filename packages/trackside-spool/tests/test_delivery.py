"""From the log call to the tracker, with threads in between."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from trackside import StartError
from trackside_spool import SpoolRecorder, folder, replay
from trackside_spool.folder import RunFolder
from trackside_spool.journal import Journal, Reader
from trackside_testkit import FakeLoop, RecordingReporter


def train(*reporters, **changes):
    loop = FakeLoop(list(reporters), **{"output_dir": "out", "eval_strategy": "no", **changes})
    loop.train()
    return loop


def only_folder():
    (found,) = folder.run_folders(Path("out"))
    return found


def losses(reporter):
    return reporter.points.get("train/loss", [])


EXPECTED = [(step, 1 / (step + 1)) for step in range(1, 9)]


class Slow(RecordingReporter):
    """A tracker that takes its time, or never comes back."""

    name = "slow"
    seconds = 0.05
    gate = None

    def log_points(self, points):
        if self.gate is not None:
            self.gate.wait()
        time.sleep(self.seconds)
        super().log_points(points)


class Unreachable(RecordingReporter):
    """A tracker whose server is away as long as `is_away`."""

    name = "unreachable"
    is_away = True

    def start(self, run):
        self.check()
        return super().start(run)

    def log_points(self, points):
        self.check()
        super().log_points(points)

    def check(self):
        if type(self).is_away:
            raise ConnectionRefusedError("nobody there")


@pytest.fixture(autouse=True)
def _away():
    Unreachable.is_away = True


def test_installed_means_on():
    reporter = RecordingReporter()
    train(reporter)
    assert isinstance(reporter._session.recorder, SpoolRecorder)
    assert losses(reporter) == EXPECTED
    assert reporter.statuses == ["finished"]


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")
    reporter = RecordingReporter()
    train(reporter)
    assert losses(reporter) == EXPECTED
    assert not os.path.exists("out/_trackside")


def test_a_line_is_there_when_the_log_call_returns():
    reporter = RecordingReporter()
    loop = FakeLoop([reporter], output_dir="out")
    loop.log({"loss": 1.0})
    (entry,) = Reader(only_folder().journal).read(10)
    assert entry[1].values["loss"] == 1.0


def test_values_of_every_kind_are_written_as_they_are_delivered(caplog):
    reporter = RecordingReporter()
    loop = FakeLoop([reporter], output_dir="out")
    logs = {
        "f": np.float32(0.5), "i": np.int64(3), "n": float("nan"), "inf": float("-inf"), "text": "warm", 7: True,
        "nested": {"a": [1, 2]}, "array": np.array([2.5]), "none": None, "hf_token": "hf_SECRET",
    }  # fmt: skip
    for step in (1, 2):
        loop.log({**logs, "step_of": step})
    reporter.close()
    points = {key: [value for _, value in values] for key, values in reporter.points.items()}
    assert points["train/f"] == [0.5, 0.5]
    assert points["train/i"] == [3, 3]
    assert points["train/7"] == [1, 1]
    assert points["train/nested/a/1"] == [2, 2]
    assert points["train/array"] == [2.5, 2.5]
    assert str(points["train/n"]) == "[nan, nan]"
    assert points["train/inf"] == [float("-inf")] * 2
    assert reporter.texts["train/text"] == [(0, "warm"), (0, "warm")]
    assert "SECRET" not in only_folder().journal.read_text()
    assert caplog.text.count("n is nan at step") == 1


def test_a_slow_tracker_costs_the_loop_nothing_and_gets_everything():
    reporter = Slow()
    reporter.gate = threading.Event()
    loop = FakeLoop([reporter], output_dir="out", logging_steps=1)
    begin = time.monotonic()
    for _ in range(1000):
        loop.log({"loss": 1.0})
    assert time.monotonic() - begin < 5
    reporter.gate.set()
    reporter.close()
    assert len(losses(reporter)) == 1000


def test_one_that_hangs_does_not_hold_up_the_others(monkeypatch, caplog):
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "0.5")
    hanging, healthy = Slow(), RecordingReporter()
    hanging.gate = threading.Event()
    begin = time.monotonic()
    train(hanging, healthy)
    assert time.monotonic() - begin < 30
    assert losses(healthy) == EXPECTED
    assert "slow is owed" in caplog.text
    assert "trackside replay" in caplog.text
    hanging.gate.set()


def test_what_is_owed_after_the_deadline_is_delivered_by_a_replay(monkeypatch, caplog):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0.1")
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "0.1")
    done = subprocess.run(
        [sys.executable, "-c", program("train(Unreachable(), num_train_epochs=2)")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "unreachable is owed" in done.stderr
    (debt,) = replay.debts(only_folder().path)
    assert debt.records == 12  # eight steps, two checkpoints, the summary and the end
    assert not debt.is_settled
    Unreachable.is_away = False
    monkeypatch.setattr(replay, "build", lambda tracker: Unreachable())
    (outcome,) = replay.replay(only_folder())
    assert outcome.reason == ""
    assert list(replay.replay(only_folder())) == []
    (debt,) = replay.debts(only_folder().path)
    assert debt.is_settled


def program(body):
    here = os.path.dirname(__file__)
    return f"import sys; sys.path.insert(0, {here!r})\n" + textwrap.dedent(
        f"""
        from test_delivery import *
        {body}
        """
    )


def test_a_server_that_comes_back_gets_everything_in_order(monkeypatch, caplog):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0.1")
    reporter = Unreachable()
    loop = FakeLoop([reporter], output_dir="out")
    loop.log({"loss": 1.0})
    loop.log({"loss": 2.0})
    Unreachable.is_away = False
    loop.log({"loss": 3.0})
    reporter.close()
    assert [value for _, value in losses(reporter)] == [1.0, 2.0, 3.0]
    assert caplog.text.count("has to wait") == 1


def test_a_named_tracker_that_refuses_within_the_time_stops_the_program():
    reporter = RecordingReporter()
    reporter.fail("start", ValueError("no such project"))
    with pytest.raises(StartError, match="no such project"):
        train(reporter)


def test_a_batch_that_the_tracker_refuses_for_good_is_counted_and_the_rest_goes_on(caplog):
    class Picky(RecordingReporter):
        def log_points(self, points):
            if any(point.step == 3 for point in points):
                raise ValueError("not this one")
            super().log_points(points)

    reporter = Picky()
    loop = train(reporter)
    assert 3 not in [step for step, _ in losses(reporter)]
    assert "log_points (1)" in caplog.text
    loop.evaluate()
    assert len(reporter.points["eval/loss"]) == 1


def test_what_a_tracker_does_not_call_safe_is_safe_once_it_has_finished(monkeypatch):
    class Unsafe(RecordingReporter):
        name = "unsafe"

        def flush(self):
            return NotImplemented

    monkeypatch.setattr("trackside_spool.courier.FLUSH_SECONDS", 0)
    reporter = Unsafe()
    loop = FakeLoop([reporter], output_dir="out", eval_strategy="no")
    loop.fire("on_train_begin")
    loop.log({"loss": 0.5})
    deadline = time.monotonic() + 10
    while not losses(reporter) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    (tracker,) = only_folder().trackers()
    assert (tracker.sent, tracker.durable) == (1, 0)
    loop.fire("on_train_end")
    reporter.close()
    (tracker,) = only_folder().trackers()
    assert (tracker.sent, tracker.durable) == (2, 2)


def test_reporters_that_miss_an_event_or_join_late_get_just_what_they_were_told():
    first, late = RecordingReporter(), RecordingReporter()
    loop = FakeLoop([first], output_dir="out")
    loop.log({"a": 1})
    loop.handler.callbacks.append(late)
    loop.log({"b": 2})
    loop.handler.remove_callback(first)
    loop.log({"c": 3})
    loop.handler.add_callback(first)
    loop.log({"d": 4})
    for reporter in (first, late):
        reporter.close()
    keys = [
        [key.removeprefix("train/") for key in reporter.points if key != "train/epoch"] for reporter in (first, late)
    ]
    assert keys == [["a", "b", "d"], ["b", "c", "d"]]


def test_an_evaluation_after_the_end_lands_in_the_run():
    reporter = RecordingReporter()
    loop = train(reporter)
    loop.evaluate()
    assert len(reporter.points["eval/loss"]) == 1
    assert len({run.id for run in reporter.runs}) == 1
    assert reporter.statuses == ["finished", "finished"]


def test_a_resumed_training_goes_on_in_the_same_journal():
    first, second = RecordingReporter(), RecordingReporter()
    train(first, num_train_epochs=1)
    FakeLoop([second], output_dir="out", eval_strategy="no").train(resume_from="out/checkpoint-4")
    assert [step for step, _ in losses(second)] == [5, 6, 7, 8]
    steps = [record.step for _, record in Reader(only_folder().journal).read(1000) if "loss" in record.values]
    assert steps == list(range(1, 9))


def test_a_live_neighbour_is_left_alone():
    first, second = RecordingReporter(), RecordingReporter()
    train(first, num_train_epochs=1)
    neighbour = RunFolder(only_folder().path)
    neighbour.lock()
    FakeLoop([second], output_dir="out", eval_strategy="no").train(resume_from="out/checkpoint-4")
    neighbour.unlock()
    ((one,), (other,)) = first.runs, second.runs
    assert other.id != one.id
    assert other.name != one.name
    assert other.source["parent"] == one.name
    assert other.tracker_id is None


def test_a_whole_run_can_be_sent_to_another_tracker(monkeypatch):
    train(Slow(), num_train_epochs=1)
    other = RecordingReporter()
    monkeypatch.setattr(replay, "resolve", lambda report_to: [other])
    outcome = replay.replay_to(only_folder(), "recording", {})
    assert outcome.reason == ""
    assert losses(other) == EXPECTED[:4]
    assert other.params["learning_rate"] == 0.1
    assert [artifact.name for artifact in other.artifacts] == ["checkpoint-4"]
    assert other.statuses == ["finished"]


def test_a_replay_says_what_shows_the_run(monkeypatch):
    train(Slow(), num_train_epochs=1)
    other = RecordingReporter()
    monkeypatch.setattr(replay, "resolve", lambda report_to: [other])
    monkeypatch.setattr(other, "where", lambda: "https://here")
    assert replay.replay_to(only_folder(), "recording", {}).shown_by == "https://here"


def test_a_tracker_that_is_no_longer_waited_for_stays_owed_and_is_left_alone(monkeypatch):
    train(RecordingReporter(), num_train_epochs=1)
    away = Unreachable()
    couriers = []

    def watch(courier):
        couriers.append(courier)
        courier.has_answered.wait(10)

    monkeypatch.setattr(replay, "resolve", lambda report_to: [away])
    outcome = replay.replay_to(only_folder(), "unreachable", {}, watch)
    assert (outcome.delivered, outcome.is_left, outcome.shown_by) == (0, True, None)
    assert "nobody there" in outcome.reason
    assert couriers[0].has_ended.is_set()


def test_two_replays_at_once_are_refused(tmp_path):
    train(RecordingReporter(), num_train_epochs=1)
    RunFolder(only_folder().path).lock()
    with pytest.raises(folder.InUseError, match="in use by another process"):
        list(replay.replay(only_folder()))


def test_whether_a_run_is_live_can_be_asked_without_claiming_it(tmp_path):
    train(RecordingReporter(), num_train_epochs=1)
    at_work, asked = RunFolder(only_folder().path), only_folder()
    at_work.lock()
    assert asked.is_live
    at_work.unlock()
    assert not asked.is_live
    asked.lock()
    asked.unlock()


def test_a_folder_without_runs_is_an_error_with_its_name(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run below"):
        list(replay.debts(tmp_path))


@pytest.mark.parametrize("times", range(3))
def test_every_log_call_that_returned_survives_kill_9(times, tmp_path):
    source = program(
        """loop = FakeLoop([RecordingReporter()], output_dir="out")
        for number in range(1_000_000):
            loop.log({"loss": number})
            print(number, flush=True)"""
    )
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as child:
        for number, _ in enumerate(child.stdout):
            if number == 300 + 200 * times:
                break
        child.send_signal(signal.SIGKILL)
        returned = number + 1 + sum(1 for _ in child.stdout)
    values = [record.values["loss"] for _, record in Reader(only_folder().journal).read(10**6)]
    assert values[:returned] == list(range(returned))
    assert len(values) <= returned + 1


@pytest.fixture(autouse=True)
def _warnings_only(caplog):
    caplog.set_level(logging.WARNING)


def test_journals_that_are_delivered_can_be_pruned(tmp_path):
    reporter = RecordingReporter()
    train(reporter)
    (gone,) = replay.prune(tmp_path)
    assert not gone.exists()


def test_a_journal_opened_again_goes_on_behind_what_it_holds(run, tmp_path):
    path = tmp_path / "j.jsonl"
    for _ in range(2):
        Journal(path, run)
    assert path.read_text().count("trackside-journal") == 1


class StaysOpen(Slow):
    """A tracker that cannot reopen a run: it stays open after the training, and a user may close it by himself."""

    reopenable = False


def test_a_run_that_stays_open_has_everything_when_its_training_has_ended():
    reporter = StaysOpen()
    train(reporter)
    assert losses(reporter) == EXPECTED
    assert reporter.statuses == []
    reporter.close()


def test_what_is_evaluated_after_a_training_is_there_as_well():
    reporter = StaysOpen()
    loop = train(reporter)
    loop.evaluate()
    loop.predict()
    assert reporter.points["eval/loss"] == [(8, 1 / 9)]
    assert reporter.points["test/loss"] == [(8, 1 / 9)]
    reporter.close()


def test_the_end_of_a_training_does_not_wait_for_a_tracker_in_trouble(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0.1")

    class Away(Unreachable):
        reopenable = False

    reporter = Away()
    began = time.monotonic()
    train(reporter)
    assert time.monotonic() - began < 5
    Unreachable.is_away = False
    reporter.close()
    assert losses(reporter) == EXPECTED


def test_the_end_of_a_training_waits_no_longer_than_it_is_told_to(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "0.2")
    reporter = StaysOpen()
    reporter.gate = threading.Event()
    began = time.monotonic()
    train(reporter)
    assert time.monotonic() - began < 5
    reporter.gate.set()
    reporter.close()
