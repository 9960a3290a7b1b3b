"""Folders, disks and trackers that do not do what they should."""

import errno
import gc
import io
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from trackside import StartError, env
from trackside_spool import folder, journal, progress, recorder, replay
from trackside_spool.folder import run_folders
from trackside_spool.journal import Reader
from trackside_testkit import FakeLoop, RecordingReporter

EXPECTED = [(step, 1 / (step + 1)) for step in range(1, 9)]


@pytest.fixture(autouse=True)
def _warnings_only(caplog):
    caplog.set_level(logging.WARNING)


def train(*reporters, **changes):
    loop = FakeLoop(list(reporters), **{"output_dir": "out", "eval_strategy": "no", "save_strategy": "no", **changes})
    loop.train()
    return loop


def losses(reporter):
    return reporter.points.get("train/loss", [])


def put_a_file_in_the_way(monkeypatch):
    Path("out").write_text("no folder")


def take_file_locks_away(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)


@pytest.mark.parametrize("trouble", [put_a_file_in_the_way, take_file_locks_away])
def test_where_no_journal_can_be_kept_one_warning_says_so_and_the_tracker_gets_everything(trouble, monkeypatch, caplog):
    trouble(monkeypatch)
    reporters = RecordingReporter(), RecordingReporter()
    train(*reporters)
    for reporter in reporters:
        assert losses(reporter) == EXPECTED
    assert caplog.text.count("No journal can be kept") == 1


def only_folder():
    (found,) = run_folders(Path("out"))
    return found


def is_settled():
    return all(debt.is_settled for debt in replay.debts(Path("out")))


# ---- folders and disks ----------------------------------------------------------------------------------------------


def test_a_program_may_change_its_working_directory(tmp_path):
    reporter = RecordingReporter()
    loop = FakeLoop([reporter], output_dir="out")
    loop.log({"loss": 1.0})
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    loop.log({"loss": 2.0})
    reporter.close()
    assert [value for _, value in losses(reporter)] == [1.0, 2.0]
    assert os.listdir() == []


def test_a_folder_that_is_taken_away_under_a_training_costs_no_tracker_anything(caplog):
    reporter = RecordingReporter()
    loop = FakeLoop([reporter], output_dir="out")
    loop.log({"loss": 1.0})
    os.rename("out", "gone")
    loop.log({"loss": 2.0})
    reporter.close()
    assert [value for _, value in losses(reporter)] == [1.0, 2.0]
    assert caplog.text.count("cannot be written down") == 1


@pytest.fixture
def disk(monkeypatch):
    """A disk that takes nothing as long as `disk.is_full`."""
    disk = SimpleNamespace(is_full=False)

    def refuse(call):
        def refusing(*args):
            if disk.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return call(*args)

        return refusing

    monkeypatch.setattr(os, "write", refuse(os.write))
    monkeypatch.setattr(Path, "write_text", refuse(Path.write_text))
    return disk


@pytest.mark.parametrize("has_room_again", [False, True])
def test_what_a_full_disk_does_not_take_reaches_the_tracker_once(disk, has_room_again, caplog):
    reporter = RecordingReporter()
    loop = FakeLoop([reporter], output_dir="out")
    for step in range(1, 7):
        disk.is_full = step > 2 and not (has_room_again and step > 4)
        loop.state.global_step = step
        loop.log({"loss": 1 / step})
    reporter.close()
    assert [step for step, _ in losses(reporter)] == [1, 2, 3, 4, 5, 6]
    assert caplog.text.count("records wait in memory") == 1
    assert ("lacks 4 records" in caplog.text) is not has_room_again
    on_disk = [record.step for _, record in Reader(only_folder().journal).read(100)]
    assert on_disk == ([1, 2, 3, 4, 5, 6] if has_room_again else [1, 2])


def test_memory_that_is_full_as_well_loses_the_newest_records_and_says_how_many(disk, monkeypatch, caplog):
    monkeypatch.setattr(journal, "MOST_WAITING", 300)
    reporter = RecordingReporter()
    loop = FakeLoop([reporter], output_dir="out")
    loop.log({"loss": 0.0})
    disk.is_full = True
    for number in range(1, 11):
        loop.log({"loss": float(number)})
    disk.is_full = False
    loop.log({"loss": 11.0})
    reporter.close()
    taken = [value for _, value in losses(reporter)]
    assert taken == sorted(set(taken))
    assert taken[0] == 0.0
    assert taken[-1] == 11.0
    assert f"{12 - len(taken)} for which there was no memory" in caplog.text


