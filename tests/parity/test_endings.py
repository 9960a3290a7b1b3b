"""Trainings of either Trainer that are left in the middle: the error goes on, and the run says how it has ended."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from tiny import BOTH, trainer

import trackside
from trackside.callbacks import EVENTS
from trackside_spool.folder import run_folders
from trackside_testkit import RecordingReporter


class Breaking(trackside.TrainerCallback):
    """Raises in one event."""

    def __init__(self, event, error):
        self.error = error
        setattr(self, event, self._raise)

    def _raise(self, *args, **kwargs):
        raise self.error


HEARD = [event for event in EVENTS if event not in ("on_init_end", "on_predict", "on_push_begin", "on_exception")]


@pytest.mark.parametrize("event", HEARD)
@pytest.mark.parametrize("api", BOTH.values(), ids=BOTH)
def test_what_a_callback_raises_in_any_event_goes_on_and_the_run_has_failed(api, event, tmp_path):
    reporter, error = RecordingReporter(), ZeroDivisionError()
    loop = trainer(api, tmp_path, [reporter, Breaking(event, error)], gradient_accumulation_steps=2)
    with pytest.raises(ZeroDivisionError) as raised, trackside.watch():
        loop.train()
    assert raised.value is error
    assert reporter.statuses == ["finished" if event == "on_train_end" else "failed"]  # ours has heard of the end first


class TrialPruned(Exception):
    """What a search for hyperparameters raises to end a trial that is no use."""


ERRORS = [(ValueError("no"), "failed"), (KeyboardInterrupt(), "killed"), (SystemExit(3), "killed")]


@pytest.mark.parametrize(("error", "status"), [*ERRORS, (TrialPruned(), "pruned")])
@pytest.mark.parametrize("api", BOTH.values(), ids=BOTH)
def test_a_training_that_is_watched_tells_at_once_how_it_was_left(api, error, status, tmp_path):
    reporter = RecordingReporter()
    loop = trainer(api, tmp_path, [reporter, Breaking("on_step_end", error)])
    # a loop of ours tells by itself
    with pytest.raises(type(error)), trackside.watch() if api is BOTH["transformers"] else nullcontext():
        loop.train()
    assert reporter.statuses == [status]


PROGRAM = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from tiny import BOTH, trainer
import trackside
from trackside_tensorboard import TensorBoardCallback

class Ending(trackside.TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            {{end}}

signal.signal(signal.SIGINT, signal.default_int_handler)
trainer(BOTH[sys.argv[1]], "out", [TensorBoardCallback(), Ending()], eval_strategy="no", save_strategy="no").train()
"""

# What ends it, with which code, and the status in our Trainer and in theirs; None if there was no time to say it.
ENDS = {
    "an exception": ("raise ValueError('no')", 1, "failed", "failed"),
    "sys.exit": ("sys.exit(3)", 3, "killed", "failed"),
    "Ctrl-C": ("signal.raise_signal(signal.SIGINT)", -2, "killed", "killed"),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", -15, "killed", "killed"),
    "os._exit": ("os._exit(9)", 9, None, None),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("api", BOTH)
def test_a_program_that_is_left_ends_with_its_own_code_and_its_run_with_a_status(api, end, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source, code, ours, theirs = ENDS[end]
    command = [sys.executable, "-c", PROGRAM.format(end=source), api]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    (folder,) = run_folders(Path("out"))
    (tracker,) = folder.trackers()
    assert tracker.status == (ours if api == "trackside" else theirs)
