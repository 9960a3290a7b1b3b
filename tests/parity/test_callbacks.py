"""Callbacks of theirs inside our Trainer, and of ours inside theirs."""

import pytest
import transformers
from tiny import BOTH, trainer
from transformers.trainer_callback import DefaultFlowCallback as TheirDefaultFlow

import trackside
import trackside_torch


class Scripted:
    """Scores one after the other, the last one repeated."""

    def __init__(self, *scores):
        self.scores = list(scores)

    def __call__(self, prediction):
        return {"score": self.scores.pop(0) if len(self.scores) > 1 else self.scores[0]}


COUNTED = {
    "args": {"early_stopping_patience": 2, "early_stopping_threshold": 0.0},
    "attributes": {"early_stopping_patience_counter": 2},
}


@pytest.mark.parametrize("stopping", [transformers.EarlyStoppingCallback, trackside.EarlyStoppingCallback])
@pytest.mark.parametrize("api", BOTH.values(), ids=BOTH)
def test_early_stopping_of_either_stops_either(api, stopping, tmp_path):
    loop = trainer(
        api,
        tmp_path,
        [stopping(early_stopping_patience=2)],
        Scripted(0.5, 0.6, 0.4, 0.55, 0.9),
        num_train_epochs=9,
        metric_for_best_model="score",
        greater_is_better=True,
        load_best_model_at_end=True,
    )
    loop.train()
    assert loop.state.global_step == 16
    assert loop.state.best_metric == 0.6
    assert loop.state.best_global_step == 8
    is_saved = api is trackside_torch or stopping is transformers.EarlyStoppingCallback
    assert loop.state.stateful_callbacks.get("EarlyStoppingCallback") == (COUNTED if is_saved else None)


def listening(base, heard):
    """A user's subclass that writes down each event and the names of what it is given."""

    def listen(event):
        def handle(self, args, state, control, **kwargs):
            given = sorted(name for name, value in kwargs.items() if value is not None)
            heard.append((event, state.global_step, given))

        return handle

    events = [name for name in dir(transformers.TrainerCallback) if name.startswith("on_")]
    return type("Listening", (base,), {event: listen(event) for event in events})()


@pytest.mark.parametrize("base", [transformers.TrainerCallback, trackside.TrainerCallback])
def test_a_users_callback_of_either_hears_the_same_in_both(base, tmp_path):
    told = []
    for name, api in BOTH.items():
        heard = []
        loop = trainer(api, tmp_path / name, [listening(base, heard)], gradient_accumulation_steps=2)
        loop.train()
        loop.predict(loop.eval_dataset)
        told.append(heard)
    assert told[0] == told[1]
    assert {event for event, _, _ in told[0]} >= {
        "on_init_end",
        "on_substep_end",
        "on_evaluate",
        "on_predict",
        "on_save",
    }


def test_their_default_flow_may_take_the_place_of_ours(tmp_path, caplog):
    loop = trainer(trackside_torch, tmp_path, [])
    loop.remove_callback(trackside.DefaultFlowCallback)
    loop.add_callback(TheirDefaultFlow)
    loop.train()
    assert loop.state.global_step == 8
    assert [entry["step"] for entry in loop.state.log_history if "loss" in entry] == list(range(1, 9))


def test_our_console_callbacks_work_in_their_trainer(tmp_path, capsys):
    loop = trainer(transformers, tmp_path, [trackside.ProgressCallback()])
    loop.remove_callback(transformers.PrinterCallback)
    loop.train()
    out, err = capsys.readouterr()
    assert "step 8/8  loss " in out
    assert "it/s" not in err
