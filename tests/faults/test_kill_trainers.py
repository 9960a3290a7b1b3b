"""Trainings of our Trainer, and of that of `transformers`, are killed, and resumed from the last checkpoint."""

from __future__ import annotations

import random
import signal
from itertools import islice
from pathlib import Path

import pytest
from breaking import HERE, TIMES, in_mlflow, in_tensorboard, recorded, replay, running

from trackside_spool.folder import run_folders

pytestmark = pytest.mark.usefixtures("store")

TRAINING = f"""
import os
sys.path.insert(0, {str(HERE.parent / "parity")!r})
from tiny import BOTH, trainer
from trackside import TrainerCallback
from trackside_mlflow import MLflowCallback
from trackside_tensorboard import TensorBoardCallback

class Printing(TrainerCallback):
    def on_log(self, args, state, control, **kwargs):
        print("logged", state.global_step, flush=True)

loop = trainer(
    BOTH[sys.argv[1]], "out", [TensorBoardCallback(), MLflowCallback(), Printing()], num_train_epochs=10_000,
    eval_strategy="no", save_strategy="steps", save_steps=50, save_total_limit=2,
)
loop.train(resume_from_checkpoint=len(sys.argv) > 2)
"""


def kill_a_training(*arguments: str, logs: int) -> int:
    """Train until some steps were logged, and kill; the last step whose log call had returned."""
    with running(TRAINING, *arguments) as child:
        assert child.stdout is not None
        logged = (int(line.split()[1]) for line in child.stdout if line.startswith("logged"))
        first = list(islice(logged, logs))
        child.send_signal(signal.SIGKILL)
        return [*first, *logged][-1]


@pytest.mark.parametrize("number", range(max(1, TIMES // 20)))
@pytest.mark.parametrize("api", ["trackside", "transformers"])
def test_of_a_training_that_is_killed_and_resumed_each_step_counts_once(api: str, number: int) -> None:
    kill_a_training(api, logs=random.randint(60, 300))
    last = kill_a_training(api, "resume", logs=random.randint(1, 200))
    assert replay().code == 0
    assert replay().output == "Nothing is owed.\n"
    (folder,) = run_folders(Path("out"))
    losses = recorded(folder)
    assert len(losses) - last in (0, 1)
    assert list(losses) == list(range(1, len(losses) + 1))
    assert [step for step, _ in in_tensorboard()] == list(losses)
    assert dict(in_tensorboard()) == pytest.approx(losses)
    statuses, points = in_mlflow()
    assert list(statuses.values()) == ["KILLED"]
    assert len(points) == len(set(points))
    assert losses.items() <= set(points)
