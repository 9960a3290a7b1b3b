"""A training is killed again and again and resumed in between, and so are the replays: each step counts once."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trackside_spool.folder import RunFolder, run_folders

TIMES = max(1, int(os.environ.get("TRACKSIDE_KILLS", "5")) // 5)

TRAINING = """
import sys, time
from pathlib import Path
from trackside_mlflow import MLflowCallback
from trackside_tensorboard import TensorBoardCallback
from trackside_testkit import FakeLoop

mlflow = MLflowCallback(tracking_uri="sqlite:///mlflow.db", log_artifacts=True)
loop = FakeLoop([TensorBoardCallback(), mlflow], output_dir="out", eval_strategy="no", save_strategy="no")
if Path("out/checkpoint-40").exists():
    loop.state = loop._load_state(Path("out/checkpoint-40"))
loop.state.logging_steps = 1
loop.fire("on_train_begin")
for step in range(loop.state.global_step + 1, 100_000):
    loop.state.global_step = step
    loop.log({"loss": float(sys.argv[1]) + 1 / step})
    print(step, flush=True)
    if step == 40:
        loop.save()
    time.sleep(0.002)
"""
REPLAY = "from trackside_command import main; main(['replay', 'out'])"


def kill_a_training(offset: int, steps: int) -> None:
    """Train until some more steps are done, or are about to be begun, and kill."""
    command = [sys.executable, "-c", TRAINING, str(offset)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in range(steps):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)


def replay(stop: signal.Signals | None = None) -> tuple[int, str]:
    """Type `trackside replay out`, and leave it no time; how it has ended, and its last words."""
    with subprocess.Popen([sys.executable, "-c", REPLAY], stdout=subprocess.PIPE, text=True) as child:
        if stop is not None:
            time.sleep(random.uniform(0.2, 3.0))
            child.send_signal(stop)
        output, _ = child.communicate(timeout=120)
        return child.returncode, output


def recorded(folder: RunFolder) -> dict[int, float]:
    """The loss of each step as the journal holds it; what was done again after a resume counts as it was then."""
    losses: dict[int, float] = {}
    for line in folder.journal.read_bytes().splitlines():
        entry = json.loads(line)
        if entry.get("kind") == "resumed":
            losses = {step: loss for step, loss in losses.items() if step <= entry["step"]}
        elif entry.get("kind") == "log":
            losses[entry["step"]] = entry["values"]["loss"]
    return losses


def in_tensorboard() -> list[tuple[int, float]]:
    (directory,) = Path("out/runs").iterdir()
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars("train/loss")]


def in_mlflow() -> tuple[list[tuple[str, str]], list[tuple[int, float, int]]]:
    """The runs with their status, and the steps with their losses and how often they are there."""
    with closing(sqlite3.connect("mlflow.db")) as database:
        points = "select step, value, count(*) from metrics where key = 'loss' group by step, value, timestamp"
        return database.execute("select run_uuid, status from runs").fetchall(), database.execute(points).fetchall()


@pytest.mark.parametrize("number", range(TIMES))
def test_each_step_counts_once_however_often_trainings_and_replays_are_killed(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACKSIDE_DELIVERY", raising=False)
    kill_a_training(0, random.randint(42, 400))
    for resume in range(random.randint(0, 2)):
        kill_a_training(10 * (resume + 1), random.randint(0, 400))
    for _ in range(random.randint(0, 2)):
        replay(random.choice([signal.SIGINT, signal.SIGKILL]))
    replay()
    assert replay() == (0, "Nothing is owed.\n")

    (folder,) = run_folders(tmp_path)
    losses = recorded(folder)
    assert [step for step, _ in in_tensorboard()] == sorted(losses)
    assert dict(in_tensorboard()) == pytest.approx(losses)
    ((_, status),), points = in_mlflow()
    assert status == "KILLED"
    assert all(count == 1 for _, _, count in points)
    assert losses.items() <= {(step, value) for step, value, _ in points}