@pytest.mark.parametrize("name", ["\U0001d49c" * 100, "日" * 300, "x" * 5000, "..", "a/b/../c", " ", "\n", "a\udc80b"])
def test_any_name_of_a_run_makes_a_folder(name):
    reporter = RecordingReporter()
    train(reporter, run_name=name)
    assert losses(reporter) == EXPECTED
    assert only_folder().path.parent == Path("out/_trackside")


def test_numbers_and_texts_that_json_cannot_hold_are_delivered():
    reporter = RecordingReporter()
    loop = FakeLoop([reporter], output_dir="out", seed=2**70)
    for _ in range(2):
        loop.log({"huge": 2**70, "text": "a\udc80b"})
    reporter.close()
    assert reporter.points["train/huge"] == [(0, float(2**70))] * 2
    assert reporter.texts["train/text"] == [(0, "a?b")] * 2


def test_nothing_stays_open_after_a_training():
    train(RecordingReporter())
    gc.collect()
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for number in range(5):
        train(RecordingReporter(), output_dir=f"out-{number}")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= files
    assert threading.active_count() <= threads


# ---- trackers -------------------------------------------------------------------------------------------------------


def test_a_tracker_that_refuses_to_start_when_nobody_waits_any_more_is_said_and_owed(monkeypatch, caplog):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0")

    class Late(RecordingReporter):
        def start(self, run):
            time.sleep(0.2)
            raise ValueError("no such project")

    train(Late())
    assert caplog.text.count("cannot start (ValueError: no such project)") == 1
    assert "recording is owed 10 records (ValueError: no such project)" in caplog.text


@pytest.mark.parametrize("operation", ["log_params", "log_points", "log_summary", "finish"])
def test_no_call_is_lost_to_a_trouble_of_the_moment(operation):
    reporter = RecordingReporter()
    reporter.fail(operation, ConnectionResetError("for a moment"), once=True)
    train(reporter)
    assert reporter.params["learning_rate"] == 0.1
    assert sorted({step for step, _ in losses(reporter)}) == list(range(1, 9))
    assert reporter.summary["train/train_loss"] == 0.25
    assert reporter.statuses[-1] == "finished"
    assert is_settled()


@pytest.mark.parametrize("operation", ["log_params", "log_points", "log_summary", "finish"])
def test_what_a_tracker_refuses_it_is_owed_until_it_takes_it(operation, monkeypatch, caplog):
    reporter = RecordingReporter()
    reporter.fail(operation, ValueError("the key is out of date"))
    train(reporter)
    assert not is_settled()
    assert "(ValueError: the key is out of date); deliver that with: trackside replay" in caplog.text
    monkeypatch.setattr(replay, "build", lambda tracker: reporter)
    (outcome,) = replay.replay(only_folder())
    assert "out of date" in outcome.reason
    assert not is_settled()
    later = RecordingReporter()
    monkeypatch.setattr(replay, "build", lambda tracker: later)
    (outcome,) = replay.replay(only_folder())
    assert outcome.reason == ""
    assert later.told(operation)
    assert is_settled()


@pytest.mark.parametrize("operation", ["log_params", "log_points", "finish"])
def test_an_sdk_that_would_end_the_program_is_one_that_refuses(operation, caplog):
    reporter = RecordingReporter()
    reporter.fail(operation, SystemExit("no licence"))
    train(reporter)
    assert not is_settled()
    assert "(RuntimeError: SystemExit: no licence); deliver that with: trackside replay" in caplog.text


def test_an_sdk_that_would_end_the_program_at_its_start_is_not_started_in_silence(monkeypatch, caplog):
    reporter = RecordingReporter()
    reporter.fail("start", SystemExit("no licence"))
    with pytest.raises(StartError, match="no licence"):
        train(reporter)
    monkeypatch.setattr(replay, "build", lambda tracker: reporter)
    (outcome,) = replay.replay(only_folder())
    assert "no licence" in outcome.reason


