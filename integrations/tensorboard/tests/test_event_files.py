"""What stands in the event files, and when: read back by TensorBoard's own reader, value by value."""

from __future__ import annotations

import copy
import math
import os
import pickle
import resource
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest
from board import RunOnDisk, hparams_table
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboardX import SummaryWriter

from trackside import Point, Run, StartError
from trackside_tensorboard import TensorBoardCallback
from trackside_testkit import FakeArguments, FakeModel

FLOAT32_MAX = 3.4028234663852886e38


@pytest.fixture
def reporter():
    reporter = TensorBoardCallback()
    yield reporter
    reporter.close()


def on_disk(reporter):
    return RunOnDisk(reporter.tracker_id)


def run_script(code: str, folder: Path, *, expect: int = 0) -> str:
    """What a script of its own process prints; it ends with the code that is expected."""
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert process.returncode == expect, process.stderr
    return process.stdout


# ---- values ---------------------------------------------------------------------------------------------------------


def test_scalars_stand_below_train_eval_and_test(loop, reporter):
    training = loop(reporter, num_train_epochs=1)
    training.train()
    training.predict()
    run = on_disk(reporter)
    assert run.scalars("train/loss") == [(step, pytest.approx(1 / (step + 1))) for step in range(1, 5)]
    assert run.scalars("train/learning_rate") == [(step, pytest.approx(0.1)) for step in range(1, 5)]
    assert run.scalars("eval/loss") == [(4, pytest.approx(0.2))]
    assert run.scalars("test/loss") == [(4, pytest.approx(0.2))]
    assert run.scalars("train/train_loss") == [(4, 0.25)]
    assert {tag.partition("/")[0] for tag in run.tags} == {"train", "eval", "test"}


def test_all_values_of_a_log_are_one_event_with_the_time_of_the_log(loop, reporter, monkeypatch):
    training = loop(reporter)
    training.begin()
    written = []
    file = reporter.run.file_writer.event_writer
    add_event = file.add_event
    monkeypatch.setattr(file, "add_event", lambda event: (written.append(event), add_event(event)))
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5)
    training.log_at(3, loss=0.5, **{f"metric_{n}": n for n in range(20)})
    (event,) = written
    assert len(event.summary.value) == 22
    assert on_disk(reporter).times("train/loss") == on_disk(reporter).times("train/metric_7") == [1234.5]


def test_nan_and_infinities_are_kept_and_the_file_goes_on(loop, reporter):
    training = loop(reporter)
    training.begin()
    training.log_at(1, loss=math.nan, grad_norm=math.inf, low=-math.inf)
    training.log_at(2, loss=0.5)
    run = on_disk(reporter)
    (first, second) = run.scalars("train/loss")
    assert math.isnan(first[1])
    assert second == (2, 0.5)
    assert run.scalars("train/grad_norm") == [(1, math.inf)]
    assert run.scalars("train/low") == [(1, -math.inf)]


@pytest.mark.parametrize("number", [1e39, -1e300, 10**60, FLOAT32_MAX * (1 + 1e-8)])
def test_a_number_beyond_32_bit_floats_is_kept_as_text_instead_of_an_infinity(loop, reporter, caplog, number):
    training = loop(reporter)
    training.begin()
    training.log_at(1, loss=0.5, huge=number)
    training.log_at(2, loss=0.25, huge=number)
    run = on_disk(reporter)
    assert "train/huge" not in run.tags
    assert run.texts("train/huge") == [(1, repr(number)), (2, repr(number))]
    assert run.scalars("train/loss") == [(1, 0.5), (2, 0.25)]
    (warning,) = [record for record in caplog.records if "train/huge" in record.getMessage()]
    assert warning.levelname == "WARNING"


@pytest.mark.parametrize("number", [FLOAT32_MAX, -FLOAT32_MAX, 2**70])
def test_the_largest_32_bit_floats_are_drawn(loop, reporter, number):
    training = loop(reporter)
    training.begin()
    training.log_at(1, large=number)
    assert on_disk(reporter).scalars("train/large") == [(1, number)]


