"""What saving the state costs when its history is long and a few entries are new."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Any

import transformers
from timing import Row, table

import trackside

NEW = 100


def entries(first: int, count: int) -> list[dict[str, float]]:
    return [
        {"loss": random.random(), "grad_norm": random.random(), "learning_rate": 1e-4, "epoch": i / 1000, "step": i}
        for i in range(first, first + count)
    ]


def saving(state: Any, length: int, path: Path) -> float:
    """Milliseconds of a save after `NEW` entries were added to `length` old ones, which an earlier save has seen."""
    state.log_history = entries(0, length)
    state.save_to_json(path)
    state.log_history += entries(length, NEW)
    begin = time.perf_counter()
    state.save_to_json(path)
    return (time.perf_counter() - begin) * 1e3


def main() -> None:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trainer_state.json"
        for length in (10_000, 100_000, 300_000):
            theirs = saving(transformers.TrainerState(), length, path)
            ours = saving(trackside.TrainerState(), length, path)
            target = "at most 1/10" if length == 100_000 else ""
            rows.append((f"{length:,} entries, {NEW} of them new", ours, theirs, target))
    table("Saving a state", "ms", rows)


if __name__ == "__main__":
    main()
