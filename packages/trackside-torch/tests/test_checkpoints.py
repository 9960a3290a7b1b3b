import json
import logging
import os
import shutil
from pathlib import Path

import pytest
import torch
from tiny import At, Items, Net, Told, make_trainer, same, scores, weights

from trackside import TrainerState
from trackside_torch import get_last_checkpoint

EACH_STEP = {"save_strategy": "steps", "save_steps": 1}
TRACKED = {
    "train": Items(64),
    "evaluation": Items(8),
    "eval_strategy": "steps",
    "eval_steps": 1,
    "metric_for_best_model": "score",
    "max_steps": 5,
}


def checkpoints():
    return sorted(folder.name for folder in Path("out").iterdir())


def test_a_checkpoint_has_all_that_a_training_needs_to_go_on():
    make_trainer(**EACH_STEP, max_steps=1, fp16=True).train()
    assert {file.name for file in Path("out/checkpoint-1").iterdir()} == {
        "pytorch_model.bin",
        "optimizer.pt",
        "scheduler.pt",
        "scaler.pt",
        "rng_state.pth",
        "trainer_state.json",
    }


def test_everything_in_a_checkpoint_loads_without_running_code():
    make_trainer(**EACH_STEP, max_steps=1).train()
    for file in Path("out/checkpoint-1").glob("*.[pb]*"):
        torch.load(file, weights_only=True)


@pytest.mark.parametrize("limit", [None, 0])
def test_without_a_limit_all_checkpoints_stay(limit):
    make_trainer(**EACH_STEP, max_steps=3, save_total_limit=limit).train()
    assert checkpoints() == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]


def test_the_oldest_checkpoints_above_the_limit_are_deleted():
    make_trainer(**EACH_STEP, max_steps=12, save_total_limit=2).train()
    assert checkpoints() == ["checkpoint-11", "checkpoint-12"]


def test_the_best_checkpoint_is_kept_above_the_limit():
    best_first = scores(0.9, 0.5, 0.4, 0.3, 0.2)
    make_trainer(**EACH_STEP, **TRACKED, compute_metrics=best_first, save_total_limit=2).train()
    assert checkpoints() == ["checkpoint-1", "checkpoint-5"]


def test_what_else_is_in_the_folder_is_left_alone():
    Path("out/checkpoint-notes").mkdir(parents=True)
    Path("out/checkpoint-7.txt").touch()
    make_trainer(**EACH_STEP, max_steps=3, save_total_limit=1).train()
    assert checkpoints() == ["checkpoint-3", "checkpoint-7.txt", "checkpoint-notes"]


def test_a_newer_checkpoint_of_a_lower_step_outlives_those_of_an_older_training():
    make_trainer(**EACH_STEP, max_steps=3).train()
    for folder in Path("out").iterdir():
        os.utime(folder, (1, 1))
    make_trainer(**EACH_STEP, max_steps=1, save_total_limit=1).train()
    assert checkpoints() == ["checkpoint-1"]


def test_a_save_that_fails_leaves_no_half_checkpoint_and_loses_none(monkeypatch):
    make_trainer(**EACH_STEP, max_steps=2).train()
    before = Path("out/checkpoint-1/pytorch_model.bin").read_bytes()

    def full(self, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TrainerState, "save_to_json", full)
    with pytest.raises(OSError, match="No space left"):
        make_trainer(**EACH_STEP, max_steps=2, seed_model=1).train()
    assert checkpoints() == ["checkpoint-1", "checkpoint-2"]
    assert Path("out/checkpoint-1/pytorch_model.bin").read_bytes() == before


def test_what_a_killed_save_left_behind_is_no_checkpoint_and_does_not_disturb():
    make_trainer(**EACH_STEP, max_steps=2).train()
    shutil.copytree("out/checkpoint-1", "out/.checkpoint-3.partial")
    assert get_last_checkpoint("out") == "out/checkpoint-2"
    make_trainer(**EACH_STEP, max_steps=3).train(resume_from_checkpoint=True)
    assert checkpoints() == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]


def test_a_checkpoint_is_complete_when_callbacks_hear_of_it():
    found = []

    class Reads(Told):
        def on_save(self, args, state, control, **kwargs):
            state = json.loads(Path(f"out/checkpoint-{state.global_step}/trainer_state.json").read_text())
            found.append(state["global_step"])

    make_trainer(**EACH_STEP, max_steps=2, callbacks=[Reads()]).train()
    assert found == [1, 2]


