import json
import logging
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import (
    At,
    Items,
    Losses,
    Net,
    Scripted,
    Stream,
    logged,
    make_trainer,
    raiser,
    same,
    scores,
    stop_training,
    weights,
)

from trackside import EarlyStoppingCallback
from trackside_torch import get_last_checkpoint

EACH_STEP = {"logging_strategy": "steps", "logging_steps": 1, "save_strategy": "steps", "save_steps": 3}


class NoisyStream(Stream):
    def __iter__(self):
        for item in super().__iter__():
            yield {**item, "x": item["x"] + random.random() + np.random.rand()}


def dropping():
    return Net(dropout=0.3)


KINDS = {
    "map": {"train": Items(32)},
    "noise": {"train": Items(32, noise=0.1)},
    "workers": {"train": Items(32, noise=0.1), "dataloader_num_workers": 2},
    "accumulated": {"train": Items(32), "gradient_accumulation_steps": 3},
    "stream": {"train": NoisyStream(Items(32)), "max_steps": 12},
    "second-pass-of-a-stream": {"train": NoisyStream(Items(20)), "max_steps": 12},
    "evaluated": {"train": Items(32), "evaluation": Items(8, noise=0.1), "eval_strategy": "steps", "eval_steps": 2},
    "half": {"train": Items(32), "fp16": True},
}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stop", [6, 7, 8])
def test_an_interrupted_training_goes_on_as_if_it_had_not_been(kind, stop):
    options = {
        **EACH_STEP,
        "per_device_train_batch_size": 4,
        "num_train_epochs": 3,
        "learning_rate": 0.01,
        **KINDS[kind],
    }
    options["save_steps"] = stop
    whole = make_trainer(dropping, **options)
    whole.train()

    shutil.rmtree("out")
    cut = make_trainer(dropping, **options, callbacks=[At(stop + 1, raiser(RuntimeError("cut")))])
    with pytest.raises(RuntimeError, match="cut"):
        cut.train()
    resumed = make_trainer(dropping, seed_model=1, **options)
    resumed.train(resume_from_checkpoint=True)

    assert resumed.state.global_step == whole.state.global_step
    assert logged(resumed) == logged(whole)
    assert logged(resumed, "eval_loss") == logged(whole, "eval_loss")
    assert logged(resumed, "epoch") == logged(whole, "epoch")
    assert same(weights(resumed), weights(whole))


def test_the_first_log_after_a_resume_has_the_loss_and_the_epoch_that_are_right():
    options = {"logging_strategy": "steps", "logging_steps": 10, "save_strategy": "steps", "save_steps": 15}
    options |= {"per_device_train_batch_size": 1, "num_train_epochs": 2}
    make_trainer(Scripted(), Losses([2.0] * 20), callbacks=[At(15, stop_training)], **options).train()
    resumed = make_trainer(Scripted(), Losses([2.0] * 20), **options)
    output = resumed.train(resume_from_checkpoint="out/checkpoint-15")
    assert [
        (entry["step"], entry["loss"], entry["epoch"]) for entry in resumed.state.log_history if "loss" in entry
    ] == [
        (10, 2.0, 0.5),
        (20, 2.0, 1.0),
        (30, 2.0, 1.5),
        (40, 2.0, 2.0),
    ]
    assert output.training_loss == 2.0


def test_floating_point_operations_are_counted_on():
    class Counted(Net):
        def floating_point_ops(self, inputs):
            return 1

    options = {"save_strategy": "steps", "save_steps": 2, "num_train_epochs": 1}
    make_trainer(Counted(), **options).train()
    assert json.loads(Path("out/checkpoint-2/trainer_state.json").read_text())["total_flos"] == 2
    resumed = make_trainer(Counted(), **options)
    assert resumed.train("out/checkpoint-2").metrics["total_flos"] == 4


STOPPING = {
    "train": Items(64),
    "evaluation": Items(8),
    "eval_strategy": "steps",
    "eval_steps": 1,
    "save_strategy": "steps",
    "save_steps": 1,
    "metric_for_best_model": "score",
    "load_best_model_at_end": True,
}


def stopping(patience, *values):
    return make_trainer(
        callbacks=[EarlyStoppingCallback(early_stopping_patience=patience)], compute_metrics=scores(*values), **STOPPING
    )


