"""What the events of one optimizer step cost, by the number of callbacks and whether they listen."""

from __future__ import annotations

import logging
from typing import Any

import transformers
from timing import Row, best, table
from transformers.trainer_callback import CallbackHandler as TheirHandler

import trackside

STEPS = 20_000


def silent(base: Any) -> type:
    return type("Silent", (base,), {})


def listening(base: Any) -> type:
    class Listening(base):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            pass

    return Listening


def microseconds(handler: Any) -> float:
    state, control = trackside.TrainerState(), trackside.TrainerControl()

    def step() -> None:
        handler.on_step_begin(None, state, control)
        handler.on_pre_optimizer_step(None, state, control)
        handler.on_optimizer_step(None, state, control)
        handler.on_step_end(None, state, control)

    return best(step, STEPS) * 1e6


def main() -> None:
    logging.disable()  # many callbacks of one class are what is wanted here
    rows: list[Row] = []
    for kind, target in ((silent, "at most 1/30 with 5"), (listening, "at most 1/4")):
        ours, theirs = kind(trackside.TrainerCallback), kind(transformers.TrainerCallback)
        for count in (0, 5, 20):
            ours_takes = microseconds(trackside.CallbackHandler([ours() for _ in range(count)]))
            theirs_takes = microseconds(TheirHandler([theirs() for _ in range(count)], None, None, None, None))
            rows.append((f"{count} callbacks, {kind.__name__}", ours_takes, theirs_takes, target if count else ""))
    table("Four events of one optimizer step", "us", rows)


if __name__ == "__main__":
    main()
