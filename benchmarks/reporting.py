"""What one log call costs the loop with TensorBoard, by the number of metrics in it."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from typing import Any

import transformers
from timing import Row, table
from transformers.trainer_callback import CallbackHandler as TheirHandler

import trackside
from trackside_tensorboard import TensorBoardCallback

LOGS = 500


def microseconds(handler: Any, state: Any, control: Any, args: Any, metrics: int) -> float:
    """The median of `LOGS` log calls in a row."""
    handler.on_train_begin(args, state, control)
    took = []
    for step in range(1, LOGS + 1):
        state.global_step = step
        logs = {f"metric_{number}": number / step for number in range(metrics)}
        begin = time.perf_counter()
        handler.on_log(args, state, control, logs)
        took.append(time.perf_counter() - begin)
    handler.on_train_end(args, state, control)
    return statistics.median(took) * 1e6


def main() -> None:
    rows: list[Row] = []
    for metrics in (5, 20, 100):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TENSORBOARD_LOGGING_DIR"] = folder
            args = transformers.TrainingArguments(output_dir=folder, report_to="none", use_cpu=True)
            ours = trackside.CallbackHandler([trackside.DefaultFlowCallback, TensorBoardCallback()])
            theirs = TheirHandler([transformers.integrations.TensorBoardCallback()], None, None, None, None)
            ours_take = microseconds(ours, trackside.TrainerState(), trackside.TrainerControl(), args, metrics)
            theirs_take = microseconds(
                theirs, transformers.TrainerState(), transformers.TrainerControl(), args, metrics
            )
            rows.append((f"{metrics} metrics", ours_take, theirs_take, ""))
    table("A log call with TensorBoard, everything on disk when it returns (ours)", "us", rows)


if __name__ == "__main__":
    main()
