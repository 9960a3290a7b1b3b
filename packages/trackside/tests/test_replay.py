"""What is owed is shown and delivered; what is delivered is deleted."""

import fcntl
import importlib
import json
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest
from conftest import contents
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trackside_spool import replay
from trackside_spool.folder import Tracker, run_folders
from trackside_tensorboard import TensorBoardCallback
from trackside_testkit import FakeLoop


def train(**changes):
    FakeLoop([TensorBoardCallback()], output_dir="out", eval_strategy="no", **changes).train()


def forget_delivery():
    """As if the program had been killed before anything was safe at the tracker."""
    (folder,) = run_folders(Path("out"))
    (tracker,) = folder.trackers()
    tracker.sent = tracker.durable = tracker.offset = 0
    tracker.status = tracker.position = tracker.tracker_id = None
    folder.keep(tracker)


def losses(directory):
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    events.Reload()
    return [event.step for event in events.Scalars("train/loss")]


def test_a_delivered_run_is_owed_nothing(typed):
    train()
    assert typed("replay", "out") == (0, "Nothing is owed.\n")
    code, output = typed("replay", "out", "--list")
    assert code == 0
    assert "tensorboard (finished) has everything" in output


def test_what_is_owed_is_shown_and_delivered(typed):
    train()
    forget_delivery()
    assert "tensorboard (open) is owed 12 records" in typed("replay", "out", "--list")[1]
    code, output = typed("replay", "out")
    assert code == 0
    assert (
        f"12 records to tensorboard; see the run with: tensorboard --logdir {os.path.abspath('out/runs')}\n" in output
    )
    first, second = sorted(Path("out/runs").iterdir())
    assert losses(first) == losses(second) == list(range(1, 9))
    assert typed("replay", "out") == (0, "Nothing is owed.\n")


def test_a_whole_run_goes_to_another_tracker(typed):
    train()
    code, output = typed("replay", "out", "--to", f"tensorboard=logging_dir={os.path.abspath('elsewhere')}")
    assert code == 0, output
    (directory,) = Path("elsewhere").iterdir()
    assert losses(directory) == list(range(1, 9))


def test_an_option_is_understood_as_the_environment_would_be(typed, publish):
    publish("acme", "def start(self, run): calls.append(self.is_quick)")
    train()
    for text in ("false", "on"):
        code, output = typed("replay", "out", "--to", f"Acme=is_quick={text}")
        assert code == 0, output
    calls = importlib.import_module("trackside_acme").calls
    assert [call for call in calls if isinstance(call, bool)] == [False, True]


def test_an_option_that_is_not_understood_is_one_sentence(typed, publish):
    publish("acme")
    train()
    code, output = typed("replay", "out", "--to", "acme=is_quick=maybe")
    assert code == 1
    assert output.startswith("Error: --to acme=is_quick=maybe is not understood: a switch takes one of 1, true, ")
    assert output.count("\n") == 1


def test_a_tracker_that_refuses_says_why_and_loses_nothing(typed):
    train()
    forget_delivery()
    Path("out/runs").rename("out/old")
    Path("out/runs").write_text("in the way")
    code, output = typed("replay", "out")
    assert code == 1
    assert "then it failed: " in output
    Path("out/runs").unlink()
    assert typed("replay", "out")[0] == 0


AWAY = """
    def start(self, run):
        if not self.is_quick:
            raise ConnectionRefusedError("nobody there")
"""


def test_a_tracker_that_does_not_answer_is_left_after_a_while_and_stays_owed(typed, publish, monkeypatch):
    publish("acme", AWAY)
    train()
    (run,) = run_folders(Path("out"))
    run.keep(Tracker("acme", "trackside_acme:Tracker"))
    monkeypatch.setenv("ACME_IS_QUICK", "no")
    code, output = typed("replay", "out", "--patience", "1")
    assert code == 1
    assert output.count("\n") == 2
    assert output.startswith("acme does not answer; trying on for 1 s, Ctrl-C leaves the rest owed.\n")
    assert ": 0 records to acme, then it did not answer (ConnectionRefusedError: nobody there)" in output
    assert f"the rest stays owed, go on with: trackside replay {run.path} " in output
    assert "acme (open) is owed 12 records" in typed("replay", "out", "--list")[1]
    monkeypatch.setenv("ACME_IS_QUICK", "yes")
    assert typed("replay", "out")[0] == 0


def test_a_whole_run_that_never_arrives_is_no_debt(typed, publish):
    publish("acme", AWAY)
    train()
    code, output = typed("replay", "out", "--to", "acme=is_quick=no", "--patience", "1")
    assert code == 1
    assert output.endswith("nothing is there yet, so type the same again once it answers.\n")
    assert typed("replay", "out") == (0, "Nothing is owed.\n")


def test_who_interrupts_a_replay_is_told_what_is_left_and_how_to_go_on(typed, monkeypatch):
    train()
    forget_delivery()
    gate = threading.Event()

    class Hanging(TensorBoardCallback):
        def log_points(self, points):
            signal.raise_signal(signal.SIGINT)
            gate.wait()

    hanging = Hanging()
    with monkeypatch.context() as patch:
        patch.setattr(replay, "build", lambda tracker: hanging)
        patch.setattr(replay, "HANDOVER_SECONDS", 0.1)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        code, output = typed("replay", "out")
        signal.signal(signal.SIGINT, before)
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "trackside-tensorboard":
            thread.join()
    hanging.run.close()
    assert code == 130
    assert "tensorboard (open) is owed 12 records" in output
    assert output.endswith("Interrupted. Go on with: trackside replay out\n")
    assert "Aborted" not in output
    assert typed("replay", "out")[0] == 0


def break_the_journal():
    train()
    journal().write_text("hello\n")