@pytest.mark.parametrize("save_steps", [1, 2, 4])
def test_the_best_model_is_loaded_at_the_end_even_if_its_step_was_not_to_be_saved(save_steps):
    trained = {}

    class Keeps(Told):
        def on_step_end(self, args, state, control, model, **kwargs):
            trained[state.global_step] = weights(trainer)

    options = {**TRACKED, "save_strategy": "steps", "save_steps": save_steps, "load_best_model_at_end": True}
    trainer = make_trainer(**options, compute_metrics=scores(0.1, 0.2, 0.9, 0.3, 0.4), callbacks=[Keeps()])
    trainer.train()
    assert same(weights(trainer), trained[3])
    assert trainer.state.best_model_checkpoint == "out/checkpoint-3"


def test_nan_is_never_the_best_and_an_infinity_may_be():
    trainer = make_trainer(
        **EACH_STEP, **TRACKED, compute_metrics=scores(*map(float, ["nan", "-inf", "nan", "0.5", "0.6"]))
    )
    best = []
    trainer.add_callback(type("Best", (Told,), {"on_save": lambda *_, **__: best.append(trainer.state.best_metric)}))
    trainer.train()
    assert best == [None, float("-inf"), float("-inf"), 0.5, 0.6]


def test_a_callback_and_the_best_strategy_both_get_their_saves():
    told = Told()

    class Wants(Told):
        def on_evaluate(self, args, state, control, **kwargs):
            control.should_save = state.global_step == 4

    improving_twice = scores(0.1, 0.9, 0.3, 0.4, 0.5)
    make_trainer(**TRACKED, save_strategy="best", compute_metrics=improving_twice, callbacks=[Wants, told]).train()
    assert told.saves == [1, 2, 4]


def test_a_metric_that_is_not_there_is_named_at_the_first_evaluation_with_those_that_are():
    trainer = make_trainer(**{**TRACKED, "metric_for_best_model": "f1"}, compute_metrics=scores(0.5))
    with pytest.raises(
        KeyError, match=r"metric_for_best_model='f1' .* choose one of epoch, eval_loss, .*eval_score"
    ) as raised:
        trainer.train()
    assert str(raised.value).startswith("metric_for_best_model=")  # and no quotes around it
    assert trainer.state.global_step == 1


def test_a_best_checkpoint_that_somebody_deleted_does_not_end_the_training_in_an_error(caplog):
    def delete(control):
        shutil.rmtree("out/checkpoint-1")

    falling = scores(0.9, 0.5, 0.4, 0.3, 0.2)
    options = {**TRACKED, **EACH_STEP, "load_best_model_at_end": True, "save_total_limit": 1}
    trainer = make_trainer(**options, compute_metrics=falling, callbacks=[At(5, delete)])
    trainer.train()
    assert "the model is that of the last step" in caplog.text
    assert "checkpoint-5" in checkpoints()


class Pretrained(Net):
    """Saves and loads itself, as models of other libraries do."""

    def save_pretrained(self, folder):
        torch.save(self.state_dict(), Path(folder) / "own.bin")

    @classmethod
    def from_pretrained(cls, folder):
        model = cls()
        model.load_state_dict(torch.load(Path(folder) / "own.bin"))
        return model


def test_a_model_that_can_save_and_load_itself_does():
    whole = make_trainer(Pretrained, **EACH_STEP, max_steps=4)
    whole.train()
    assert Path("out/checkpoint-2/own.bin").exists()
    assert not Path("out/checkpoint-2/pytorch_model.bin").exists()
    resumed = make_trainer(Pretrained, seed_model=1, max_steps=4)
    resumed.train(resume_from_checkpoint="out/checkpoint-2")
    assert same(weights(resumed), weights(whole))


def test_the_processing_class_is_saved_beside_the_model():
    class Tokenizer:
        def save_pretrained(self, folder):
            (Path(folder) / "vocabulary.txt").touch()

    make_trainer(processing_class=Tokenizer()).save_model("elsewhere")
    assert {file.name for file in Path("elsewhere").iterdir()} == {"pytorch_model.bin", "vocabulary.txt"}


def test_the_states_of_all_callbacks_are_restored_on_request(caplog):
    class Counter(Told):
        def __init__(self, start=0):
            super().__init__()
            self.count = start

        def on_step_end(self, args, state, control, **kwargs):
            self.count += 1

        def state(self):
            return {"args": {"start": 0}, "attributes": {"count": self.count}}

    def counted(**options):
        trainer = make_trainer(callbacks=[Counter], max_steps=4, **options)
        with caplog.at_level(logging.ERROR):
            trainer.train("out/checkpoint-2")
        return trainer.pop_callback(Counter).count

    make_trainer(callbacks=[Counter], **EACH_STEP, max_steps=2).train()
    assert counted(restore_callback_states_from_checkpoint=True) == 4
    assert counted() == 2
