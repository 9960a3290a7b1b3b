"""The real wandb, offline; what it has written is read back value by value."""

from __future__ import annotations

import math

import pytest
from offline import finished_runs

from trackside_wandb import WandbCallback

pytestmark = [pytest.mark.sdk, pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")


def log(training, step, **values):
    training.state.global_step = step
    training.log(values)


def test_each_value_stands_in_the_file_as_it_was_logged(loop, tmp_path):
    reporter = WandbCallback(mode="offline")
    training = loop(
        reporter, run_name="blue", learning_rate=0.25, lr_scheduler_kwargs={"ratio": math.nan, "none": None}
    )
    training.fire("on_train_begin")
    log(training, 10, loss=0.1, huge=1e300, count=10**18, broken=math.nan, grad_norm=-math.inf)
    log(training, 5, eval_loss=0.5)
    log(training, 5, train_loss=0.25)
    training.fire("on_train_end")
    reporter.close()

    (run,) = finished_runs(tmp_path / "out")
    first, second, _ = run.rows
    assert math.isnan(first["train/broken"])
    assert first["train/grad_norm"] == -math.inf
    assert (first["train/loss"], first["train/huge"], first["train/count"]) == (0.1, 1e300, 10**18)
    assert (first["train/global_step"], second["train/global_step"], second["eval/loss"]) == (10, 5, 0.5)
    assert run.summary["train/train_loss"] == 0.25
    assert run.metrics == {"train/global_step": "", "*": "train/global_step"}
    assert (run.config["learning_rate"], run.config["run_name"]) == (0.25, "blue")
    assert (run.config["lr_scheduler_kwargs/ratio"], run.config["lr_scheduler_kwargs/none"]) == ("nan", None)
    assert (run.run.run_id, run.run.display_name, run.exit_code) == (reporter.tracker_id, "blue", 0)
