"""A training is killed without a word at random moments; a replay, or the courier process, makes up for it."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from pathlib import Path

import pytest
from breaking import TIMES, in_mlflow, in_tensorboard, recorded, replay, running

from trackside_spool.folder import InUseError, run_folders

pytestmark = pytest.mark.usefixtures("store")

TRAINING = """
import time
from trackside_mlflow import MLflowCallback
from trackside_tensorboard import TensorBoardCallback
from trackside_testkit import FakeLoop

loop = FakeLoop([TensorBoardCallback(), MLflowCallback()], output_dir="out", eval_strategy="no", save_strategy="no")
loop.fire("on_train_begin")
for step in range(1, 100_000):
    loop.state.global_step = step
    loop.log({"loss": 1 / step})
    print(step, flush=True)
    time.sleep(0.001)
"""


def killed_training(seconds: float, **environ: str) -> int:
    """Train for some seconds after the first log, then kill; the last step whose log call had returned."""
    with running(TRAINING, **environ) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)
        return int([first, *child.stdout][-1])


def wait_for_the_courier() -> None:
    """Wait until the courier process, which has claimed the run, has ended."""
    (folder,) = run_folders(Path("out"))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(InUseError):
            folder.lock()
            folder.unlock()
            return
        time.sleep(0.05)
    raise AssertionError("The courier process is still at work.")


def check_that_each_step_counts_once(last: int) -> None:
    (folder,) = run_folders(Path("out"))
    losses = recorded(folder)
    assert list(losses) in (
        list(range(1, last + 1)),
        list(range(1, last + 2)),
    )  # it may have died between log and print
    assert losses == {step: 1 / step for step in losses}
    assert [step for step, _ in in_tensorboard()] == list(losses)
    assert dict(in_tensorboard()) == pytest.approx(losses)
    statuses, points = in_mlflow()
    assert list(statuses.values()) == ["KILLED"]
    assert points == list(losses.items())


@pytest.mark.parametrize("number", range(TIMES))
def test_what_was_logged_is_in_tensorboard_and_mlflow_exactly_once_after_a_replay(number: int) -> None:
    start_seconds = random.choice(["0", "60"])  # without waiting, it may die while the trackers start
    last = killed_training(random.uniform(0, 3), TRACKSIDE_START_SECONDS=start_seconds)
    done = replay()
    assert done.code == 0, done
    assert replay().output == "Nothing is owed.\n"
    check_that_each_step_counts_once(last)


@pytest.mark.parametrize("number", range(max(1, TIMES // 5)))
def test_a_courier_process_delivers_it_all_without_a_replay(number: int) -> None:
    last = killed_training(random.uniform(0, 3), TRACKSIDE_DELIVERY="process", TRACKSIDE_START_SECONDS="60")
    wait_for_the_courier()
    assert replay().output == "Nothing is owed.\n"
    check_that_each_step_counts_once(last)