def test_whatever_is_one_number_is_a_scalar(loop, reporter):
    tensor = SimpleNamespace(item=lambda: 1.5, shape=(1,))
    training = loop(reporter)
    training.begin()
    training.log_at(1, tensor=tensor, decimal=Decimal("0.25"), flag=True, count=3, late=2**24 + 1)
    run = on_disk(reporter)
    values = {tag.removeprefix("train/"): run.scalars(tag) for tag in run.tags - {"train/epoch"}}
    expected = {"tensor": 1.5, "decimal": 0.25, "flag": 1.0, "count": 3.0, "late": 2.0**24}
    assert values == {name: [(1, value)] for name, value in expected.items()}


def test_a_text_among_the_values_is_shown_as_text(loop, reporter):
    training = loop(reporter)
    training.begin()
    training.log_at(7, loss=0.5, phase="warm-up", odd="caf\udce9")
    run = on_disk(reporter)
    assert run.texts("train/phase") == [(7, "warm-up")]
    assert run.texts("train/odd") == [(7, "caf?")]
    assert run.scalars("train/loss") == [(7, 0.5)]


def test_names_that_differ_stay_different_and_lead_nowhere(loop, reporter, tmp_path):
    training = loop(reporter)
    training.begin()
    names = ["a(b", "a)b", "a_b", "../../x", "/x", "ü", ""]
    training.log_at(1, **{name: float(number) for number, name in enumerate(names)})
    run = on_disk(reporter)
    found = [run.scalars(tag) for tag in run.tags - {"train/epoch"}]
    assert sorted(found) == [[(1, float(number))] for number in range(len(names))]
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


# ---- parameters -----------------------------------------------------------------------------------------------------


def test_arguments_and_the_config_of_the_model_are_texts(loop, reporter):
    model = FakeModel()
    model.peft_config = {"default": {"r": 8}}
    loop(reporter, model=model, learning_rate=0.5, hub_token="hf_secretSECRET").train()
    run = on_disk(reporter)
    assert [step for step, _ in run.texts("args")] == [0]
    assert run.described("args")["learning_rate"] == 0.5
    assert run.described("args")["lr_scheduler_kwargs"] == {"warmup": {"steps": 3}}
    assert run.described("args")["hub_token"] == "***"
    assert run.described("model_config")["id2label"] == {"0": "no", "1": "yes"}
    assert run.described("peft_config") == {"default": {"r": 8}}


def test_the_hparams_tab_shows_each_run_once_with_its_last_values(loop, runs):
    for rate in (0.5, 0.25):
        reporter = TensorBoardCallback()
        loop(reporter, learning_rate=rate, run_name=f"rate-{rate}", num_train_epochs=1).train()
    table = hparams_table(runs)
    assert {name: row["params"]["learning_rate"] for name, row in table.items()} == {"rate-0.5": 0.5, "rate-0.25": 0.25}
    for row in table.values():
        assert row["metrics"]["train/loss"] == row["metrics"]["eval/loss"] == pytest.approx(0.2)
        assert row["metrics"]["train/train_loss"] == 0.25
        assert -1 not in row["metrics"].values()
        assert row["status"] == "STATUS_SUCCESS"


def test_the_hparams_tab_has_numbers_switches_and_texts_and_the_rest_as_json(loop, reporter, runs):
    params = {
        "none": None,
        "list": ["a", None, 1],
        "empty": {},
        "nested": {"k": 1},
        "nan": math.nan,
        "inf": math.inf,
        "many": 2**70,
        "odd": "caf\udce9",
        2: 3,
    }
    loop(reporter, num_train_epochs=1, lr_scheduler_kwargs=params, disable_tqdm=False).train()
    (row,) = hparams_table(runs).values()
    prefix = "lr_scheduler_kwargs/"
    found = {key.removeprefix(prefix): value for key, value in row["params"].items() if key.startswith(prefix)}
    assert found == {
        "list": '["a", null, 1]',
        "empty": "{}",
        "nested/k": 1.0,
        "nan": "nan",
        "inf": "inf",
        "many": float(2**70),
        "odd": "caf?",
        "2": 3.0,
    }
    assert row["params"]["disable_tqdm"] is False
    assert row["params"]["save_strategy"] == "epoch"


