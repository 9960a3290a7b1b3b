"""A training is killed without a word at random moments; a replay makes up for it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trackside_spool.folder import InUseError, RunFolder, run_folders
from trackside_spool.journal import Reader
from trackside_spool.replay import replay

TIMES = int(os.environ.get("TRACKSIDE_KILLS", "5"))

TRAINING = """
from trackside_tensorboard import TensorBoardCallback
from trackside_testkit import FakeLoop

loop = FakeLoop([TensorBoardCallback()], output_dir="out", eval_strategy="no", save_strategy="no")
loop.fire("on_train_begin")
for step in range(1, 100_000):
    loop.state.global_step = step
    loop.log({"loss": 1 / step})
    print(step, flush=True)
"""


def killed_training(seconds: float, delivery: str) -> int:
    """Train for some seconds after the first log, then kill; the last step whose log call had returned."""
    environ = {**os.environ, "TRACKSIDE_DELIVERY": delivery}
    with subprocess.Popen([sys.executable, "-c", TRAINING], stdout=subprocess.PIPE, text=True, env=environ) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)
        return int([first, *child.stdout][-1])


def wait_for_the_courier(folder: RunFolder) -> None:
    """A courier process has everything delivered without a replay."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(InUseError):  # until it has ended
            assert list(replay(folder)) == []
            return
        time.sleep(0.05)
    raise AssertionError("The courier process is still at work.")


def replay_twice(folder: RunFolder) -> None:
    assert [outcome.reason for outcome in replay(folder)] == [""]
    assert list(replay(folder)) == []


@pytest.mark.parametrize("number", range(TIMES))
@pytest.mark.parametrize(("delivery", "make_up"), [("thread", replay_twice), ("process", wait_for_the_courier)])
def test_what_was_logged_is_in_tensorboard_exactly_once(
    number: int, delivery: str, make_up: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    last = killed_training(random.uniform(0, 1.5), delivery)
    (folder,) = run_folders(tmp_path)
    make_up(folder)
    steps = [record.step for _, record in Reader(folder.journal).read(10**6)]
    assert steps[:last] == list(range(1, last + 1))
    assert len(steps) <= last + 1
    (directory,) = (tmp_path / "out" / "runs").iterdir()
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    events.Reload()
    points = events.Scalars("train/loss")
    assert [point.step for point in points] == steps
    assert [point.value for point in points] == pytest.approx([1 / step for step in steps])
    (tracker,) = folder.trackers()
    assert tracker.status == "killed"
