"""The state file, both ways."""

import dataclasses
import json
import math

import pytest
import transformers
from tiny import BOTH, trainer

import trackside

CLASSES = {"transformers": transformers.TrainerState, "trackside": trackside.TrainerState}


@pytest.mark.parametrize("writer", BOTH.values(), ids=BOTH)
@pytest.mark.parametrize("reader", CLASSES.values(), ids=CLASSES)
def test_a_state_written_by_either_is_read_by_either(writer, reader, tmp_path):
    loop = trainer(
        writer, tmp_path, [trackside.EarlyStoppingCallback()], metric_for_best_model="loss", load_best_model_at_end=True
    )
    loop.train()
    path = tmp_path / "checkpoint-8" / "trainer_state.json"
    written = json.loads(path.read_text())
    state = reader.load_from_json(path)
    assert {spec.name: getattr(state, spec.name) for spec in dataclasses.fields(state)} == written
    assert state.best_model_checkpoint.endswith("checkpoint-8")


def test_both_have_the_same_fields():
    ours, theirs = ({spec.name for spec in dataclasses.fields(kind)} for kind in reversed(CLASSES.values()))
    assert ours == theirs


@pytest.mark.parametrize("reader", CLASSES.values(), ids=CLASSES)
def test_numbers_that_json_has_not_are_numbers_or_a_word_to_either(reader, tmp_path):
    path = tmp_path / "trainer_state.json"
    history = [{"loss": math.nan, "grad_norm": math.inf, "low": -math.inf, "step": 1}]
    trackside.TrainerState(log_history=history, best_metric=math.inf).save_to_json(path)
    state = reader.load_from_json(path)
    (entry,) = state.log_history
    assert (entry["grad_norm"], entry["low"], state.best_metric) == (math.inf, -math.inf, math.inf)
    assert str(entry["loss"]).lower() == "nan"


def test_their_bare_tokens_are_read(tmp_path):
    path = tmp_path / "trainer_state.json"
    transformers.TrainerState(log_history=[{"loss": math.nan, "grad_norm": math.inf}]).save_to_json(path)
    (entry,) = trackside.TrainerState.load_from_json(path).log_history
    assert math.isnan(entry["loss"])
    assert entry["grad_norm"] == math.inf


@pytest.mark.parametrize("writer", CLASSES.values(), ids=CLASSES)
def test_a_callback_restored_from_either_file_is_the_same(writer, tmp_path):
    stopping = trackside.EarlyStoppingCallback(3, 0.1)
    stopping.early_stopping_patience_counter = 2
    states = trackside.TrainerState(stateful_callbacks=[stopping]).stateful_callbacks
    path = tmp_path / "trainer_state.json"
    writer(stateful_callbacks=states).save_to_json(path)
    for kind in (transformers.EarlyStoppingCallback, trackside.EarlyStoppingCallback):
        saved = trackside.TrainerState.load_from_json(path).stateful_callbacks["EarlyStoppingCallback"]
        restored = kind.from_state(saved)
        assert (restored.early_stopping_patience, restored.early_stopping_patience_counter) == (3, 2)