def test_an_evaluation_goes_on_where_a_replay_has_gone_on_after_the_training(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0")
    is_training = threading.Event()

    class Late(RecordingReporter):
        def start(self, run):
            is_training.wait(20)
            return super().start(run)

        def on_step_begin(self, *args, **kwargs):
            is_training.set()

    reporter, other = Late(), RecordingReporter()
    reporter.fail("start", ValueError("no such project"), once=True)
    loop = train(reporter)
    monkeypatch.setattr(replay, "build", lambda tracker: other)
    assert [outcome.reason for outcome in replay.replay(only_folder())] == [""]
    loop.evaluate()
    assert reporter.ids == other.ids
    assert losses(reporter) == []
    assert reporter.points["eval/loss"] == [(8, 1 / 9)]


def test_an_evaluation_is_reported_after_the_journal_of_the_training_was_pruned():
    reporter = RecordingReporter()
    loop = train(reporter)
    assert replay.prune(Path("out"))
    loop.evaluate()
    assert reporter.points["eval/loss"] == [(8, 1 / 9)]
    assert losses(reporter) == EXPECTED
    *_, end, log, evaluated = [record.kind for _, record in Reader(only_folder().journal).read(100)]
    assert (end, log, evaluated) == ("finished", "log", "evaluate")
    assert is_settled()


@pytest.mark.parametrize("seconds", ["-1", "nan", "0", "soon"])
def test_a_server_that_asks_for_a_pause_that_is_none_is_tried_again(seconds):
    busy = ConnectionResetError("busy")
    busy.headers = {"Retry-After": seconds}
    reporter = RecordingReporter()
    reporter.fail("finish", busy, once=True)
    train(reporter)
    assert is_settled()


class Picky(RecordingReporter):
    """Takes no points of some steps, nor what comes with them in one call."""

    name = "picky"
    unwanted = (3, 4, 7)

    def log_points(self, points):
        if any(point.step in self.unwanted for point in points):
            raise ValueError("not these")
        super().log_points(points)


def all_at_once(reporter):
    """A courier that starts late finds all records of a short training in one batch."""
    gate = threading.Event()
    start = reporter.start
    reporter.start = lambda run: gate.wait() and start(run)
    loop = FakeLoop([reporter], output_dir="out")
    loop.fire("on_train_begin")
    for step in range(1, 9):
        loop.state.global_step = step
        loop.log({"loss": 1 / (step + 1)})
    loop.log({"note": "of the last step"})
    gate.set()
    loop.fire("on_train_end")


def test_of_a_batch_only_what_is_refused_is_owed_and_nothing_is_sent_twice(monkeypatch, caplog):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0")
    reporter = Picky()
    all_at_once(reporter)
    assert [step for step, _ in losses(reporter)] == [1, 2, 5, 6, 8]
    assert reporter.texts["train/note"] == [(8, "of the last step")]
    assert "calls that failed: log_points (3)" in caplog.text
    assert "picky is owed 3 records (ValueError: not these)" in caplog.text
    assert only_folder().tracker("picky").refused == [[2, 4], [6, 7]]


def test_what_was_refused_is_tried_again_whatever_is_refused_once_more(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0")
    all_at_once(Picky())
    taken = []
    for unwanted in ((3, 7), (7,), ()):
        reporter = Picky()
        reporter.unwanted = unwanted
        monkeypatch.setattr(replay, "build", lambda tracker, reporter=reporter: reporter)
        list(replay.replay(only_folder()))
        taken.append([step for step, _ in losses(reporter)])
    assert taken == [[4], [3], [7]]
    assert is_settled()


def test_a_run_that_starts_late_is_attached_by_the_thread_that_trains(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0")
    attached = []

    class Late(RecordingReporter):
        def start(self, run):
            time.sleep(0.2)
            return super().start(run)

        def attach(self):
            attached.append(threading.current_thread())

    reporter = Late()
    loop = FakeLoop([reporter], output_dir="out")
    loop.fire("on_train_begin")
    loop.log({"loss": 1.0})
    assert attached == []
    deadline = time.monotonic() + 30
    while not attached and time.monotonic() < deadline:
        loop.log({"loss": 1.0})
        time.sleep(0.01)
    loop.log({"loss": 1.0})
    reporter.close()
    assert attached == [threading.main_thread()]


def test_an_evaluation_waits_until_a_late_courier_is_done(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0")
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "0")
    gate = threading.Event()

    class Held(RecordingReporter):
        def log_points(self, points):
            gate.wait()
            super().log_points(points)

    reporter = Held()
    train(reporter).evaluate()
    gate.set()
    deadline = time.monotonic() + 30
    while len(reporter.statuses) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert losses(reporter) == EXPECTED
    assert len(reporter.points["eval/loss"]) == 1
    kinds = [kind for kind, _ in reporter.calls if kind in ("start", "finish")]
    assert kinds == ["start", "finish", "start", "finish"]


def test_a_resumed_training_goes_on_behind_the_couriers_of_the_one_before(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0.1")
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "0.1")
    server = SimpleNamespace(is_away=True)

    class Unreachable(RecordingReporter):
        def log_points(self, points):
            if server.is_away:
                raise ConnectionRefusedError("nobody there")
            super().log_points(points)

    train(Unreachable(), num_train_epochs=1, save_strategy="epoch")
    server.is_away = False
    reporter = RecordingReporter()
    FakeLoop([reporter], output_dir="out", eval_strategy="no").train(resume_from="out/checkpoint-4")
    wait_until_it_is_free(only_folder())
    assert losses(reporter) == EXPECTED
    assert is_settled()


def test_a_run_whose_courier_never_comes_back_is_left_alone(monkeypatch, caplog):
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "0.1")
    monkeypatch.setattr(recorder, "HANDOVER_SECONDS", 0.1)
    gate = threading.Event()

    class Hanging(RecordingReporter):
        def log_points(self, points):
            gate.wait()

    train(Hanging(), num_train_epochs=1, save_strategy="epoch")
    reporter = RecordingReporter()
    FakeLoop([reporter], output_dir="out", eval_strategy="no").train(resume_from="out/checkpoint-4")
    gate.set()
    assert "is at work elsewhere; this training is reported as a new run" in caplog.text
    assert len(list(run_folders(Path("out")))) == 2


def test_several_trackers_that_hang_have_one_deadline_together(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "2")
    gate = threading.Event()

    class Hanging(RecordingReporter):
        def log_points(self, points):
            gate.wait()

    healthy = RecordingReporter()
    begin = time.monotonic()
    train(Hanging(), Hanging(), Hanging(), healthy)
    assert time.monotonic() - begin < 5
    assert losses(healthy) == EXPECTED
    gate.set()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_a_long_drain_is_a_line_at_a_terminal_and_nothing_elsewhere(stream, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.6)

    class Slow(RecordingReporter):
        name = "slow"

        def log_points(self, points):
            time.sleep(2)
            super().log_points(points)

    monkeypatch.setattr(sys, "stderr", stream())
    train(Slow(), RecordingReporter())
    *_, shown, erased = ["", *sys.stderr.getvalue().split("\r\x1b[K")]
    if stream is Terminal:
        assert shown.startswith("Records still to be delivered: slow ")
        assert erased == ""
    else:
        assert "delivered" not in sys.stderr.getvalue()


@pytest.fixture
def _interruptible():
    """Interrupts count, also where they are ignored from above, as in a job in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_who_interrupts_the_wait_for_one_tracker_waits_for_no_other(caplog):
    gate = threading.Event()

    class Hanging(RecordingReporter):
        def log_points(self, points):
            gate.wait()

    loop = FakeLoop([Hanging(), Hanging()], output_dir="out", eval_strategy="no", save_strategy="no")
    loop.fire("on_train_begin")
    loop.log({"loss": 1.0})
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        loop.fire("on_train_end")
    loop.fire("on_exception", exception=KeyboardInterrupt())
    assert time.monotonic() - begin < 5
    assert "recording is owed" in caplog.text
    assert "recording-2 is owed" in caplog.text
    gate.set()


@pytest.mark.usefixtures("_interruptible")
def test_who_interrupts_a_start_leaves_no_run_open(caplog):
    class Slow(RecordingReporter):
        def start(self, run):
            time.sleep(0.5)
            return super().start(run)

    reporter = Slow()
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        train(reporter)
    assert "recording is owed 1 record;" in caplog.text
    deadline = time.monotonic() + 30
    while not is_settled() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reporter.statuses == ["killed"]


@pytest.mark.parametrize(("sent", "code"), [("SIGINT", -signal.SIGINT), ("SIGTERM", -signal.SIGTERM)])
@pytest.mark.parametrize("trackers", [1, 2])
def test_who_ends_a_training_while_it_waits_for_a_start_is_told_what_is_owed(sent, code, trackers):
    source = f"""
    import os, signal
    from trackside_testkit import FakeLoop, RecordingReporter

    class Away(RecordingReporter):
        signals = [signal.{sent}]

        def start(self, run):
            if self.signals and self.name == "away{trackers - 1}":
                os.kill(os.getpid(), self.signals.pop())
            raise ConnectionRefusedError("nobody there")

    signal.signal(signal.SIGINT, signal.default_int_handler)
    loop = FakeLoop([type("Away", (Away,), {{"name": f"away{{number}}"}})() for number in range({trackers})])
    loop.fire("on_train_begin")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "TRACKSIDE_DRAIN_SECONDS": "0.5"},
    )  # fmt: skip
    assert done.returncode == code
    for number in range(trackers):
        assert done.stderr.count(f"away{number} is owed ") == 1


