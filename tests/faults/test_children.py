"""Processes that a training forks or spawns, and copies of its reporters: only its own process delivers its run."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from breaking import PATH, in_tensorboard, recorded, run
from filing import FilingReporter, filed, filed_losses

from trackside_spool.folder import run_folders
from trackside_testkit import FakeLoop

CHILDREN = """
import multiprocessing, os, time
from pathlib import Path
from filing import FilingReporter
from trackside_tensorboard import TensorBoardCallback
from trackside_testkit import FakeLoop

def log(loop, step, loss):
    loop.state.global_step = step
    loop.log({"loss": loss})

def a_loop(folder, *reporters):
    return FakeLoop(reporters, output_dir=folder, eval_strategy="no", save_strategy="no")
"""

INHERITS = """
loop = a_loop("out", FilingReporter(), TensorBoardCallback())
loop.fire("on_train_begin")
log(loop, 1, 1.0)
if os.fork() == 0:
    log(loop, 2, -1.0)
    loop.fire("on_train_end")
    {end}
os.wait()
log(loop, 3, 3.0)
loop.fire("on_train_end")
"""


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit()", "raise ValueError", "os.kill(os.getpid(), 15)"])
def test_a_forked_child_that_goes_on_with_the_loop_of_its_parent_delivers_and_closes_nothing(end: str) -> None:
    done = run(CHILDREN + INHERITS.format(end=end))
    assert done.code == 0, done
    (folder,) = run_folders(Path("out"))
    assert recorded(folder) == dict(in_tensorboard()) == {1: 1.0, 3: 3.0}
    assert filed_losses() == [(1, 1.0), (3, 3.0)]
    assert filed("finish") == ["finished"]
    assert {tracker.status for tracker in folder.trackers()} == {"finished"}


TRAINS = """
def child(reporters):
    loop = a_loop("child", *reporters)
    loop.fire("on_train_begin")
    log(loop, 1, 10.0)
    loop.fire("on_train_end")

def start(method, reporters):
    if method == "fork by hand":
        if os.fork() == 0:
            child(reporters)
            os._exit(0)
        os.wait()
    else:
        process = multiprocessing.get_context(method).Process(target=child, args=(reporters,))
        process.start()
        process.join()
        assert process.exitcode == 0

if __name__ == "__main__":
    reporters = FilingReporter(), TensorBoardCallback()
    loop = a_loop("out", *reporters)
    loop.fire("on_train_begin")
    log(loop, 1, 1.0)
    start(sys.argv[1], reporters)
    log(loop, 2, 2.0)
    loop.fire("on_train_end")
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver", "fork by hand"])
def test_a_training_in_a_child_with_the_reporters_of_its_parent_is_a_run_of_its_own(method: str) -> None:
    Path("program.py").write_text(PATH + CHILDREN + TRAINS)  # a spawned child reads its functions from there
    done = subprocess.run(
        [sys.executable, "program.py", method], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done
    (parent,), (child,) = run_folders(Path("out")), run_folders(Path("child"))
    assert recorded(parent) == dict(in_tensorboard()) == {1: 1.0, 2: 2.0}
    assert recorded(child) == {1: 10.0}
    assert sorted(filed_losses()) == [(1, 1.0), (1, 10.0), (2, 2.0)]
    assert filed("finish") == ["finished", "finished"]
    assert len({tracker.tracker_id for folder in (parent, child) for tracker in folder.trackers()}) == 4


IMPORTS = """
Path("slow_sdk.py").write_text("import time; time.sleep(2)")
sys.path.insert(0, "")

class Importing(FilingReporter):
    def import_sdk(self):
        import slow_sdk

loop = a_loop("out", Importing())
loop.fire("on_train_begin")
if os.fork() == 0:
    child = a_loop("child", Importing())
    child.fire("on_train_begin")
    log(child, 1, 10.0)
    child.fire("on_train_end")
    os._exit(0)
os.wait()
loop.fire("on_train_end")
"""


def test_a_child_that_is_forked_while_a_package_is_imported_can_report() -> None:
    done = run(CHILDREN + IMPORTS, TRACKSIDE_START_SECONDS="0.2")
    assert done.code == 0, done
    assert "is owed" not in done.errors
    assert filed_losses() == [(1, 10.0)]


def by_pickle(reporter: Any) -> Any:
    return pickle.loads(pickle.dumps(reporter))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, by_pickle])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_a_copy_of_a_reporter_shares_nothing_of_its_run_and_may_have_one_of_its_own(
    moment: str, duplicate: Any
) -> None:
    reporter = FilingReporter()
    loop = FakeLoop([reporter], output_dir="out", eval_strategy="no", save_strategy="no")
    copied = duplicate(reporter) if moment == "before" else None
    loop.fire("on_train_begin")
    loop.log({"loss": 1.0})
    copied = duplicate(reporter) if moment == "during" else copied
    loop.fire("on_train_end")
    copied = duplicate(reporter) if moment == "after" else copied
    copied.close()
    FakeLoop([copied], output_dir="copy", eval_strategy="no", save_strategy="no", max_steps=1).train()
    assert filed_losses() == [(0, 1.0), (1, 0.5)]
    assert filed("finish") == ["finished", "finished"]
    assert len(list(run_folders(Path("out")))) == len(list(run_folders(Path("copy")))) == 1
