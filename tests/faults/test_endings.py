"""Trainings that end in any way but the right one: the run says so, the program ends as it would without us."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from breaking import Ended, in_mlflow, in_tensorboard, recorded, replay, run, run_and_signal
from filing import filed, filed_losses

from trackside.callbacks import EVENTS
from trackside_spool.folder import run_folders
from trackside_testkit import FakeLoop, RecordingReporter

PROGRAM = """
import contextlib, os, signal, time
import trackside
from filing import FilingReporter
from trackside_testkit import FakeLoop

class Foreign(FakeLoop):
    '''A loop that has no event for its end by an error, like `transformers.Trainer`.'''

    def fire(self, event, **kwargs):
        if event != "on_exception":
            super().fire(event, **kwargs)

class Ending(trackside.TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            end()

{setup}
watched = trackside.watch() if {is_watched} else contextlib.nullcontext()
with watched:
    {loop}([*reporters, Ending()], output_dir="out", eval_strategy="no").train()
"""

LOOPS = {
    "a loop of ours": ("FakeLoop", False),
    "a foreign loop": ("Foreign", False),
    "a foreign loop that is watched": ("Foreign", True),
}


def program(loop: str, end: str = "pass", reporters: str = "FilingReporter()", setup: str = "") -> str:
    """The source of a training that is ended by `end` after its third step."""
    name, is_watched = LOOPS[loop]
    lines = f"def end(): {end}\nreporters = [{reporters}]\n{setup}"
    return PROGRAM.format(setup=lines, loop=name, is_watched=is_watched)


def assert_all_is_there(steps: int) -> None:
    assert replay().code == 0
    assert replay().output == "Nothing is owed.\n"
    assert [step for step, _ in filed_losses()] == list(range(1, steps + 1))


# ---- by its own doing -----------------------------------------------------------------------------------------------

# What ends it, with which code, what it says last, and the status in a loop of ours, a foreign one and a watched one.
ENDS: dict[str, tuple[str, int, str, tuple[str, str, str]]] = {
    "an exception": ("raise ValueError('no')", 1, "ValueError: no\n", ("failed", "failed", "failed")),
    "sys.exit": ("sys.exit(3)", 3, "", ("killed", "failed", "killed")),
    "Ctrl-C": ("signal.raise_signal(signal.SIGINT)", -2, "KeyboardInterrupt\n", ("killed", "killed", "killed")),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", -15, "", ("killed", "killed", "killed")),
    "os._exit": ("os._exit(9)", 9, "", ("killed", "killed", "killed")),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("end", "code", "last_words", "statuses"), ENDS.values(), ids=ENDS)
def test_a_training_that_is_left_is_closed_with_its_status_and_ends_as_it_would_without_us(
    loop: str, end: str, code: int, last_words: str, statuses: tuple[str, str, str]
) -> None:
    done = run(program(loop, end))
    assert done.code == code, done
    assert done.errors.endswith(last_words)
    assert_all_is_there(2)
    assert filed("finish") == [dict(zip(LOOPS, statuses, strict=True))[loop]]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(("end", "status"), [("raise ValueError('no')", "FAILED"), ("os._exit(9)", "KILLED")])
def test_mlflow_and_tensorboard_show_how_a_training_has_ended(end: str, status: str) -> None:
    imports = "from trackside_mlflow import MLflowCallback\nfrom trackside_tensorboard import TensorBoardCallback\n"
    run(imports + program("a loop of ours", end, "TensorBoardCallback(), MLflowCallback()"))
    assert replay().code == 0
    statuses, points = in_mlflow()
    assert list(statuses.values()) == [status]
    assert points == [(1, 1 / 2), (2, 1 / 3)]
    assert [step for step, _ in in_tensorboard()] == [1, 2]


# ---- by a signal, wherever it is ------------------------------------------------------------------------------------

SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


def signalled(number: signal.Signals, word: str, *, loop: str = "a loop of ours", reporter: str, setup: str) -> Ended:
    source = program(loop, reporters=reporter, setup=setup)
    done = run_and_signal(source, word, number)
    assert done.code == -number, done
    return done


@pytest.mark.parametrize("number", SIGNALS, ids=SIGNALS.values())
def test_a_training_that_is_stopped_while_a_tracker_starts_was_killed(number: signal.Signals) -> None:
    signalled(number, "start", reporter="FilingReporter(slow='start')", setup="")
    assert_all_is_there(0)
    assert filed("finish") == ["killed"]
    assert len(filed("log_params")) == 1


LOG = """
class Logging(FakeLoop):
    def _train(self, *_):
        self.fire("on_train_begin")
        print("logging", flush=True)
        while True:
            self.state.global_step += 1
            self.log({"loss": 1.0})
FakeLoop = Logging
"""

SAVE = """
class Saving(FakeLoop):
    def _train(self, *_):
        self.fire("on_train_begin")
        self.state.global_step = 1
        self.log({"loss": 1.0})
        print("saving", flush=True)
        while True:
            self.save()
FakeLoop = Saving
"""


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("number", SIGNALS, ids=SIGNALS.values())
@pytest.mark.parametrize(("setup", "word"), [(LOG, "logging"), (SAVE, "saving")], ids=["log", "save"])
def test_a_training_that_is_stopped_while_it_logs_or_saves_was_killed_and_nothing_is_lost(
    number: signal.Signals, loop: str, setup: str, word: str
) -> None:
    setup = setup.replace("(FakeLoop)", f"({LOOPS[loop][0]})").replace("FakeLoop =", f"{LOOPS[loop][0]} =")
    signalled(number, word, loop=loop, reporter="FilingReporter()", setup=setup)
    assert_all_is_there(len(recorded(*run_folders(Path("out")))))
    assert set(filed("finish")) == {"killed"}  # twice if it was stopped in the middle of a log call, which is then owed


@pytest.mark.parametrize("number", SIGNALS, ids=SIGNALS.values())
def test_a_training_that_is_stopped_while_its_trackers_take_the_rest_has_finished(number: signal.Signals) -> None:
    done = signalled(number, "finish", reporter="FilingReporter(slow='finish')", setup="")
    if number == signal.SIGINT:
        assert "filing is owed the rest of the run; deliver that with" in done.errors
    assert_all_is_there(8)
    assert set(filed("finish")) == {"finished"}


# ---- by a callback --------------------------------------------------------------------------------------------------


class Breaking:
    """Raises in one event."""

    def __init__(self, event: str) -> None:
        setattr(self, event, self._raise)

    def _raise(self, *args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError


HEARD = [event for event in EVENTS if event not in ("on_init_end", "on_predict", "on_push_begin", "on_exception")]


@pytest.mark.parametrize("event", HEARD)
def test_what_a_callback_raises_goes_on_and_the_run_has_failed(event: str) -> None:
    reporter = RecordingReporter()
    loop = FakeLoop([reporter, Breaking(event)], output_dir="out", gradient_accumulation_steps=2)
    with pytest.raises(ZeroDivisionError):
        loop.train()
    (status,) = reporter.statuses
    assert status == ("finished" if event == "on_train_end" else "failed")  # ours has heard of the end before
    if status == "failed":
        assert reporter.texts["train/exception"][0][1].startswith("ZeroDivisionError")


def test_a_callback_that_raises_before_ours_hears_of_the_end_leaves_a_run_that_has_failed() -> None:
    reporter = RecordingReporter()
    with pytest.raises(ZeroDivisionError):
        FakeLoop([Breaking("on_train_end"), reporter], output_dir="out").train()
    assert reporter.statuses == ["failed"]


@pytest.mark.parametrize("event", ["on_init_end", "on_train_begin"])
def test_where_a_callback_raises_before_a_run_begins_there_is_no_run(event: str) -> None:
    reporter = RecordingReporter()
    with pytest.raises(ZeroDivisionError):
        FakeLoop([Breaking(event), reporter], output_dir="out").train()
    assert reporter.calls == []
    assert list(run_folders(Path("out"))) == []
