"""A disk that is full, or cannot be written at all: training goes on, one warning says so, the journal is readable."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from breaking import PATH, Ended, in_tensorboard, recorded, replay, run
from filing import filed_losses

from trackside_spool.folder import run_folders

STEPS = 2000

TRAINING = f"""
from trackside_tensorboard import TensorBoardCallback
from trackside_testkit import FakeLoop, RecordingReporter

in_memory = RecordingReporter()
reporters = in_memory, TensorBoardCallback()
FakeLoop(reporters, output_dir="out", eval_strategy="no", save_strategy="no", max_steps={STEPS}).train()
assert [step for step, _ in in_memory.points["train/loss"]] == list(range(1, {STEPS} + 1))
assert in_memory.statuses == ["finished"]
"""

# No file may grow beyond that, as with a quota. Python itself ignores the signal.
LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"


def run_on_a_disk(source: str, mount: str) -> Ended:
    """Run a program that has a small disk at `out`, which nobody else sees and which is gone when it ends."""
    program = shlex.join([sys.executable, "-c", PATH + source])
    script = f"mount -t tmpfs -o size=200k none out && {mount} && {program}; code=$?; cp -r out kept; exit $code"
    Path("out").mkdir()
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    Path("out").rmdir()
    Path("kept").rename("out")
    return Ended(done.returncode, done.stdout, done.stderr)


def can_mount() -> bool:
    probe = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return (
        shutil.which("unshare") is not None and subprocess.run(probe, capture_output=True, check=False).returncode == 0
    )


needs_a_disk = pytest.mark.skipif(not can_mount(), reason="no small disk can be mounted here")


def with_a_limit() -> Ended:
    return run(LIMIT + TRAINING, TRACKSIDE_DRAIN_SECONDS="1")


def on_a_small_disk() -> Ended:
    return run_on_a_disk("import os; os.environ['TRACKSIDE_DRAIN_SECONDS'] = '1'\n" + TRAINING, mount="true")


@pytest.mark.parametrize("train", [with_a_limit, pytest.param(on_a_small_disk, marks=needs_a_disk)])
def test_a_training_goes_on_with_one_warning_when_the_disk_is_full(train: Callable[[], Ended]) -> None:
    done = train()
    assert done.code == 0, done
    assert done.errors.count("cannot be written; records wait in memory") == 1
    assert done.errors.count("records that the disk did not take") == 1
    assert "Traceback" not in done.errors
    (folder,) = run_folders(Path("out"))
    steps = list(recorded(folder))
    assert 100 < len(steps) < STEPS
    assert steps == list(range(1, len(steps) + 1))
    assert replay().code == 0
    assert replay().output == "Nothing is owed.\n"
    assert [step for step, _ in in_tensorboard()] == steps


@needs_a_disk
def test_a_training_whose_folder_is_read_only_reports_without_a_journal() -> None:
    source = TRAINING.replace("reporters = in_memory, TensorBoardCallback()", "reporters = (in_memory,)")
    done = run_on_a_disk(source, mount="mount -o remount,ro out")
    assert done.code == 0, done
    assert done.errors.count("No journal can be kept (OSError") == 1
    assert "Traceback" not in done.errors
    assert list(Path("out").iterdir()) == []


@needs_a_disk
def test_a_tracker_that_was_named_and_cannot_write_stops_the_program_at_its_start() -> None:
    done = run_on_a_disk(TRAINING, mount="mount -o remount,ro out")
    assert done.code == 1
    assert "StartError: tensorboard cannot start (OSError" in done.errors
    assert "leave 'tensorboard' out of report_to" in done.errors


@needs_a_disk
def test_on_a_disk_that_is_full_from_the_beginning_a_thread_delivers_in_place_of_a_process() -> None:
    source = """
    import os
    os.environ.update(TRACKSIDE_DELIVERY="process", TRACKSIDE_DRAIN_SECONDS="10")
    from filing import FilingReporter
    from trackside_testkit import FakeLoop

    FakeLoop([FilingReporter()], output_dir="out", eval_strategy="no", save_strategy="no").train()
    """
    done = run_on_a_disk(dedent(source), mount="mkdir out/_trackside && ! head -c 1M /dev/zero > out/full")
    assert done.code == 0, done
    assert "filing: no other process can deliver (OSError" in done.errors
    assert [step for step, _ in filed_losses()] == list(range(1, 9))