@pytest.mark.parametrize(("sent", "code"), [("SIGINT", -signal.SIGINT), ("SIGTERM", -signal.SIGTERM)])
def test_who_ends_a_program_while_it_waits_for_the_end_is_told_what_is_owed(sent, code):
    source = f"""
    import os, signal, threading
    from trackside_testkit import FakeLoop, RecordingReporter

    class Hanging(RecordingReporter):
        def finish(self, status):
            threading.Timer(0.3, os.kill, [os.getpid(), signal.{sent}]).start()
            threading.Event().wait()

    signal.signal(signal.SIGINT, signal.default_int_handler)
    FakeLoop([Hanging()]).train()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "TRACKSIDE_DRAIN_SECONDS": "3"},
    )  # fmt: skip
    assert done.returncode == code
    assert done.stderr.count("recording is owed ") == 1


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e400", "soon", ""])
@pytest.mark.parametrize("variable", ["TRACKSIDE_START_SECONDS", "TRACKSIDE_DRAIN_SECONDS"])
def test_any_number_of_seconds_is_understood(variable, text, monkeypatch, caplog):
    monkeypatch.setenv(variable, text)
    reporter = RecordingReporter()
    train(reporter)
    deadline = time.monotonic() + 30
    while not reporter.statuses and time.monotonic() < deadline:
        time.sleep(0.01)
    assert losses(reporter) == EXPECTED
    assert ("no number of seconds" in caplog.text) is (text in ("nan", "soon"))


# ---- locks ----------------------------------------------------------------------------------------------------------


def is_free(run_folder):
    try:
        run_folder.lock()
    except folder.InUseError:
        return False
    run_folder.unlock()
    return True


def wait_until_it_is_free(run_folder):
    deadline = time.monotonic() + 30
    while not is_free(run_folder):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_is_free_as_soon_as_its_last_courier_is_done(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "0")
    train(RecordingReporter())
    wait_until_it_is_free(only_folder())


def test_a_forked_child_does_not_keep_the_run_of_its_dead_parent():
    source = """
    import os, signal
    from trackside_testkit import FakeLoop, RecordingReporter
    FakeLoop([RecordingReporter()], output_dir="out").log({"loss": 1.0})
    child = os.fork()
    if child == 0:
        signal.pause()
    print(child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(source)], stdout=subprocess.PIPE, text=True) as parent:
        orphan = int(parent.stdout.readline())
        parent.wait()
        try:
            wait_until_it_is_free(only_folder())
        finally:
            os.kill(orphan, signal.SIGKILL)


