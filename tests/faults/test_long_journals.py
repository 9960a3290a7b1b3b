"""A tracker that lags far behind, and the replay that makes up for it, take little memory."""

from __future__ import annotations

from pathlib import Path

from breaking import run

from trackside_spool.replay import debts

RECORDS = 200_000  # of more than 100 bytes each
MOST_GROWTH = 16_000  # kB: a queue of them would take ten times that

LAGS = f"""
import resource, threading
from trackside_testkit import FakeLoop, RecordingReporter

class Hanging(RecordingReporter):
    name = "hanging"

    def log_points(self, points):
        threading.Event().wait()

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

loop = FakeLoop([Hanging()], output_dir="out", eval_strategy="no")
loop.fire("on_train_begin")
loop.log({{"loss": 1.0}})
before = peak()
for step in range(2, {RECORDS} + 1):
    loop.state.global_step = step
    loop.fire("on_log", logs={{"loss": 1 / step, "grad_norm": 1.0}})
print(peak() - before)
loop.fire("on_train_end")
"""

REPLAYS = """
import resource
from pathlib import Path
import filing
from trackside_spool import replay
from trackside_spool.folder import run_folders

class Counting(filing.FilingReporter):
    count = 0

    def _file(self, operation, content):
        self.count += len(content) if operation == "log_points" else 0

counting = Counting()
replay.build = lambda tracker: counting
(folder,) = run_folders(Path("out"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(outcome,) = replay.replay(folder)
assert outcome.reason == ""
print(counting.count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_neither_a_tracker_that_hangs_nor_its_replay_takes_the_memory_of_the_journal() -> None:
    lagging = run(LAGS, TRACKSIDE_DRAIN_SECONDS="0.1")
    assert lagging.code == 0, lagging
    assert int(lagging.output) < MOST_GROWTH
    assert f"hanging is owed {RECORDS + 1:,} records" in lagging.errors  # and how it has ended
    replayed = run(REPLAYS)
    assert replayed.code == 0, replayed
    count, growth = map(int, replayed.output.split())
    assert count == RECORDS
    assert growth < MOST_GROWTH
    assert all(debt.is_settled for debt in debts(Path("out")))
