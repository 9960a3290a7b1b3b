import copy
import json
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackside import EarlyStoppingCallback, TrainerControl, TrainerState
from trackside.state import STATE_NAME, export_states
from trackside.values import redact


def refuse(token):
    raise AssertionError(f"{token} is no JSON")


def saved(state, folder):
    path = folder / STATE_NAME
    state.save_to_json(path)
    return path


def same(a, b):
    """Equality of plain data in which nan equals nan."""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def test_non_finite_numbers_survive_in_standard_json(tmp_path):
    history = [{"loss": math.nan, "grad_norm": math.inf, "low": -math.inf, "note": 'NaN and "Infinity"', "step": 1}]
    state = TrainerState(log_history=history, best_metric=-math.inf, trial_params={"x": [math.nan]})
    path = saved(state, tmp_path)
    json.loads(path.read_text(), parse_constant=refuse)
    loaded = TrainerState.load_from_json(path)
    assert same(loaded.log_history, history)
    assert loaded.best_metric == -math.inf
    assert math.isnan(loaded.trial_params["x"][0])


def test_secrets_are_hidden_in_the_file_and_not_in_the_state(tmp_path):
    state = TrainerState(
        log_history=[
            {"note": "cloned with hf_SECRET1", "nested": {"api_key": "plain"}, "loss": 1.0},
            {"loss of hf_SECRET1": 2.0},
        ],
        trial_name="hf_SECRET1",
        trial_params={"api_key": "plain", "lr": 0.1},
    )
    before = copy.deepcopy(state)
    loaded = TrainerState.load_from_json(saved(state, tmp_path))
    assert loaded.log_history == [
        {"note": "cloned with ***", "nested": {"api_key": "***"}, "loss": 1.0},
        {"loss of ***": 2.0},
    ]
    assert loaded.trial_name == "***"
    assert loaded.trial_params == {"api_key": "***", "lr": 0.1}
    assert state == before