def test_the_hparams_tab_knows_success_only_since_a_failed_run_may_be_resumed(loop, tmp_path, runs):
    with pytest.raises(RuntimeError):
        loop(TensorBoardCallback(), num_train_epochs=2).train(fail_at=6)
    (row,) = hparams_table(runs).values()
    assert row["status"] == "STATUS_UNKNOWN"
    loop(TensorBoardCallback(), num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    (row,) = hparams_table(runs).values()
    assert row["status"] == "STATUS_SUCCESS"


@pytest.mark.parametrize(
    ("exception", "status"),
    [(RuntimeError(), "failed"), (KeyboardInterrupt(), "killed"), (type("TrialPruned", (Exception,), {})(), "pruned")],
)
def test_a_text_says_how_the_run_has_ended(loop, reporter, exception, status):
    training = loop(reporter)
    with pytest.raises(type(exception)):
        training.train(fail_at=3, exception=exception)
    training.evaluate()
    assert on_disk(reporter).texts("status") == [(2, status)]


# ---- directories ----------------------------------------------------------------------------------------------------


def test_each_training_has_a_directory_of_its_own(loop, reporter, runs):
    training = loop(reporter, num_train_epochs=1)
    directories = []
    for _ in range(3):
        training.train()
        training.evaluate()
        directories.append(reporter.tracker_id)
    assert len(set(directories)) == 3
    assert {Path(directory).parent for directory in directories} == {runs}
    for directory in directories:
        assert RunOnDisk(directory).scalars("train/loss")[-1] == (4, pytest.approx(0.2))
        assert RunOnDisk(directory).scalars("eval/loss") == [(4, pytest.approx(0.2))] * 2


def test_two_runs_of_one_name_in_one_second_do_not_meet(loop, runs):
    reporters = [TensorBoardCallback(), TensorBoardCallback()]
    trainings = [loop(reporter, run_name="baseline") for reporter in reporters]
    for training in trainings:
        training.begin()
    for number, training in enumerate(trainings):
        training.log_at(1, loss=float(number))
        training.fire("on_train_end")
    assert [reporter.tracker_id for reporter in reporters] == [str(runs / name) for name in ("baseline", "baseline-2")]
    assert [on_disk(reporter).scalars("train/loss") for reporter in reporters] == [[(1, 0.0)], [(1, 1.0)]]


def test_a_directory_that_a_process_has_claimed_and_died_is_found_again_by_its_run(tmp_path, runs):
    run = Run("0123456789ab", "baseline", str(tmp_path / "out"))
    script = f"""
        import os
        from trackside import Run
        from trackside_tensorboard import TensorBoardCallback
        TensorBoardCallback().start(Run({run.id!r}, "baseline", {run.output_dir!r}))
        os._exit(9)
    """
    run_script(script, tmp_path, expect=9)
    neighbour, reporter, again = reporters = [TensorBoardCallback() for _ in range(3)]
    assert neighbour.start(replace(run, id="ba9876543210")) == str(runs / "baseline-2")
    assert reporter.start(run) == str(runs / "baseline")
    reporter.log_points([Point({"train/loss": 0.5}, 1, None, 1.0)])
    assert RunOnDisk(runs / "baseline").scalars("train/loss") == [(1, 0.5)]
    assert all(name.startswith("events.out.tfevents.") for name in os.listdir(runs / "baseline"))
    assert again.start(run) == str(runs / "baseline-3")
    for one in reporters:
        one.run.close()


def test_each_trial_has_a_directory_of_its_own(loop, reporter, runs):
    training = loop(reporter, run_name="search")
    for trial in ("trial-0", "trial-1"):
        training.state = training._new_state()
        training.state.is_hyper_param_search, training.state.trial_name = True, trial
        training.begin()
        training.log_at(1, loss=0.5)
        training.fire("on_train_end")
    assert {path.name for path in runs.iterdir()} == {"search-trial-0", "search-trial-1"}


@pytest.mark.parametrize("name", ["../../escaped", "/absolute", "..", "a/b", "x" * 400, "größe 1", "\U0001d49c" * 80])
def test_the_directory_of_a_run_is_below_the_folder_whatever_its_name(loop, reporter, tmp_path, runs, name):
    loop(reporter, run_name=name).begin()
    assert Path(reporter.tracker_id).parent == runs
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_the_folder_is_the_option_then_the_variable_then_the_argument(loop, tmp_path, monkeypatch):
    @dataclass
    class Arguments(FakeArguments):
        logging_dir: str = str(tmp_path / "argument")

    def folder_of(reporter):
        loop(reporter, args=Arguments(tmp_path / "out")).begin()
        reporter.close()
        return Path(reporter.tracker_id).parent.name

    assert folder_of(TensorBoardCallback()) == "argument"
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "variable"))
    assert folder_of(TensorBoardCallback()) == "variable"
    assert folder_of(TensorBoardCallback(logging_dir=tmp_path / "option")) == "option"


