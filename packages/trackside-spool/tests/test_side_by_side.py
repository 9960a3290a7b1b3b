"""Several trackers start side by side, and end so: the loop waits for the slowest, not for one after another."""

import threading
import time
from pathlib import Path

import pytest
from elsewhere import FileReporter, told

from trackside import StartError, TrainerCallback
from trackside_spool import folder
from trackside_spool.replay import debts
from trackside_testkit import FakeLoop, RecordingReporter


class Starting(RecordingReporter):
    """A tracker that starts once `gate` is passed, and ends once `leave` is."""

    def __init__(self, name="starting", gate=lambda: None, leave=lambda: None):
        super().__init__()
        self.name, self.gate, self.goodbye = name, gate, leave

    def start(self, run):
        self.gate()
        return super().start(run)

    def finish(self, status):
        self.goodbye()
        super().finish(status)


class Looks(TrainerCallback):
    """A callback of the user's that looks for the runs of reporters before it."""

    def __init__(self, *reporters):
        self.reporters, self.seen = reporters, {}

    def on_train_begin(self, args, state, control, **kwargs):
        self.look("on_train_begin")

    def on_step_begin(self, args, state, control, **kwargs):
        self.look("on_step_begin")

    def look(self, event):
        self.seen.setdefault(event, [reporter.run is not None for reporter in self.reporters])


def loop_of(*callbacks):
    return FakeLoop(callbacks, output_dir="out", eval_strategy="no", save_strategy="no")


def side_by_side(count, seconds=20):
    """Reporters of which none has started before all of them are starting."""
    meeting = threading.Barrier(count)
    return [Starting(f"tracker{number}", lambda: meeting.wait(seconds)) for number in range(count)]


def test_trackers_start_side_by_side_and_a_callback_behind_them_finds_all_runs():
    reporters = side_by_side(3)
    looks = Looks(*reporters)
    loop_of(*reporters, looks).train()
    assert looks.seen["on_train_begin"] == [True] * 3
    for reporter in reporters:
        assert len(reporter.points["train/loss"]) == 8


def test_one_that_was_removed_is_not_started_and_the_others_have_started_before_the_first_step():
    reporters = side_by_side(2)
    removed = Starting("removed")
    looks = Looks(*reporters)
    loop = loop_of(*reporters, removed, looks)
    loop.handler.remove_callback(removed)
    loop.train()
    assert removed.calls == []
    assert looks.seen["on_step_begin"] == [True, True]
    assert [tracker.key for found in folder.run_folders(Path("out")) for tracker in found.trackers()] == [
        "tracker0",
        "tracker1",
    ]


def test_one_that_was_added_later_starts_as_well():
    reporters = side_by_side(2)
    late = Starting("late")
    loop = loop_of(*reporters)
    loop.handler.add_callback(late)
    loop.train()
    assert len(late.points["train/loss"]) == 8


def test_the_next_training_starts_side_by_side_too():
    reporters = side_by_side(2)
    loop = loop_of(*reporters)
    loop.train()
    loop.train()
    assert [len(reporter.runs) for reporter in reporters] == [2, 2]


def test_a_refusal_of_one_stops_the_program_and_leaves_no_other_run_open():
    def refuse():
        raise ValueError("no such project")

    refusing, other = Starting("refusing", refuse), Starting("other")
    with pytest.raises(StartError, match=r"refusing cannot start \(ValueError: no such project\)"):
        loop_of(refusing, other).train()
    assert other.statuses == ["failed"]


def test_several_that_do_not_answer_are_waited_for_together(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "1")
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "20")
    answer = threading.Event()
    reporters = [Starting(f"tracker{number}", answer.wait) for number in range(6)]
    loop = loop_of(*reporters)
    begin = time.monotonic()
    loop.fire("on_train_begin")
    assert 1 <= time.monotonic() - begin < 4
    answer.set()
    loop.log({"loss": 1.0})
    loop.fire("on_train_end")
    assert [reporter.points["train/loss"] for reporter in reporters] == [[(0, 1.0)]] * 6


@pytest.mark.parametrize("delivery", ["thread", "process"])
def test_a_training_does_not_wait_for_a_server_that_is_away(delivery, monkeypatch, caplog):
    monkeypatch.setenv("TRACKSIDE_DELIVERY", delivery)
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "100")
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "0")
    begin = time.monotonic()
    loop_of(FileReporter(gate="server")).train()
    assert time.monotonic() - begin < 50
    assert "file is owed 10 records (ConnectionRefusedError: nobody there)" in caplog.text
    Path("server").touch()
    while time.monotonic() - begin < 100 and not (Path("tracker.jsonl").exists() and told("finish")):
        time.sleep(0.05)
    assert [step for step, values in told("point") if "train/loss" in values] == list(range(1, 9))


