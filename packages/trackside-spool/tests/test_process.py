"""Couriers in a process of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from elsewhere import FileReporter, processes, told

from trackside import StartError
from trackside_spool.folder import run_folders
from trackside_spool.journal import Reader
from trackside_spool.process import Marks
from trackside_testkit import FakeLoop

HERE = os.path.dirname(__file__)
EXPECTED = [(step, 1 / (step + 1)) for step in range(1, 9)]


@pytest.fixture(autouse=True)
def _in_a_process(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "process")


def train(*reporters, **changes):
    loop = FakeLoop(list(reporters), **{"output_dir": "out", "eval_strategy": "no", **changes})
    loop.train()
    return loop


def losses(path="tracker.jsonl"):
    return [(step, values["train/loss"]) for step, values in told("point", path) if "train/loss" in values]


def test_the_sdk_is_called_in_another_process_and_gets_everything():
    reporter = FileReporter()
    train(reporter)
    assert losses() == EXPECTED
    assert told("finish") == ["finished"]
    assert told("params")[0]["learning_rate"] == 0.1
    assert os.getpid() not in processes()
    assert reporter.run is None
    assert reporter.sent().startswith("file: 3")


def test_all_trackers_share_one_process():
    train(FileReporter(path="a.jsonl"), FileReporter(path="b.jsonl"))
    assert losses("a.jsonl") == losses("b.jsonl") == EXPECTED
    assert processes("a.jsonl") == processes("b.jsonl")


def test_the_trackers_id_travels_in_the_state():
    loop = train(FileReporter())
    (run,) = {run for run in told("start") if run} or {loop.state.stateful_callbacks["trackside"]["run"]}
    assert loop.state.stateful_callbacks["trackside"]["trackers"] == {"file": run}


def test_an_evaluation_after_the_end_lands_in_the_run():
    loop = train(FileReporter())
    loop.evaluate()
    assert len(told("params")) == 1
    assert told("finish") == ["finished", "finished"]
    assert any("eval/loss" in values for _, values in told("point"))


def test_a_refusal_stops_the_program():
    with pytest.raises(StartError, match="no such project"):
        train(FileReporter(refuses=True))


def test_what_cannot_be_described_is_delivered_by_a_thread_and_that_is_said(capsys):
    train(FileReporter(writer=open))
    assert losses() == EXPECTED
    assert processes() == {os.getpid()}
    assert "cannot be made in another process" in capsys.readouterr().err


def test_records_that_a_reporter_was_not_told_of_are_not_delivered():
    first, second = FileReporter(path="a.jsonl"), FileReporter(path="b.jsonl")
    loop = FakeLoop([first, second], output_dir="out")
    loop.log({"loss": 1.0})
    loop.handler.remove_callback(second)
    loop.log({"loss": 2.0})
    loop.handler.add_callback(second)
    loop.log({"loss": 3.0})
    for reporter in (first, second):
        reporter.close()
    assert [value for _, value in losses("a.jsonl")] == [1.0, 2.0, 3.0]
    assert [value for _, value in losses("b.jsonl")] == [1.0, 3.0]


TRAINING = f"""
import sys
sys.path.insert(0, {HERE!r})
from elsewhere import FileReporter
from trackside_testkit import FakeLoop
loop = FakeLoop([FileReporter(pause=0.02)], output_dir="out", eval_strategy="no")
loop.fire("on_train_begin")
for step in range(1, 100_000):
    loop.state.global_step = step
    loop.log({{"loss": 1 / step}})
    print(step, flush=True)
"""


@pytest.mark.parametrize("steps", [1, 50, 400])
def test_after_kill_9_the_courier_delivers_the_rest_and_closes_the_run_as_killed(steps):
    with subprocess.Popen([sys.executable, "-c", TRAINING], stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            if int(line) == steps:
                break
        child.send_signal(signal.SIGKILL)
        last = int([line, *child.stdout][-1])
    deadline = time.monotonic() + 60
    while not (Path("tracker.jsonl").exists() and told("finish")) and time.monotonic() < deadline:
        time.sleep(0.05)
    (folder,) = run_folders(Path("out"))
    recorded = [record.step for _, record in Reader(folder.journal).read(10**6)]
    assert recorded[:last] == list(range(1, last + 1))
    assert [step for step, _ in losses()] == recorded
    assert told("finish") == ["killed"]


def test_ctrl_c_reaches_the_training_and_not_the_courier():
    interrupt = "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    source = TRAINING.replace("100_000", "30") + interrupt + "os.killpg(0, signal.SIGINT)\n"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False, start_new_session=True
    )
    assert "KeyboardInterrupt" in done.stderr
    assert [step for step, _ in losses()] == list(range(1, 30))
    assert told("finish") == ["killed"]


def test_a_mark_that_one_process_sets_is_seen_by_another(tmp_path):
    Marks(tmp_path / "marks").set(3, 2**40, 7)
    assert Marks(tmp_path / "marks").get(3) == (2**40, 7)
    assert Marks(tmp_path / "marks").get(4) == (0, 0)


def test_the_process_ends_with_the_training():
    train(FileReporter())
    (process,) = processes()
    source = TRAINING.replace("100_000", "5") + "loop.fire('on_train_end')\n"
    subprocess.run([sys.executable, "-c", source], check=True, timeout=60, stdout=subprocess.DEVNULL)
    (other,) = processes() - {process}
    deadline = time.monotonic() + 30
    while Path(f"/proc/{other}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{other}").exists()