def test_a_folder_may_be_below_the_home(loop, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "~/runs")
    reporter = TensorBoardCallback()
    loop(reporter).begin()
    assert Path(reporter.tracker_id).parent == tmp_path / "home" / "runs"


def test_a_folder_that_cannot_be_made_stops_the_program_at_its_start(loop, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StartError, match="tensorboard cannot start"):
        loop(TensorBoardCallback(logging_dir=tmp_path / "file")).begin()


def test_a_folder_in_the_cloud_is_refused_instead_of_made_here(loop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartError, match="tb_writer=SummaryWriter"):
        loop(TensorBoardCallback(logging_dir="s3://bucket/runs")).begin()
    assert list(tmp_path.iterdir()) == []


def test_it_says_which_command_shows_the_run(loop, reporter, tmp_path):
    assert reporter.where() is None
    loop(reporter).begin()
    assert reporter.where() == f"tensorboard --logdir {tmp_path / 'out' / 'runs'}"


# ---- resume ---------------------------------------------------------------------------------------------------------


def test_a_resumed_run_goes_on_in_its_directory_and_hides_what_came_after_the_checkpoint(loop, tmp_path):
    first = TensorBoardCallback()
    with pytest.raises(RuntimeError):
        loop(first, num_train_epochs=2).train(fail_at=8)
    second = TensorBoardCallback()
    training = loop(second, num_train_epochs=2)
    training.loss = lambda step: 10.0 + step
    training.train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert second.tracker_id == first.tracker_id
    run = on_disk(second)
    assert [step for step, _ in run.scalars("train/loss")] == list(range(1, 9))
    assert run.scalars("train/loss")[3:] == [(4, pytest.approx(0.2)), (5, 15), (6, 16), (7, 17), (8, 18)]
    assert run.scalars("eval/loss") == [(4, pytest.approx(0.2)), (8, 18)]
    assert run.texts("status")[-1] == (8, "finished")


def test_a_checkpoint_of_another_machine_starts_a_directory_anew(loop, reporter, tmp_path):
    training = loop(reporter, num_train_epochs=1)
    training.train()
    old = Path(reporter.tracker_id)
    old.rename(tmp_path / "elsewhere")
    second = TensorBoardCallback()
    resumed = loop(second, num_train_epochs=2, output_dir=tmp_path / "here")
    resumed.train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert Path(second.tracker_id).parent == tmp_path / "here" / "runs"
    assert [step for step, _ in on_disk(second).scalars("train/loss")] == [5, 6, 7, 8]


