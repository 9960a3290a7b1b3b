"""A training is killed again and again and resumed in between, and so are the replays: each step counts once."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from breaking import COMMAND, TIMES, ended, in_mlflow, in_tensorboard, recorded, replay, running

from trackside_spool.folder import run_folders

pytestmark = pytest.mark.usefixtures("store")

TRAINING = """
import time
from pathlib import Path
from trackside_mlflow import MLflowCallback
from trackside_tensorboard import TensorBoardCallback
from trackside_testkit import FakeLoop

reporters = TensorBoardCallback(), MLflowCallback(log_artifacts=True)
loop = FakeLoop(reporters, output_dir="out", eval_strategy="no", save_strategy="no")
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


def kill_a_training(offset: int, steps: int) -> None:
    """Train until some more steps are done, or are about to be begun, and kill."""
    with running(TRAINING, offset) as child:
        assert child.stdout is not None
        for _ in range(steps):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)


def interrupted_replay() -> None:
    with running(COMMAND, "replay", "out") as child:
        time.sleep(random.uniform(0.2, 3.0))
        child.send_signal(random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL]))
        ended(child)


def contents() -> tuple[object, ...]:
    return recorded(*run_folders(Path("out"))), sorted(in_tensorboard()), in_mlflow()


@pytest.mark.parametrize("number", range(max(1, TIMES // 5)))
def test_each_step_counts_once_however_often_trainings_and_replays_are_killed(number: int) -> None:
    kill_a_training(0, random.randint(42, 400))
    for resume in range(random.randint(0, 2)):
        kill_a_training(10 * (resume + 1), random.randint(0, 400))
    for _ in range(random.randint(0, 2)):
        interrupted_replay()
    assert replay().code == 0
    before = contents()
    assert replay()[:2] == (0, "Nothing is owed.\n")
    assert contents() == before

    losses = recorded(*run_folders(Path("out")))
    assert [step for step, _ in in_tensorboard()] == sorted(losses)
    assert dict(in_tensorboard()) == pytest.approx(losses)
    statuses, points = in_mlflow()
    assert list(statuses.values()) == ["KILLED"]
    assert len(points) == len(set(points))
    assert losses.items() <= set(points)  # MLflow cannot forget what a resume has made void
    (checkpoint,) = Path("mlruns").rglob("checkpoint-40")
    assert sorted(os.listdir(checkpoint)) == ["model.bin", "trainer_state.json"]
