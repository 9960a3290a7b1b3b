"""What the tests here share: programs that are to be broken, and what the journal and the trackers hold afterwards."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trackside_spool.folder import RunFolder

TIMES = int(os.environ.get("TRACKSIDE_KILLS", "5"))
HERE = Path(__file__).parent
SECONDS = 120  # no child takes longer, unless it hangs

# Jobs in the background have interrupts ignored, and hand that down.
INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
PATH = f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
COMMAND = "from trackside_command import main; main()"


class Ended(NamedTuple):
    """How a program has ended, and what it has said."""

    code: int
    output: str
    errors: str


@contextmanager
def running(source: str, *arguments: Any, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program at work, which can import what lies beside this file; at the end it is killed if need be."""
    command = [sys.executable, "-c", INTERRUPTIBLE + PATH + source, *map(str, arguments)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, **environ}, **pipes) as child:
        try:
            yield child
        finally:
            child.kill()


def ended(child: subprocess.Popen[str]) -> Ended:
    """How a program ends that is left alone."""
    output, errors = child.communicate(timeout=SECONDS)
    return Ended(child.returncode, output, errors)


def run(source: str, *arguments: Any, **environ: str) -> Ended:
    """Let a Python program come to its end."""
    with running(source, *arguments, **environ) as child:
        return ended(child)


def run_and_signal(source: str, word: str, number: signal.Signals, after: float = 0.1, **environ: str) -> Ended:
    """Send a program a signal a moment after it has said a word."""
    with running(source, **environ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if word in line:  # threads that print at once share lines
                break
        else:
            raise AssertionError(f"It has never said {word!r}: {ended(child)}")
        time.sleep(after)
        child.send_signal(number)
        return ended(child)


def replay(*words: str) -> Ended:
    """Type `trackside replay out`."""
    return run(COMMAND, "replay", "out", *words)


# ---- what is there afterwards ---------------------------------------------------------------------------------------


def recorded(folder: RunFolder) -> dict[int, float]:
    """The loss of each step as the journal holds it; what was done again after a resume counts as it was then."""
    losses: dict[int, float] = {}
    for line in folder.journal.read_bytes().splitlines():
        entry = json.loads(line)
        if entry.get("kind") == "resumed":
            losses = {step: loss for step, loss in losses.items() if step <= entry["step"]}
        elif entry.get("kind") == "log" and "loss" in entry["values"]:
            assert entry["step"] not in losses
            losses[entry["step"]] = entry["values"]["loss"]
    return losses


def in_tensorboard(key: str = "train/loss") -> list[tuple[int, float]]:
    """The steps and losses in all event files of all directories."""
    points = []
    for directory in Path("out/runs").iterdir():
        events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
        events.Reload()
        if key in events.Tags()["scalars"]:
            points += [(event.step, event.value) for event in events.Scalars(key)]
    return points


def in_mlflow() -> tuple[dict[str, str], list[tuple[int, float]]]:
    """The status of each run that has losses, and the steps and losses of all."""
    points = "select run_uuid, step, value from metrics where key = 'loss' order by step, timestamp"
    with closing(sqlite3.connect("mlflow.db")) as database:
        statuses = dict(database.execute("select run_uuid, status from runs").fetchall())
        rows = database.execute(points).fetchall()
    return {run: statuses[run] for run, _, _ in rows}, [(step, value) for _, step, value in rows]