# ---- how a tracker is found again -----------------------------------------------------------------------------------


class Placed(RecordingReporter):
    """A tracker of which the environment, or the SDK, says where it is."""

    name = "placed"
    url = env("PLACED_URL")
    project = env(None)

    def place(self):
        return {"project": "of-the-sdk"}


def test_a_replay_finds_the_tracker_where_the_training_had_it(monkeypatch):
    monkeypatch.setenv("PLACED_URL", "http://here")
    train(Placed())
    monkeypatch.delenv("PLACED_URL")
    again = replay.build(only_folder().tracker("placed"))
    assert (again.url, again.project) == ("http://here", "of-the-sdk")


def test_a_replay_makes_a_reporter_that_was_one_of_all():
    reporter = Placed()
    reporter.required = False
    train(reporter)
    assert isinstance(replay.build(only_folder().tracker("placed")), Placed)


def test_a_replay_asks_for_what_was_a_secret(monkeypatch):
    train(Placed(url="http://me:SECRET@here"))
    tracker = only_folder().tracker("placed")
    assert "SECRET" not in (only_folder().path / "placed.json").read_text()
    with pytest.raises(ValueError, match="set PLACED_URL"):
        replay.build(tracker)
    monkeypatch.setenv("PLACED_URL", "http://me:SECRET@here")
    assert replay.build(tracker).url == "http://me:SECRET@here"