def journal():
    return next(Path("out").rglob("journal.jsonl"))


def rewritten(old, new):
    """A training whose journal is not what it was."""

    def prepare():
        train()
        assert old in journal().read_bytes()
        journal().write_bytes(journal().read_bytes().replace(old, new, 1))

    return prepare


@pytest.mark.parametrize(
    ("prepare", "words", "said"),
    [
        (lambda: Path("out").mkdir(), ["replay", "out"], "no run below out"),
        (break_the_journal, ["replay", "out"], "journal.jsonl is no journal of a run."),
        (rewritten(b'"run":{', b'"ran":{'), ["replay", "out"], "journal.jsonl is no journal of a run."),
        (rewritten(b'"name":', b'"names":'), ["replay", "out", "--list"], "journal.jsonl is no journal of a run."),
        (rewritten(b'"version":1', b'"version":"new"'), ["replay", "out"], "journal.jsonl is no journal of a run."),
        (rewritten(b'"version":1', b'"version":2'), ["replay", "out"], "upgrade trackside-spool."),
        (train, ["replay", "out", "--to", "nobody-knows"], "--to asks for 'nobody_knows'"),
        (train, ["replay", "out", "--to", "tensorboard=colour=red"], "'colour'"),
        (train, ["replay", "out", "--to", "tensorboard=red"], "'red' is no option; type --to NAME=KEY=VALUE"),
        (train, ["replay", "out", "--to", "all"], "'all' is not one tracker; type the name of one"),
        (train, ["replay", "out", "--to", "none"], "'none' is not one tracker; type the name of one"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_changes_nothing(typed, prepare, words, said):
    prepare()
    before = contents("out")
    code, output = typed(*words)
    assert code == 1
    assert output.startswith("Error: ")
    assert said in output
    assert output.count("\n") == 1
    assert contents("out") == before


@pytest.mark.parametrize("words", [["replay"], ["replay", "nowhere"], ["prune", "nowhere"], ["replay", "out", "--two"]])
def test_what_is_not_understood_is_an_error_of_usage(typed, words):
    code, output = typed(*words)
    assert code == 2
    assert output.startswith("Usage: ")


@pytest.mark.parametrize(
    ("old", "new", "steps"),
    [
        (b'"values":{"loss":0.25', b'"values":{"los\n{"', [1, 2, 4, 5, 6, 7, 8]),  # a line that is torn
        (b'{"kind":"log","step":3', b'no json {"kind":"log","step":3', [1, 2, 4, 5, 6, 7, 8]),
    ],
)
def test_lines_that_are_no_records_are_said_once_and_the_rest_is_delivered(typed, caplog, old, new, steps):
    rewritten(old, new)()
    forget_delivery()
    shutil.rmtree("out/runs")
    before = journal().read_bytes()
    code, _ = typed("replay", "out")
    assert code == 0
    assert caplog.text.count("Torn lines of ") == 1
    (directory,) = Path("out/runs").iterdir()
    assert losses(directory) == steps
    assert journal().read_bytes() == before


def test_a_journal_that_ends_in_the_middle_is_replayed_up_to_there(typed, caplog):
    train()
    forget_delivery()
    shutil.rmtree("out/runs")
    text = journal().read_bytes()
    journal().write_bytes(text[: text.index(b'"step":5') + 20])
    code, _ = typed("replay", "out")
    assert code == 0
    assert "which are left out: 1." in caplog.text
    (directory,) = Path("out/runs").iterdir()
    assert losses(directory) == [1, 2, 3, 4]


def test_a_journal_that_cannot_be_read_does_not_keep_other_runs_from_being_delivered(typed):
    break_the_journal()
    train()
    folders = {folder.journal.read_text() == "hello\n": folder for folder in run_folders(Path("out"))}
    (tracker,) = folders[False].trackers()
    tracker.durable = tracker.offset = 0
    tracker.status = tracker.position = tracker.tracker_id = None
    folders[False].keep(tracker)
    code, output = typed("replay", "out")
    assert code == 1
    assert "is no journal" in output
    assert "12 records to tensorboard" in output
    assert typed("prune", "out")[1].endswith("1 journal was delivered and is deleted.\n")
    assert folders[True].journal.exists()


def test_a_run_that_is_at_work_is_left_alone(typed):
    train()
    forget_delivery()
    with open(next(Path("out").rglob("lock"))) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, output = typed("replay", "out")
    assert code == 1
    assert "in use by another process" in output


def test_delivered_journals_can_be_deleted(typed):
    train()
    code, output = typed("prune", "out")
    assert code == 0
    assert "1 journal was delivered and is deleted." in output
    assert not list(run_folders(Path("out")))


def test_what_is_owed_and_delivered_and_deleted_can_be_read_by_programs(typed):
    train()
    forget_delivery()
    (about,) = json.loads(typed("replay", "out", "--list", "--json")[1])["trackers"]
    assert (about["tracker"], about["status"], about["owed"], about["settled"]) == ("tensorboard", None, 12, False)
    code, output = typed("replay", "out", "--json")
    (about,) = json.loads(output)["trackers"]
    assert (code, about["delivered"], about["failed"]) == (0, 12, None)
    assert json.loads(typed("replay", "out", "--json")[1]) == {"trackers": []}
    folder = str(next(run_folders(Path("out"))).path)
    assert json.loads(typed("prune", "out", "--json")[1]) == {"deleted": [folder]}


def test_a_program_reads_as_well_which_journal_cannot_be_read(typed):
    break_the_journal()
    code, output = typed("replay", "out", "--json")
    (about,) = json.loads(output)["trackers"]
    assert code == 1
    assert about["error"].endswith("journal.jsonl is no journal of a run.")
