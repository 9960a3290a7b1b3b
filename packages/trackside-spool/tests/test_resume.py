"""Trainings that are killed, and go on in another process."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trackside_spool import replay
from trackside_spool.folder import run_folders
from trackside_spool.journal import Reader
from trackside_testkit import FakeLoop, RecordingReporter

TRAINING = """
import os, sys
from pathlib import Path
from trackside_testkit import FakeLoop, RecordingReporter

os.environ["TRACKSIDE_START_SECONDS"] = "0"

class Away(RecordingReporter):
    def start(self, run):
        raise ConnectionRefusedError("nobody there")

loop = FakeLoop([Away()], output_dir="out", eval_strategy="no")
if os.path.exists("out/checkpoint-4"):
    loop.state = loop._load_state(Path("out/checkpoint-4"))
loop.state.logging_steps = 1
loop.fire("on_train_begin")
for step in range(loop.state.global_step + 1, int(sys.argv[1]) + 1):
    loop.state.global_step = step
    loop.log({"loss": float(sys.argv[2]) + step})
    if step == 4:
        loop.save()
os._exit(9)  # without a word
"""


def kill_a_training(last_step, offset):
    subprocess.run([sys.executable, "-c", TRAINING, str(last_step), str(offset)], check=False, timeout=60)


def fail_at(step, reporter, resume_from=None, **changes):
    """Leave a training in a step by an error."""
    loop = FakeLoop([reporter], output_dir="out", eval_strategy="no", **changes)
    with pytest.raises(RuntimeError):
        loop.train(resume_from, fail_at=step)


def only_folder():
    (found,) = run_folders(Path("out"))
    return found


def losses(reporter):
    return reporter.points.get("train/loss", [])


def first_losses(last_step, offset=0):
    return [(step, float(offset + step)) for step in range(1, last_step + 1)]


@pytest.fixture
def delivered(monkeypatch):
    """What a replay brings to a tracker that had nothing."""

    def delivered():
        reporter = RecordingReporter()
        monkeypatch.setattr(replay, "build", lambda tracker: reporter)
        assert [outcome.reason for outcome in replay.replay(only_folder())] == [""]
        return reporter

    return delivered


def test_a_resumed_training_delivers_what_was_owed_before_it_and_replaces_what_came_after_its_checkpoint():
    kill_a_training(7, offset=100)
    reporter = RecordingReporter()
    FakeLoop([reporter], output_dir="out", eval_strategy="no").train(resume_from="out/checkpoint-4")
    assert losses(reporter) == first_losses(4, offset=100) + [(step, 1 / (step + 1)) for step in range(5, 9)]
    assert [artifact.name for artifact in reporter.artifacts] == ["checkpoint-4", "checkpoint-8"]


@pytest.mark.parametrize("last_step", [4, 5, 9])
def test_of_a_training_that_was_killed_again_and_again_each_step_is_delivered_once(last_step, delivered):
    for last, offset in ((7, 100), (6, 200), (last_step, 300)):
        kill_a_training(last, offset)
    reporter = delivered()
    offsets = {step: (100 if step <= 4 else 300) for step in range(1, last_step + 1)}
    assert losses(reporter) == [(step, float(offset + step)) for step, offset in offsets.items()]
    assert reporter.statuses == ["killed"]


def test_another_tracker_gets_each_step_of_a_resumed_run_once(monkeypatch):
    for offset in (100, 200):
        kill_a_training(7, offset)
    reporter = RecordingReporter()
    monkeypatch.setattr(replay, "resolve", lambda report_to: [reporter])
    replay.replay_to(only_folder(), "recording", {})
    assert [step for step, _ in losses(reporter)] == list(range(1, 8))


def test_what_was_ended_and_then_resumed_and_killed_was_killed(delivered):
    FakeLoop([RecordingReporter()], output_dir="out", eval_strategy="no", num_train_epochs=1).train()
    kill_a_training(6, offset=0)
    assert delivered().statuses == ["killed"]


def test_a_tracker_that_had_steps_which_a_resume_has_made_void_is_told_to_which_step_to_go_back(delivered):
    fail_at(7, RecordingReporter())
    kill_a_training(6, offset=0)
    (run,) = delivered().runs
    assert run.step == 4


def test_what_goes_on_from_before_the_end_of_a_run_is_a_run_of_its_own_that_names_the_first(caplog):
    first, branch = RecordingReporter(), RecordingReporter()
    FakeLoop([first], output_dir="out", eval_strategy="no").train()
    FakeLoop([branch], output_dir="out", eval_strategy="no").train(resume_from="out/checkpoint-4")
    ((run,), (parent,)) = branch.runs, first.runs
    assert run.tracker_id is None
    assert run.source["parent"] == parent.name
    assert run.name.startswith(parent.name)
    assert run.id != parent.id
    assert [step for step, _ in losses(branch)] == [5, 6, 7, 8]
    assert f"{parent.name} has ended at step 8; what goes on from step 4 is reported as a new run" in caplog.text


def test_a_branch_that_was_killed_goes_on_as_the_branch():
    branch, again = RecordingReporter(), RecordingReporter()
    FakeLoop([RecordingReporter()], output_dir="out", eval_strategy="no").train()
    fail_at(11, branch, resume_from="out/checkpoint-4", num_train_epochs=3)
    FakeLoop([again], output_dir="out", eval_strategy="no").train(resume_from="out/checkpoint-8")
    assert [run.id for run in again.runs] == [run.id for run in branch.runs]


def test_a_snapshot_that_a_killed_training_has_left_is_deleted_once_it_is_delivered(delivered):
    kill_a_training(7, offset=0)
    assert [path.name for path in only_folder().artifacts.iterdir()] == ["4-checkpoint-4"]
    delivered()
    assert not only_folder().artifacts.exists()


def test_a_run_that_is_found_elsewhere_is_replayed_there(delivered, tmp_path, monkeypatch):
    kill_a_training(7, offset=0)
    os.rename("out", "moved")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (folder,) = run_folders(tmp_path)
    reporter = RecordingReporter()
    monkeypatch.setattr(replay, "build", lambda tracker: reporter)
    assert [outcome.reason for outcome in replay.replay(folder)] == [""]
    (run,) = reporter.runs
    assert run.output_dir == str(tmp_path / "moved")
    (artifact,) = reporter.artifacts
    assert artifact.path.startswith(str(tmp_path / "moved"))


def resume(**changes):
    fail_at(6, RecordingReporter(), resume_from="out/checkpoint-4", **changes)


def changed_params():
    lines = map(json.loads, only_folder().journal.read_text().splitlines())
    return [line.get("params") for line in lines if line.get("kind") == "resumed"]


def test_params_that_a_resume_changes_are_written_down_as_old_and_new_and_said_in_one_line(caplog):
    fail_at(6, RecordingReporter())
    for rate in (0.1, 0.5, 0.5, math.inf, math.inf):
        resume(learning_rate=rate)
    rates = [params and params["learning_rate"] for params in changed_params()]
    assert rates == [None, [0.1, 0.5], None, [0.5, "Infinity"], None]
    said = [message for message in caplog.messages if "other params" in message]
    assert [line.partition(": ")[2] for line in said] == [
        "learning_rate from 0.1 to 0.5.",
        "learning_rate from 0.5 to 'Infinity'.",
    ]


def test_a_journal_whose_first_line_is_spoilt_does_not_stop_a_resumed_training():
    fail_at(6, RecordingReporter())
    path = only_folder().journal
    _, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join(['{"spoilt": true}\n', *others]))
    resume(learning_rate=0.5)
    assert changed_params() == [None]


def test_many_changed_params_are_named_in_part(caplog):
    fail_at(6, RecordingReporter())
    resume(lr_scheduler_kwargs={f"beta{number}": "x" * 100 for number in range(30)})
    (line,) = [message for message in caplog.messages if "other params" in message]
    assert len(line) < 1500
    assert " more." in line


def test_lines_that_say_nothing_are_left_out(delivered):
    kill_a_training(2, offset=0)
    with open(only_folder().journal, "ab") as journal:
        journal.write(
            b'{"kind":"skip","tracker":"rec\n{"kind":"resumed"}\n[1]\nnull\n\xff\xfe\n{"kind":"log","values":[1]}\n'
        )
    reader = Reader(only_folder().journal)
    assert len(reader.read(100)) == 2
    assert reader.torn == 4
    assert losses(delivered()) == first_losses(2)
