"""A journal of a million records: how fast it is written, listed and replayed, and how much memory that takes."""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import trackside
from trackside_spool.folder import run_folders
from trackside_spool.replay import debts, replay

RECORDS, METRICS = 1_000_000, 5


class Away(trackside.Reporter):
    """A tracker that takes nothing as long as the training lasts."""

    name = "away"
    is_away = True

    def start(self, run: trackside.Run) -> None:
        if type(self).is_away:
            raise ConnectionRefusedError("nobody there")

    def log_points(self, points: Any) -> None:
        pass

    def finish(self, status: trackside.Status) -> None:
        pass


def write(folder: Path) -> None:
    handler = trackside.CallbackHandler([trackside.DefaultFlowCallback, Away()])
    args, state, control = {"output_dir": str(folder)}, trackside.TrainerState(), trackside.TrainerControl()
    handler.on_train_begin(args, state, control)
    for step in range(1, RECORDS + 1):
        state.global_step = step
        handler.on_log(args, state, control, {f"metric_{number}": number / step for number in range(METRICS)})
    handler.on_train_end(args, state, control)


def list_debts(folder: Path) -> None:
    (debt,) = debts(folder)
    assert debt.records == RECORDS + 1


def deliver(folder: Path) -> None:
    Away.is_away = False
    (run,) = run_folders(folder)
    (outcome,) = replay(run)
    assert outcome.delivered == RECORDS + 1


def measured(work: Callable[[Path], None], folder: Path) -> tuple[float, float]:
    """Seconds of some work, and by how many MB it has made the process grow."""
    before, begin = _peak(), time.perf_counter()
    work(folder)
    return time.perf_counter() - begin, _peak() - before


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in kB


def main() -> None:
    os.environ.update(TRACKSIDE_START_SECONDS="0", TRACKSIDE_DRAIN_SECONDS="0")
    print(f"\nA journal of {RECORDS:,} records with {METRICS} metrics each")
    with tempfile.TemporaryDirectory() as name:
        for title, work in {"written": write, "listed": list_debts, "replayed": deliver}.items():
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
                seconds, growth = fresh.submit(measured, work, Path(name)).result()
            speed = RECORDS / seconds
            print(f"  {title:10} in {seconds:5.1f} s  {speed:10,.0f} records/s  {growth:6.1f} MB of memory")
        size = sum(path.stat().st_size for path in Path(name).rglob("journal.jsonl"))
        print(f"  it takes {size / 1e6:,.0f} MB on the disk")


if __name__ == "__main__":
    main()
