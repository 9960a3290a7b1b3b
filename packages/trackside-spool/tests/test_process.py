"""Couriers in a process of their own."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from elsewhere import ChattyReporter, FileReporter, processes, told

from trackside import StartError
from trackside_spool import process, recorder
from trackside_spool.folder import InUseError, run_folders
from trackside_spool.journal import Reader
from trackside_spool.process import Marks
from trackside_spool.replay import replay
from trackside_testkit import FakeLoop

HERE = os.path.dirname(__file__)
EXPECTED = [(step, 1 / (step + 1)) for step in range(1, 9)]


@pytest.fixture(autouse=True)
def _in_a_process(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "process")
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "60")  # of a busy machine


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
    assert reporter.sent().startswith("file: 37 values; see")


def test_what_shows_the_run_is_said_also_if_another_process_knows_it(capsys):
    train(FileReporter())
    assert f"Reporting to file; see the run with: tail {os.path.abspath('tracker.jsonl')}" in capsys.readouterr().err


def test_what_another_process_sends_is_not_counted_before_the_end():
    reporter = FileReporter()
    loop = FakeLoop([reporter], output_dir="out")
    loop.fire("on_train_begin")
    loop.log({"loss": 1.0})
    assert reporter.sent().startswith("file: sent by another process")
    loop.fire("on_train_end")


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


class OfAnotherMachine(FileReporter):
    __module__ = "not_installed_here"


def test_a_reporter_that_the_process_cannot_make_is_a_refusal():
    with pytest.raises(StartError, match="not_installed_here"):
        train(OfAnotherMachine())


def test_what_an_sdk_prints_is_no_answer():
    train(ChattyReporter())
    assert losses() == EXPECTED
    assert told("finish") == ["finished"]


def kill_the_courier_process():
    (process,) = processes()
    os.kill(process, signal.SIGKILL)


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_when_the_process_dies_the_end_waits_no_longer_and_says_what_is_owed(monkeypatch, caplog):
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "60")
    loop = FakeLoop([FileReporter(pause=0.2)], output_dir="out")
    loop.fire("on_train_begin")
    for _ in range(20):
        loop.log({"loss": 1.0})
    kill_the_courier_process()
    begin = time.monotonic()
    loop.fire("on_train_end")
    assert time.monotonic() - begin < 20
    assert caplog.text.count("The courier process is gone") == 1
    assert "(its process is gone); deliver that with: trackside replay" in caplog.text


def test_a_process_that_has_died_is_replaced_when_there_is_something_to_do_again(caplog):
    reporter = FileReporter()
    loop = train(reporter)
    kill_the_courier_process()
    wait_for(lambda: reporter._session.recorder._courier_process._process is None)
    loop.evaluate()
    assert len(processes()) == 2
    assert any("eval/loss" in values for _, values in told("point"))
    assert losses() == EXPECTED
    assert caplog.text == ""


def test_what_cannot_be_described_is_delivered_by_a_thread_and_that_is_said(capsys):
    train(FileReporter(writer=open))
    assert losses() == EXPECTED
    assert processes() == {os.getpid()}
    assert "cannot be made in another process" in capsys.readouterr().err


def test_where_no_process_can_be_started_a_thread_delivers(monkeypatch, caplog):
    def refuse(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recorder, "CourierProcess", refuse)
    reporter = FileReporter()
    train(reporter)
    assert losses() == EXPECTED
    assert processes() == {os.getpid()}
    assert "file: no other process can deliver (OSError: [Errno 28] No space left on device)" in caplog.text
    assert reporter.sent().startswith("file: 37 values of")


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


END_WHILE_THE_COURIER_SLEEPS = """
import os, signal, threading
(courier,) = [thread for thread in threading.enumerate() if thread.name == "trackside-courier-process"]
process = courier._args[0]
os.kill(process.pid, signal.SIGSTOP)
os.environ["TRACKSIDE_DRAIN_SECONDS"] = "0"
loop.fire("on_train_end")
print(process.pid, flush=True)
os._exit(0)
"""


def test_a_training_that_has_ended_well_is_finished_also_if_its_courier_hears_of_the_end_after_its_death():
    source = TRAINING.replace("range(1, 100_000)", "range(1, 4)") + END_WHILE_THE_COURIER_SLEEPS
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}  # the courier holds the second
    done = subprocess.run([sys.executable, "-c", source], timeout=60, check=True, **pipes)
    os.kill(int(done.stdout.split()[-1]), signal.SIGCONT)
    wait_for(lambda: told("finish") != [])
    assert told("finish") == ["finished"]


RESUMABLE = TRAINING.replace("    print(", "    if step == 4:\n        loop.save()\n    print(").replace("0.02", "0.5")
RESUMABLE = RESUMABLE.replace(
    'loop.fire("on_train_begin")', 'loop.fire("on_train_begin")\nloop.state.logging_steps = 1'
)


def killed_training(source, steps):
    """Kill a training after some steps; the number of the last one that it has logged."""
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            if int(line) == steps:
                break
        child.send_signal(signal.SIGKILL)
        return int([line, *child.stdout][-1])


@pytest.mark.parametrize("patience", ["0", "30"])
def test_a_training_that_is_restarted_while_the_courier_is_at_work_goes_on_in_its_run(patience, monkeypatch):
    killed_training(RESUMABLE, 6)
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", patience)
    loop = FakeLoop([FileReporter()], output_dir="out", eval_strategy="no")
    loop.train(resume_from="out/checkpoint-4")
    wait_for(lambda: told("finish")[-1:] == ["finished"])
    (folder,) = run_folders(Path("out"))
    steps = [step for step, _ in losses()]
    assert [steps.count(step) for step in range(1, 5)] == [1, 1, 1, 1]
    assert losses()[-4:] == EXPECTED[4:]
    assert not (folder.path / "handover").exists()


@pytest.mark.parametrize("pause", [0, 0.5])
def test_a_run_goes_on_behind_its_former_couriers_in_one_process(pause, monkeypatch):
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "0.1")
    train(FileReporter(pause=pause), num_train_epochs=1)
    FakeLoop([FileReporter()], output_dir="out", eval_strategy="no").train(resume_from="out/checkpoint-4")
    wait_for(lambda: told("finish")[-1:] == ["finished"] and len(losses()) >= 8)
    assert losses() == EXPECTED
    assert len(list(run_folders(Path("out")))) == 1


@pytest.mark.parametrize("steps", [1, 50, 400])
def test_after_kill_9_the_courier_delivers_the_rest_and_closes_the_run_as_killed(steps):
    last = killed_training(TRAINING, steps)
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


def test_a_replay_takes_over_from_a_courier_whose_training_was_ended_while_the_tracker_was_away():
    source = TRAINING.replace("pause=0.02", "gate='there'").replace(
        "    print(step, flush=True)", "    sys.stdin.read()"
    )
    environment = {**os.environ, "TRACKSIDE_DRAIN_SECONDS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", source], env=environment, **pipes) as child:
        assert any("file: start has to wait" in line for line in child.stderr)  # both processes speak there
        child.terminate()
        assert "file is owed" in child.stderr.read()
    assert child.returncode == -signal.SIGTERM
    (folder,) = run_folders(Path("out"))
    with pytest.raises(InUseError):
        list(replay(folder))
    Path("there").touch()
    assert not any(outcome.reason for outcome in replay(folder, patience=0))  # none if the courier was faster
    assert told("finish") == ["killed"]


def test_a_mark_that_one_process_sets_is_seen_by_another(tmp_path):
    Marks(tmp_path / "marks").set(3, 2**40, 7)
    assert Marks(tmp_path / "marks").get(3) == (2**40, 7)
    assert Marks(tmp_path / "marks").get(4) == (0, 0)


def test_where_the_system_refuses_to_be_as_polite_as_that_the_process_is_polite_in_another_way(monkeypatch):
    def refuse(*how):
        raise PermissionError("not in this container")

    niceness = []
    monkeypatch.setattr(os, "sched_setscheduler", refuse, raising=False)
    monkeypatch.setattr(os, "nice", niceness.append)
    process._be_polite()
    assert niceness == [19]


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