def test_what_a_resumed_training_works_with_comes_back_as_it_was(tmp_path):
    (tmp_path / "hf_Llama2Chat").mkdir()
    saved_state = {"args": {"token": "cat"}, "attributes": {}}
    state = TrainerState(
        best_model_checkpoint=str(tmp_path / "hf_Llama2Chat"), stateful_callbacks={"Sampler": saved_state}
    )
    loaded = TrainerState.load_from_json(saved(state, tmp_path))
    assert loaded.best_model_checkpoint == state.best_model_checkpoint
    assert loaded.stateful_callbacks == {"Sampler": saved_state}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text().filter(lambda text: text != "NaN"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(history=st.lists(st.dictionaries(st.text(), PLAIN, max_size=4), max_size=4), best=st.none() | st.floats())
def test_any_history_comes_back_as_it_was_but_for_secrets(tmp_path_factory, history, best):
    path = saved(TrainerState(log_history=history, best_metric=best), tmp_path_factory.mktemp("state"))
    json.loads(path.read_text(), parse_constant=refuse)
    loaded = TrainerState.load_from_json(path)
    assert same(loaded.log_history, redact(history))
    assert same([loaded.best_metric], [best])


@given(st.lists(st.tuples(st.sampled_from(["add", "change", "drop", "save"]), st.integers(0, 9)), max_size=30))
def test_what_was_encoded_before_is_never_stale(tmp_path_factory, moves):
    path = tmp_path_factory.mktemp("state") / STATE_NAME
    state = TrainerState()
    for number, (move, index) in enumerate(moves):
        if move == "add":
            state.log_history.append({"loss": number, "nested": {"values": [number]}})
        elif move == "change" and index < len(state.log_history):
            state.log_history[index]["nested"]["values"].append(number)
        elif move == "drop" and index < len(state.log_history):
            del state.log_history[index]
        else:
            state.save_to_json(path)
            assert json.loads(path.read_text())["log_history"] == state.log_history


def test_values_that_json_does_not_know_are_saved_as_plain_ones(tmp_path):
    history = [{"f1": np.float32(0.5), "per": {"a": np.array([1, 2])}, "n": np.int64(3)}]
    state = TrainerState(log_history=history, total_flos=np.float64(1.0))
    for _ in range(2):
        values = json.loads(saved(state, tmp_path).read_text())
        assert values["log_history"] == [{"f1": 0.5, "per": {"a": [1, 2]}, "n": 3}]


def test_a_history_is_readable_line_by_line(tmp_path):
    text = saved(TrainerState(log_history=[{"step": 1}, {"step": 2}]), tmp_path).read_text()
    assert '    {"step": 1},\n    {"step": 2}\n' in text


def test_a_save_that_fails_leaves_the_old_file_as_it_was(tmp_path, monkeypatch):
    path = saved(TrainerState(global_step=5), tmp_path)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        TrainerState(global_step=10).save_to_json(path)
    assert TrainerState.load_from_json(path).global_step == 5
    assert os.listdir(tmp_path) == [STATE_NAME]


def test_a_state_of_another_version_is_read(tmp_path):
    path = tmp_path / STATE_NAME
    path.write_text('{"global_step": 7, "future_field": 1, "log_history": null}')
    state = TrainerState.load_from_json(path)
    assert state.global_step == 7
    assert state.max_steps == 0
    assert state.log_history == []


def test_the_bare_tokens_of_other_writers_are_read(tmp_path):
    path = tmp_path / STATE_NAME
    path.write_text('{"log_history": [{"loss": NaN, "grad_norm": Infinity}]}')
    entry = TrainerState.load_from_json(path).log_history[0]
    assert math.isnan(entry["loss"])
    assert entry["grad_norm"] == math.inf


@pytest.mark.parametrize("text", ["", '{"global_step": 7, "log_hi', "[1, 2]", "\x00\x01"])
def test_a_file_that_is_no_state_is_refused_with_its_name(tmp_path, text):
    path = tmp_path / STATE_NAME
    path.write_text(text)
    with pytest.raises(ValueError, match=STATE_NAME):
        TrainerState.load_from_json(path)


def test_a_best_checkpoint_that_is_gone_is_forgotten_with_a_warning(tmp_path, caplog):
    path = saved(TrainerState(best_model_checkpoint="/gone/checkpoint-3", best_metric=0.5), tmp_path)
    state = TrainerState.load_from_json(path)
    assert state.best_model_checkpoint is None
    assert state.best_metric == 0.5
    assert "/gone/checkpoint-3" in caplog.text


def test_a_best_checkpoint_that_moved_along_is_found_again(tmp_path):
    for name in ("checkpoint-3", "checkpoint-5"):
        (tmp_path / name).mkdir()
    path = saved(TrainerState(best_model_checkpoint="/gone/checkpoint-3"), tmp_path / "checkpoint-5")
    assert TrainerState.load_from_json(path).best_model_checkpoint == str(tmp_path / "checkpoint-3")


def test_steps_below_one_are_parts_of_the_whole_rounded_up():
    state = TrainerState()
    state.compute_steps(SimpleNamespace(logging_steps=0.1, eval_steps=0.3, save_steps=7), 25)
    assert (state.logging_steps, state.eval_steps, state.save_steps) == (3, 8, 7)


def test_steps_that_are_not_given_keep_their_default():
    state = TrainerState()
    state.compute_steps(SimpleNamespace(logging_steps=10, eval_steps=None, save_steps=20), 100)
    assert state.eval_steps == 500


def test_the_states_of_callbacks_are_kept_by_class_and_come_back():
    stopping, other = EarlyStoppingCallback(3, 0.1), EarlyStoppingCallback(2)
    stopping.early_stopping_patience_counter = 2
    states = TrainerState(stateful_callbacks=[stopping, TrainerControl(should_save=True)]).stateful_callbacks
    assert states["TrainerControl"]["args"]["should_save"] is True
    restored = EarlyStoppingCallback.from_state(states["EarlyStoppingCallback"])
    assert vars(restored) == vars(stopping)
    assert len(export_states([stopping, other])["EarlyStoppingCallback"]) == 2


def test_something_without_a_state_cannot_be_saved_with_a_training():
    with pytest.raises(TypeError, match="object"):
        TrainerState(stateful_callbacks=[object()])