@pytest.mark.parametrize("given", ["exactly/here", Path("exactly/here")], ids=["text", "path"])
def test_a_directory_that_the_user_names_is_taken_and_made_if_need_be(loop, tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    wanted = tmp_path / "exactly" / "here"
    for _ in range(2):
        reporter = TensorBoardCallback(resume=given)
        loop(reporter, num_train_epochs=1).train()
        assert reporter.tracker_id == str(wanted)
    assert [step for step, _ in RunOnDisk(wanted).scalars("train/loss")] == [1, 2, 3, 4]


def test_an_evaluation_after_the_end_loses_nothing_and_repeats_nothing(loop, reporter):
    training = loop(reporter, num_train_epochs=1)
    training.train()
    before = on_disk(reporter)
    training.evaluate()
    after = on_disk(reporter)
    assert after.scalars("eval/loss") == [*before.scalars("eval/loss"), (4, pytest.approx(0.2))]
    for tag in ("train/loss", "train/train_loss"):
        assert after.scalars(tag) == before.scalars(tag) != []
    assert len(after.texts("args")) == len(after.texts("status")) == 1


def test_what_a_user_has_written_at_steps_of_his_own_survives_a_reopening(loop, reporter):
    training = loop(reporter, num_train_epochs=1)
    training.begin()
    reporter.run.add_scalar("mine/samples", 1.0, 1_000_000)
    training.log_at(4, loss=0.5)
    training.fire("on_train_end")
    training.evaluate()
    assert on_disk(reporter).scalars("mine/samples") == [(1_000_000, 1.0)]


# ---- on disk at once ------------------------------------------------------------------------------------------------


def test_each_log_is_on_disk_when_it_returns(loop, reporter):
    training = loop(reporter)
    training.begin()
    for step in (1, 2, 3):
        training.log_at(step, loss=float(step))
        assert on_disk(reporter).scalars("train/loss")[-1] == (step, step)


def test_what_a_user_writes_through_the_run_is_on_disk_at_once_too(loop, reporter):
    loop(reporter).begin()
    reporter.run.add_scalar("mine/score", 0.5, 3)
    assert on_disk(reporter).scalars("mine/score") == [(3, 0.5)]


def test_kill_9_in_mid_run_keeps_every_logged_point(tmp_path, runs):
    run_script(
        """
        import os, signal
        from trackside_tensorboard import TensorBoardCallback
        from trackside_testkit import FakeLoop
        loop = FakeLoop([TensorBoardCallback()], output_dir="out")
        loop.fire("on_train_begin")
        for step in range(1, 101):
            loop.state.global_step = step
            loop.log({"loss": step / 2})
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
        expect=-9,
    )
    (directory,) = runs.iterdir()
    assert RunOnDisk(directory).scalars("train/loss") == [(step, step / 2) for step in range(1, 101)]


def test_a_disk_that_is_full_for_a_while_does_not_spoil_the_file(tmp_path, runs):
    run_script(
        """
        import resource, signal
        from trackside_tensorboard import TensorBoardCallback
        from trackside_testkit import FakeLoop
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        loop = FakeLoop([TensorBoardCallback()], output_dir="out")
        loop.fire("on_train_begin")
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for step in range(1, 301):
            if step == 2:
                resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
            if step == 300:
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            loop.state.global_step = step
            loop.log({"loss": step / 2})
        loop.fire("on_train_end")
        """,
        tmp_path,
    )
    (directory,) = runs.iterdir()
    points = RunOnDisk(directory).scalars("train/loss")
    assert points[0] == (1, 0.5)
    assert points[-1] == (300, 150.0)
    assert len(points) < 300


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_reports_nothing_and_its_exit_does_not_hang(tmp_path, runs):
    run_script(
        """
        import os, sys
        from trackside_tensorboard import TensorBoardCallback
        from trackside_testkit import FakeLoop
        loop = FakeLoop([TensorBoardCallback()], output_dir="out")
        loop.fire("on_train_begin")
        for step in range(1, 11):
            loop.state.global_step = step
            loop.log({"loss": 1.0})
            child = os.fork()
            if child == 0:
                loop.log({"from_the_child": 1.0})
                sys.exit()
            assert os.waitpid(child, 0)[1] == 0
        loop.fire("on_train_end")
        """,
        tmp_path,
    )
    (directory,) = runs.iterdir()
    run = RunOnDisk(directory)
    assert run.scalars("train/loss") == [(step, 1.0) for step in range(1, 11)]
    assert "train/from_the_child" not in run.tags


# ---- a writer of the user's -----------------------------------------------------------------------------------------


def test_a_writer_of_the_users_is_logged_to_and_never_closed(loop, tmp_path, runs):
    writer = SummaryWriter(str(tmp_path / "mine"))
    reporter = TensorBoardCallback(writer)
    training = loop(reporter, num_train_epochs=1)
    training.begin()
    assert reporter.run is writer
    for step in (1, 2):
        training.log_at(step, loss=float(step), phase="warm-up")
        assert RunOnDisk(tmp_path / "mine").scalars("train/loss")[-1] == (step, step)
    training.fire("on_train_end")
    training.evaluate()
    reporter.close()
    writer.add_scalar("mine/score", 0.5, 9)
    writer.close()
    run = RunOnDisk(tmp_path / "mine")
    assert run.scalars("train/loss") == [(1, 1.0), (2, 2.0)]
    assert run.scalars("eval/loss") == [(2, pytest.approx(1 / 3))]
    assert run.scalars("mine/score") == [(9, 0.5)]
    assert run.texts("train/phase") == [(1, "warm-up"), (2, "warm-up")]
    assert run.described("args")["learning_rate"] == 0.1
    assert hparams_table(tmp_path)["mine"]["params"]["learning_rate"] == 0.1
    assert not runs.exists()


def test_tensorboards_own_event_writer_which_torch_uses_gets_messages_of_its_own_kind(loop, tmp_path):
    events = EventFileWriter(str(tmp_path / "mine"))
    file_writer = SimpleNamespace(event_writer=events, get_logdir=events.get_logdir)
    loop(TensorBoardCallback(SimpleNamespace(file_writer=file_writer, flush=events.flush)), num_train_epochs=1).train()
    assert [step for step, _ in RunOnDisk(tmp_path / "mine").scalars("train/loss")] == [1, 2, 3, 4]
    events.close()


def test_a_writer_of_the_users_does_not_travel(loop, tmp_path, runs):
    writer = SummaryWriter(str(tmp_path / "mine"))
    reporter = TensorBoardCallback(tb_writer=writer)
    loop(reporter).begin()
    for twin in (pickle.loads(pickle.dumps(reporter)), copy.deepcopy(reporter)):
        loop(twin).begin()
        assert Path(twin.tracker_id).parent == runs
        twin.close()
    writer.close()


def test_a_writer_that_is_closed_already_is_refused_at_the_start(loop, tmp_path):
    writer = SummaryWriter(str(tmp_path / "mine"))
    writer.close()
    with pytest.raises(StartError, match="takes an open SummaryWriter"):
        loop(TensorBoardCallback(writer)).begin()


def test_a_writer_that_writes_nowhere_is_as_good_as_any(loop, caplog):
    loop(TensorBoardCallback(SummaryWriter("nowhere", write_to_disk=False))).train()
    assert not caplog.records


# ---- full disks -----------------------------------------------------------------------------------------------------


@contextmanager
def room_for(reporter, more):
    """A disk on which files cannot grow beyond what the reporter's file has now, and a few bytes more."""
    (file,) = Path(reporter.tracker_id).iterdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("more", [0, 30, 200])
def test_of_a_batch_that_a_full_disk_does_not_take_nothing_is_written_so_that_it_can_be_sent_again(
    loop, reporter, more
):
    loop(reporter).begin()
    points = [Point({"train/loss": step / 4}, step, None, float(step)) for step in range(8)]
    with room_for(reporter, more), pytest.raises(OSError, match="too large") as refusal:
        reporter.log_points(points)
    reporter.log_points(points)
    assert on_disk(reporter).scalars("train/loss") == [(step, step / 4) for step in range(8)]
    assert reporter.is_passing(refusal.value)


# ---- odd lives ------------------------------------------------------------------------------------------------------


def test_a_log_before_the_training_begins_belongs_to_its_run(loop, reporter):
    training = loop(reporter, num_train_epochs=1)
    training.log({"early": 0.5})
    training.train()
    run = on_disk(reporter)
    assert run.scalars("train/early") == [(0, 0.5)]
    assert len(run.scalars("train/loss")) == 4


def test_it_works_in_a_thread_that_is_not_the_main_one(loop, reporter):
    thread = threading.Thread(target=loop(reporter, num_train_epochs=1).train)
    thread.start()
    thread.join()
    assert len(on_disk(reporter).scalars("train/loss")) == 4


def test_no_thread_and_no_open_file_is_left_behind(loop, reporter):
    threads, files = threading.active_count(), open_event_files()
    loop(reporter, num_train_epochs=1).train()
    assert threading.active_count() == threads
    assert open_event_files() == files


def open_event_files():
    """Those that this process has open, where it can be seen."""
    descriptors = Path("/proc/self/fd")
    links = map(os.path.realpath, descriptors.iterdir()) if descriptors.exists() else ()
    return {link for link in links if "tfevents" in link}


def test_importing_it_imports_no_sdk_and_prints_nothing(tmp_path):
    code = """
        import sys, trackside_tensorboard
        loaded = {"tensorboardX", "tensorboard", "torch", "numpy"} & set(sys.modules)
        assert not loaded, loaded
        """
    assert run_script(code, tmp_path) == ""


def test_the_sdk_of_another_tracker_is_not_imported_with_it(tmp_path):
    (tmp_path / "comet_ml.py").write_text("raise SystemExit('comet_ml is imported')")
    code = """
        import sys
        sys.path.insert(0, ".")
        from trackside_tensorboard import TensorBoardCallback
        TensorBoardCallback().import_sdk()
        print("tensorboardX" in sys.modules, "comet_ml" in sys.modules)
    """
    assert run_script(code, tmp_path) == "True False\n"


def test_the_json_of_a_described_source_holds_every_value(loop, reporter):
    loop(reporter, lr_scheduler_kwargs={"inf": math.inf, "text": "```\nnot the end", "none": None}).train()
    described = on_disk(reporter).described("args")["lr_scheduler_kwargs"]
    assert described == {"inf": math.inf, "text": "```\nnot the end", "none": None}
