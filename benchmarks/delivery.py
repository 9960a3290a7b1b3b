"""What reporting behind the loop costs it: one log call, and a whole run, beside the callbacks of `transformers`.

On TensorBoard, MLflow with a SQLite file, and Weights & Biases offline, as far as they are installed.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers.trainer_callback import CallbackHandler as TheirHandler

import trackside

LOGS, STEPS, METRICS = 1_000, 2_000, 20

Start = Callable[[str], Any]


class Nowhere(trackside.Reporter):
    """A tracker that takes everything and does nothing, so that only the journal is left."""

    name = "nowhere"
    reopenable = True

    def start(self, run: trackside.Run) -> None:
        pass

    def log_points(self, points: Any) -> None:
        pass

    def finish(self, status: trackside.Status) -> None:
        pass


def ours(*names: str) -> Start:
    def start(folder: str) -> Any:
        reporters = [Nowhere()] if names == ("nowhere",) else trackside.resolve(list(names))
        return trackside.CallbackHandler([trackside.DefaultFlowCallback, *reporters])

    return start


def theirs(*names: str) -> Start:
    def start(folder: str) -> Any:
        callbacks = transformers.integrations.get_reporting_integration_callbacks(list(names))
        return TheirHandler([transformers.DefaultFlowCallback, *callbacks], None, None, None, None)

    return start


class Training:
    """The events of a training, with a state and arguments of either library."""

    def __init__(self, start: Start, folder: str) -> None:
        self.handler = start(folder)
        library = transformers if isinstance(self.handler, TheirHandler) else trackside
        self.args = transformers.TrainingArguments(output_dir=folder, report_to="none", use_cpu=True)
        self.state, self.control = library.TrainerState(max_steps=10**6), library.TrainerControl()
        self.handler.on_train_begin(self.args, self.state, self.control)

    def log(self, step: int, logs: dict[str, float]) -> None:
        self.state.global_step = step
        self.handler.on_log(self.args, self.state, self.control, logs)

    def end(self) -> None:
        """The end of the training and of its run, which wandb's callbacks leave open."""
        self.handler.on_train_end(self.args, self.state, self.control)
        for callback in self.handler.callbacks:
            getattr(callback, "close", lambda: None)()
        if getattr(sys.modules.get("wandb"), "run", None) is not None:
            sys.modules["wandb"].finish()


def log_call(start: Start, metrics: int) -> tuple[float, float]:
    """The median and the 99th percentile of a log call in a tight loop, in microseconds."""
    with a_folder() as folder:
        training, took = Training(start, folder), []
        for step in range(1, LOGS + 1):
            logs = {f"metric_{number}": number / step for number in range(metrics)}
            begin = time.perf_counter()
            training.log(step, logs)
            took.append(time.perf_counter() - begin)
        training.end()
    return statistics.median(took) * 1e6, statistics.quantiles(took, n=100)[98] * 1e6


def whole_run(start: Start) -> tuple[float, float]:
    """Microseconds of a step of a small perceptron with a log of 20 metrics, and seconds of the end."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, labels = torch.randn(32, 64), torch.randint(10, (32,))
    with a_folder() as folder:
        training = Training(start, folder)
        begin = time.perf_counter()
        for step in range(1, STEPS + 1):
            loss = nn.functional.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            training.log(step, {f"metric_{number}": number / step for number in range(METRICS)})
        loop = time.perf_counter() - begin
        training.end()
        return loop / STEPS * 1e6, time.perf_counter() - begin - loop


def a_folder() -> Any:
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(Path(folder.name) / "runs")
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder.name}/mlflow.db"
    os.environ.update(WANDB_MODE="offline", WANDB_DIR=folder.name, WANDB_SILENT="true")
    return folder


def main() -> None:
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    os.environ["TRACKSIDE_START_SECONDS"] = os.environ["TRACKSIDE_DRAIN_SECONDS"] = "120"
    trackers = [name for name in ("tensorboard", "mlflow", "wandb") if importlib.util.find_spec(f"trackside_{name}")]
    print("\nOne log call as the loop feels it: median / 99th percentile, us")
    for metrics, target in ((5, "5"), (20, "7"), (100, "15")):
        for name, start in {"journal alone": ours("nowhere"), **pairs(trackers)}.items():
            median, late = log_call(start, metrics)
            aim = f"target: at most {target} with one tracker" if name == "journal alone" else ""
            print(f"  {metrics:4} metrics  {name:40} {median:9.1f} / {late:9.1f}  {aim}")
    print(f"\n{STEPS:,} steps with {METRICS} metrics each: us a step, beside the journal alone, seconds of the end")
    bare, _ = whole_run(ours())
    alone, _ = whole_run(ours("nowhere"))
    print(f"  {'no tracker':40} {bare:9.1f}")
    for name, start in {"journal alone": ours("nowhere"), **pairs(trackers)}.items():
        step, end = whole_run(start)
        print(f"  {name:40} {step:9.1f}  {step / alone:6.2f}  {end:6.1f}")
    os.environ["TRACKSIDE_DELIVERY"] = "process"
    step, end = whole_run(ours(*trackers))
    print(f"  {'the same in a process: all':40} {step:9.1f}  {step / alone:6.2f}  {end:6.1f}")


def pairs(trackers: list[str]) -> dict[str, Start]:
    """Each tracker alone and all together, in our callbacks and in theirs."""
    found: dict[str, Start] = {}
    for chosen in [[name] for name in trackers] + ([trackers] if len(trackers) > 1 else []):
        found[f"trackside: {' + '.join(chosen)}"] = ours(*chosen)
        found[f"transformers: {' + '.join(chosen)}"] = theirs(*chosen)
    return found


if __name__ == "__main__":
    main()
