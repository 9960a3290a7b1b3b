"""Our reporters inside `transformers.Trainer`."""

import pytest
import transformers
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import BOTH, trainer
from torch.utils.tensorboard import SummaryWriter
from transformers.trainer_utils import get_last_checkpoint

import trackside
from trackside.mapping import grouped
from trackside_tensorboard import TensorBoardCallback
from trackside_testkit import RecordingReporter

SUMMARY = {"train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos"}


def history(state):
    """The points that a log history holds, by our names."""
    points = {}
    for entry in state.log_history:
        for name, value in entry.items():
            if name not in SUMMARY | {"step"}:
                points.setdefault(grouped(name), []).append((entry["step"], value))
    return points


@pytest.mark.parametrize("api", BOTH.values(), ids=BOTH)
def test_all_that_is_logged_is_reported(api, tmp_path):
    reporters = [RecordingReporter(), RecordingReporter()]
    loop = trainer(api, tmp_path, reporters)
    loop.train()
    for reporter in reporters:
        assert reporter.points == history(loop.state)
        assert reporter.params["learning_rate"] == 0.1
        assert reporter.params["degree"] == 1
        assert set(reporter.summary) == {grouped(name) for name in SUMMARY}
        assert [artifact.name for artifact in reporter.artifacts] == ["checkpoint-4", "checkpoint-8"]
        assert reporter.statuses == ["finished"]
    assert reporters[0].runs[0].id == reporters[1].runs[0].id


@pytest.mark.parametrize("api", BOTH.values(), ids=BOTH)
def test_evaluations_before_and_after_land_in_the_run(api, tmp_path):
    reporter = RecordingReporter()
    loop = trainer(api, tmp_path, [reporter])
    loop.evaluate()
    loop.train()
    loop.evaluate()
    loop.predict(loop.eval_dataset)
    assert len({run.id for run in reporter.runs}) == 1
    assert [step for step, _ in reporter.points["eval/loss"]] == [0, 4, 8, 8]
    assert [step for step, _ in reporter.points["test/loss"]] == [8]


@pytest.mark.parametrize("api", BOTH.values(), ids=BOTH)
def test_each_training_is_a_run_of_its_own(api, tmp_path):
    reporter = RecordingReporter()
    for _ in range(2):
        trainer(api, tmp_path, [reporter]).train()
    assert len({run.id for run in reporter.runs}) == 2


@pytest.mark.parametrize("first", BOTH.values(), ids=BOTH)
def test_a_checkpoint_carries_the_run_to_a_new_trainer(first, tmp_path):
    before, after = RecordingReporter(), RecordingReporter()
    trainer(first, tmp_path, [before]).train()
    trainer(first, tmp_path, [after], num_train_epochs=3).train(resume_from_checkpoint=get_last_checkpoint(tmp_path))
    (run,) = after.runs
    assert run.tracker_id == before.tracker_id
    assert (run.name, run.step) == (before.runs[0].name, 8)
    assert [step for step, _ in after.points["train/loss"]] == [9, 10, 11, 12]


def test_a_tracker_that_fails_never_ends_their_training(tmp_path, caplog):
    reporter = RecordingReporter()
    for operation in ("log_points", "log_params", "log_artifact", "finish"):
        reporter.fail(operation)
    loop = trainer(transformers, tmp_path, [reporter])
    loop.train()
    assert loop.state.global_step == 8
    assert caplog.text.count("log_points failed") == 1


def test_a_training_of_theirs_that_was_left_by_an_error_has_failed(tmp_path):
    class Failing(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 3:
                raise RuntimeError("in a step")

    reporter = RecordingReporter()
    loop = trainer(transformers, tmp_path, [reporter, Failing])
    with pytest.raises(RuntimeError, match="in a step"):
        loop.train()
    loop.remove_callback(Failing)
    loop.train()
    assert reporter.statuses == ["failed", "finished"]


def test_what_is_chosen_by_name_reports_to_real_files(tmp_path):
    reporters = trackside.resolve({"tensorboard": {"logging_dir": str(tmp_path / "runs")}})
    assert [type(reporter) for reporter in reporters] == [TensorBoardCallback]
    loop = trainer(transformers, tmp_path / "out", reporters)
    loop.train()
    (folder,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    reported = {key: [(event.step, event.value) for event in events.Scalars(key)] for key in events.Tags()["scalars"]}
    for key, points in history(loop.state).items():
        assert [step for step, _ in reported[key]] == [step for step, _ in points]
        assert [value for _, value in reported[key]] == pytest.approx([value for _, value in points])


def test_a_writer_of_torch_is_logged_to_and_never_closed(tmp_path):
    writer = SummaryWriter(str(tmp_path / "mine"))
    loop = trainer(transformers, tmp_path / "out", [TensorBoardCallback(writer)])
    loop.train()
    writer.add_scalar("mine/score", 0.5, 9)
    writer.close()
    events = EventAccumulator(str(tmp_path / "mine"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 9))
    assert [event.value for event in events.Scalars("mine/score")] == [0.5]


def test_state_keeps_only_the_ids_that_we_add(tmp_path):
    with_us, without_us = (
        trainer(transformers, tmp_path / name, callbacks)
        for name, callbacks in (("with", [RecordingReporter()]), ("without", []))
    )
    for loop in (with_us, without_us):
        loop.train()
    added = set(with_us.state.stateful_callbacks) - set(without_us.state.stateful_callbacks)
    assert added == {"trackside"}
    assert vars(with_us.control) == vars(without_us.control)
    assert with_us.state.global_step == without_us.state.global_step