def test_a_tracker_that_starts_late_says_then_what_shows_the_run(monkeypatch, capsys):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0")
    gate = threading.Event()
    late = type("Late", (Starting,), {"where": lambda self: "look --here"})("late", gate.wait)
    loop = loop_of(late)
    loop.fire("on_train_begin")
    said = capsys.readouterr().err
    assert "late has not started yet" in said
    assert "look --here" not in said
    gate.set()
    loop.fire("on_train_end")
    assert "Reporting to late; see the run with: look --here" in capsys.readouterr().err


def test_sdks_are_imported_one_after_another(tmp_path, monkeypatch):
    for name in ("slow_one", "slow_other"):
        (tmp_path / f"{name}.py").write_text(
            "import importing_now, time\n"
            "importing_now.count += 1\n"
            "assert importing_now.count == 1, 'two imports at once'\n"
            "time.sleep(0.2)\n"
            "importing_now.count -= 1\n"
        )
    (tmp_path / "importing_now.py").write_text("count = 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    one = type("One", (Starting,), {"sdk": "slow_one"})("one")
    other = type("Other", (Starting,), {"sdk": "slow_other"})("other")
    loop_of(one, other).train()
    assert len(one.points["train/loss"]) == len(other.points["train/loss"]) == 8


def test_trackers_end_side_by_side():
    meeting = threading.Barrier(3)
    reporters = [Starting(f"tracker{number}", leave=lambda: meeting.wait(20)) for number in range(3)]
    loop_of(*reporters).train()
    assert [reporter.statuses for reporter in reporters] == [["finished"]] * 3


def test_they_end_side_by_side_after_an_error_as_well():
    meeting = threading.Barrier(2)
    reporters = [Starting(f"tracker{number}", leave=lambda: meeting.wait(20)) for number in range(2)]
    with pytest.raises(RuntimeError):
        loop_of(*reporters).train(fail_at=3)
    assert [reporter.statuses for reporter in reporters] == [["failed"]] * 2


def test_one_that_hangs_at_the_end_leaves_the_others_their_time(monkeypatch, caplog):
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "3")
    answer = threading.Event()
    hanging = Starting("hanging", leave=answer.wait)
    slow = Starting("slow", leave=lambda: time.sleep(1.5))
    begin = time.monotonic()
    loop_of(hanging, slow).train()
    assert time.monotonic() - begin < 10
    assert slow.statuses == ["finished"]
    assert "hanging is owed the rest of the run" in caplog.text
    assert "slow is owed" not in caplog.text
    answer.set()


def test_an_evaluation_after_the_end_waits_once_for_all_that_hang(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "20")
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "1")
    answer = threading.Event()
    loop = loop_of(*(Starting(f"tracker{number}", leave=answer.wait) for number in range(3)))
    loop.train()
    begin = time.monotonic()
    loop.evaluate()
    assert time.monotonic() - begin < 15
    answer.set()


def test_what_is_evaluated_after_the_end_is_owed_to_a_tracker_that_refuses_to_go_on(caplog):
    reporter = RecordingReporter()
    loop = loop_of(reporter)
    loop.train()
    reporter.fail("start", ValueError("the key is out of date"))
    loop.evaluate()
    assert "recording is owed 2 records (ValueError: the key is out of date)" in caplog.text
    reporter._failing.clear()
    loop.evaluate()
    assert reporter.points["eval/loss"] == [(8, 1 / 9)] * 2
    assert reporter.statuses == ["finished"] * 2


def test_one_that_is_removed_in_mid_training_does_not_keep_the_others_open():
    removed, other = Starting("removed"), Starting("other")
    loop = loop_of(removed, other)
    loop.fire("on_train_begin")
    loop.log({"loss": 1.0})
    loop.handler.remove_callback(removed)
    loop.fire("on_train_end")
    other.close()
    assert other.statuses == ["finished"]


def test_one_whose_run_stays_open_has_its_own_time_when_that_is_closed_later(monkeypatch, caplog):
    class StaysOpen(Starting):
        reopenable = False

    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "2")
    answer = threading.Event()
    staying = StaysOpen("staying", leave=lambda: time.sleep(1))
    loop_of(Starting("hanging", leave=answer.wait), staying).train()
    assert len(staying.points["train/loss"]) == 8
    assert staying.statuses == []
    staying.close()
    assert staying.statuses == ["finished"]
    assert "staying is owed" not in caplog.text
    answer.set()


def test_what_one_records_after_the_end_of_others_is_not_owed_to_them():
    class SendsTheModel(Starting):
        reopenable = False

        def on_train_end(self, args, state, control, **kwargs):
            super().on_train_end(args, state, control, **kwargs)
            self._session.recorder.tell(self._session, "log", state, {"size": 1.0})

    sending = SendsTheModel("sending")
    loop_of(Starting("other"), sending).train()
    sending.close()
    assert sending.points["train/size"] == [(8, 1.0)]
    assert all(debt.is_settled for debt in debts(Path("out")))
