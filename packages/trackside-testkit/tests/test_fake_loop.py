"""The loop that only pretends does so in the order, with the files and with the failures of a real one."""

import json

import pytest

from trackside import EarlyStoppingCallback, TrainerCallback, TrainerState
from trackside.callbacks import EVENTS
from trackside_testkit import FakeArguments, FakeLoop, FakeModel


class Witness:
    """Writes down each event with its step, and what came with it."""

    def __init__(self):
        self.events = []
        self.given = []

    def __getattr__(self, event):
        if event not in EVENTS:
            raise AttributeError(event)

        def note(args, state, control, **kwargs):
            self.events.append((event.removeprefix("on_"), state.global_step))
            self.given.append(kwargs)

        return note


def names(witness):
    return [event for event, _ in witness.events]


def test_events_come_in_the_order_of_a_trainer(tmp_path):
    witness = Witness()
    loop = FakeLoop(
        [witness], output_dir=tmp_path, num_train_epochs=1, steps_per_epoch=2, gradient_accumulation_steps=2
    )
    loop.train()
    step = ["step_begin", "substep_end", "pre_optimizer_step", "optimizer_step", "step_end", "log"]
    assert names(witness) == [
        *("init_end", "train_begin", "epoch_begin"),
        *(*step, *step),
        *("epoch_end", "prediction_step", "log", "evaluate", "save"),
        *("log", "train_end"),
    ]


def test_a_step_is_counted_when_it_ends(tmp_path):
    witness = Witness()
    FakeLoop([witness], output_dir=tmp_path, num_train_epochs=1, steps_per_epoch=1).train()
    assert witness.events[3:7] == [("step_begin", 0), ("pre_optimizer_step", 0), ("optimizer_step", 0), ("step_end", 1)]


def test_strategies_of_the_arguments_hold(tmp_path):
    witness = Witness()
    loop = FakeLoop([witness], output_dir=tmp_path, max_steps=5, logging_steps=2, eval_strategy="steps", eval_steps=3)
    loop.train()
    assert [step for event, step in witness.events if event == "evaluate"] == [3, 5]
    assert [entry["step"] for entry in loop.state.log_history if "loss" in entry] == [2, 4]


def test_the_model_and_its_config_come_with_each_event(tmp_path):
    witness, model = Witness(), FakeModel()
    FakeLoop([witness], model=model, output_dir=tmp_path).train()
    assert all(given["model"] is model for given in witness.given)
    assert model.config.to_dict()["hidden_size"] == 32


def test_metrics_are_logged_and_evaluated_as_one_object(tmp_path):
    witness = Witness()
    FakeLoop([witness], output_dir=tmp_path).evaluate()
    *_, log, evaluate = witness.given
    assert log["logs"] is evaluate["metrics"]


def test_a_prediction_is_not_logged(tmp_path):
    witness = Witness()
    metrics = FakeLoop([witness], output_dir=tmp_path).predict()
    assert names(witness) == ["init_end", "prediction_step", "predict"]
    assert witness.given[-1]["metrics"] is metrics


def test_an_error_is_told_and_goes_on(tmp_path):
    witness, error = Witness(), ValueError("no")
    with pytest.raises(ValueError, match="no") as raised:
        FakeLoop([witness], output_dir=tmp_path).train(fail_at=3, exception=error)
    assert raised.value is error
    assert witness.given[-1]["exception"] is error
    assert witness.events[-2:] == [("step_begin", 2), ("exception", 2)]


def test_an_error_in_a_callback_leaves_the_loop_as_well(tmp_path):
    class Fails(TrainerCallback):
        def on_evaluate(self, args, state, control, **kwargs):
            raise KeyboardInterrupt

    witness = Witness()
    with pytest.raises(KeyboardInterrupt):
        FakeLoop([Fails(), witness], output_dir=tmp_path).train()
    assert names(witness)[-1] == "exception"


def test_a_checkpoint_is_a_folder_with_a_real_state(tmp_path):
    FakeLoop(output_dir=tmp_path).train()
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["checkpoint-4", "checkpoint-8"]
    state = TrainerState.load_from_json(tmp_path / "checkpoint-4" / "trainer_state.json")
    assert (state.global_step, state.epoch, state.max_steps) == (4, 1.0, 8)
    assert state.log_history[0] == {"loss": 0.5, "grad_norm": 1.0, "learning_rate": 0.1, "epoch": 0.25, "step": 1}


def test_a_training_goes_on_from_a_checkpoint(tmp_path):
    with pytest.raises(RuntimeError, match="step 7"):
        FakeLoop(output_dir=tmp_path).train(fail_at=7)
    witness = Witness()
    loop = FakeLoop([witness], output_dir=tmp_path)
    loop.train(resume_from=tmp_path / "checkpoint-4")
    assert witness.events[1] == ("train_begin", 4)
    assert [step for event, step in witness.events if event == "step_end"] == [5, 6, 7, 8]
    assert [entry["step"] for entry in loop.state.log_history if "loss" in entry] == list(range(1, 9))


def test_a_finished_training_that_is_resumed_does_no_step(tmp_path):
    FakeLoop(output_dir=tmp_path).train()
    witness = Witness()
    FakeLoop([witness], output_dir=tmp_path).train(resume_from=tmp_path / "checkpoint-8")
    assert names(witness) == ["init_end", "train_begin", "log", "train_end"]


def test_each_training_has_a_state_of_its_own(tmp_path):
    loop = FakeLoop(output_dir=tmp_path)
    loop.train()
    first = loop.state
    loop.train()
    assert loop.state is not first
    assert loop.state.global_step == first.global_step == 8


def test_early_stopping_stops_and_its_count_survives_a_checkpoint(tmp_path):
    class Worsening(FakeLoop):
        def loss(self, step):
            return float(step)

    watched = {"output_dir": tmp_path, "num_train_epochs": 9, "metric_for_best_model": "loss"}
    loop = Worsening([EarlyStoppingCallback(3)], load_best_model_at_end=True, **watched)
    loop.train()
    assert (loop.state.global_step, loop.state.best_metric, loop.state.best_global_step) == (16, 4.0, 4)
    resumed = EarlyStoppingCallback(3)
    loop = Worsening([resumed], load_best_model_at_end=True, **watched)
    loop.train(resume_from=tmp_path / "checkpoint-12")
    assert loop.state.global_step == 16
    assert resumed.early_stopping_patience_counter == 3


def test_other_ranks_train_and_write_nothing(tmp_path):
    witness = Witness()
    loop = FakeLoop([witness], output_dir=tmp_path, rank=3, local_rank=0)
    loop.train()
    assert (loop.state.is_world_process_zero, loop.state.is_local_process_zero) == (False, True)
    assert names(witness)[-1] == "train_end"
    assert list(tmp_path.iterdir()) == []


def test_arguments_can_be_a_users_own(tmp_path):
    class Arguments(FakeArguments):
        pass

    args = Arguments(output_dir=tmp_path, hub_token="hf_secret")
    assert FakeLoop(args=args).args is args
    with pytest.raises(TypeError, match="learning_rat"):
        FakeLoop(learning_rat=0.1)


def test_the_epoch_is_added_to_the_dict_that_is_logged(tmp_path):
    loop, logs = FakeLoop(output_dir=tmp_path), {"loss": 1.0}
    loop.log(logs)
    assert logs == {"loss": 1.0, "epoch": 0}
    assert json.loads(json.dumps(loop.state.log_history)) == [{"loss": 1.0, "epoch": 0, "step": 0}]