def test_early_stopping_goes_on_counting_where_it_was():
    first = stopping(3, 0.9, 0.5, 0.5, 0.5)
    first.add_callback(At(4, raiser(KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        first.train()
    resumed = stopping(3, 0.5)
    assert resumed.train(resume_from_checkpoint=True).global_step == 4
    assert resumed.state.best_metric == 0.9


def test_a_training_says_where_it_goes_on_why_it_stops_and_which_model_it_keeps(capsys):
    first = stopping(2, 0.9, 0.5)
    first.add_callback(At(2, raiser(KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        first.train()
    assert capsys.readouterr().err == ""
    stopping(2, 0.5, 0.5).train(resume_from_checkpoint=True)
    assert capsys.readouterr().err.splitlines() == [
        "Resuming from checkpoint-1 at step 1 of 24",
        "Stopped at step 3: eval_score has not improved for 2 evaluations (best 0.9 at step 1).",
        "Loaded the best model: checkpoint-1",
    ]


def test_a_training_that_early_stopping_ended_does_not_go_on():
    stopping(2, 0.9, 0.5, 0.5).train()
    resumed = stopping(2)
    output = resumed.train(resume_from_checkpoint=True)
    assert (output.global_step, resumed.state.best_metric) == (3, 0.9)
    best = torch.load("out/checkpoint-1/pytorch_model.bin")
    assert same(weights(resumed), list(best.values()))


def test_with_more_patience_it_goes_on():
    stopping(2, 0.9, 0.5, 0.5).train()
    assert stopping(4, 0.5, 0.5).train(resume_from_checkpoint=True).global_step == 5


def test_a_worse_score_after_a_resume_does_not_replace_the_best():
    options = {**STOPPING, "greater_is_better": False}
    make_trainer(compute_metrics=scores(0.3), callbacks=[At(1, stop_training)], **options).train()
    resumed = make_trainer(compute_metrics=scores(0.5), callbacks=[At(2, stop_training)], **options)
    resumed.train(resume_from_checkpoint=True)
    assert (resumed.state.best_metric, resumed.state.best_global_step) == (0.3, 1)


def test_a_best_checkpoint_that_is_gone_is_forgotten_with_a_warning(caplog):
    make_trainer(compute_metrics=scores(0.9, 0.5), callbacks=[At(2, stop_training)], **STOPPING).train()
    shutil.rmtree("out/checkpoint-1")
    resumed = make_trainer(compute_metrics=scores(0.5), callbacks=[At(3, stop_training)], **STOPPING)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.best_model_checkpoint is None
    assert "is gone" in caplog.text
    assert "the model is that of the last step" in caplog.text


def test_a_training_that_has_all_its_steps_is_not_trained_on(capsys):
    options = {"num_train_epochs": 1.5, "save_strategy": "steps", "save_steps": 100}
    make_trainer(**options).train()
    resumed = make_trainer(**options)
    before = weights(make_trainer())
    assert resumed.train(resume_from_checkpoint=True).global_step == 6
    assert not same(weights(resumed), before)
    assert capsys.readouterr().err == "Resuming from checkpoint-6 at step 6 of 6: nothing is left to train\n"


def test_a_resumed_training_that_trains_nothing_leaves_the_logged_results_as_they_are():
    options = {"save_strategy": "epoch", "num_train_epochs": 1}
    make_trainer(**options).train()
    resumed = make_trainer(**options)
    resumed.train(resume_from_checkpoint=True)
    assert logged(resumed, "train_loss") == []
    assert resumed.state.log_history[-1] == {"total_flos": 0, "epoch": 1.0, "step": 4}


def test_a_checkpoint_cut_in_half_is_passed_over_for_the_one_before(caplog):
    make_trainer(**EACH_STEP, num_train_epochs=2).train()
    state = Path("out/checkpoint-8/trainer_state.json")
    state.write_text(state.read_text()[: state.stat().st_size // 2])
    weights_file = Path("out/checkpoint-6/pytorch_model.bin")
    weights_file.write_bytes(weights_file.read_bytes()[:-100])
    assert get_last_checkpoint("out") == "out/checkpoint-3"
    assert "out/checkpoint-8 is passed over: its trainer_state.json is cut off." in caplog.messages
    assert "out/checkpoint-6 is passed over: its pytorch_model.bin is cut off." in caplog.messages
    assert make_trainer(num_train_epochs=2).train(resume_from_checkpoint=True).global_step == 8


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (True, "there is no whole checkpoint in 'out'"),
        ("out/checkpoint-9", "'out/checkpoint-9': there is no such folder; there is no other checkpoint beside it."),
    ],
)
def test_a_missing_checkpoint_is_one_clear_error(asked, sentence):
    with pytest.raises(ValueError, match=r"start anew|no other") as refusal:
        make_trainer().train(resume_from_checkpoint=asked)
    assert sentence in str(refusal.value)


def test_an_error_names_the_checkpoint_that_could_be_taken_instead():
    make_trainer(**EACH_STEP).train()
    Path("out/checkpoint-12/optimizer.pt").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"its optimizer.pt is cut off; resume from 'out/checkpoint-9' instead"):
        make_trainer().train(resume_from_checkpoint="out/checkpoint-12")


def test_a_checkpoint_of_another_model_is_refused_and_changes_nothing():
    make_trainer(**EACH_STEP).train()
    on_disk = sorted(file.name for file in Path("out").rglob("*"))
    other = make_trainer(Net(width=9))
    before = weights(other)
    with pytest.raises(ValueError, match=r"another model than this Net: its 'layers.0.weight' has the shape \(8, 3\)"):
        other.train(resume_from_checkpoint=True)
    with pytest.raises(ValueError, match="another model than this Scripted: it lacks 'weight'"):
        make_trainer(Scripted(), Losses([1.0])).train(resume_from_checkpoint=True)
    assert same(weights(other), before)
    assert sorted(file.name for file in Path("out").rglob("*")) == on_disk


def test_a_checkpoint_of_another_optimizer_is_refused():
    make_trainer(**EACH_STEP).train()
    with pytest.raises(ValueError, match=r"optimizer.pt' is the state of another one than this AdamW"):
        make_trainer(weight_decay=0.1).train(resume_from_checkpoint=True)


def test_a_checkpoint_of_the_model_alone_starts_the_rest_anew_and_says_so(caplog):
    make_trainer(**EACH_STEP, save_only_model=True).train()
    assert {file.name for file in Path("out/checkpoint-3").iterdir()} == {"pytorch_model.bin", "trainer_state.json"}
    with caplog.at_level(logging.WARNING):
        make_trainer(num_train_epochs=4).train(resume_from_checkpoint=True)
    assert "no optimizer.pt, so the AdamW starts anew" in caplog.text
    assert "no random states" in caplog.text
