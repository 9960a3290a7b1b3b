import multiprocessing

import pytest
import torch
from tiny import At, Items, Net, Told, make_trainer, raiser
from torch import nn
from torch.utils.data import TensorDataset

from trackside_torch import Trainer


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt(), SystemExit(3)])
def test_callbacks_hear_once_of_what_ended_the_training_and_it_goes_on(error):
    told = Told()
    with pytest.raises(type(error)) as raised:
        make_trainer(callbacks=[At(2, raiser(error)), told]).train()
    assert raised.value is error
    assert told.exceptions == [error]
    assert told.ends == []


def test_an_error_in_an_evaluation_within_the_training_is_told_once():
    told = Told()

    def fails(prediction):
        raise ZeroDivisionError

    options = {"evaluation": Items(8), "eval_strategy": "epoch", "compute_metrics": fails}
    with pytest.raises(ZeroDivisionError):
        make_trainer(callbacks=[told], **options).train()
    assert len(told.exceptions) == 1


def test_an_error_before_the_first_step_is_told_too():
    told = Told()
    with pytest.raises(ValueError, match="no such folder"):
        make_trainer(callbacks=[told]).train(resume_from_checkpoint="nowhere")
    assert len(told.exceptions) == 1


def test_an_error_in_an_evaluation_by_hand_just_goes_on():
    told = Told()

    def fails(prediction):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        make_trainer(evaluation=Items(8), compute_metrics=fails, callbacks=[told]).evaluate()
    assert told.exceptions == []


def test_a_callback_that_fails_at_the_end_does_not_hide_the_error():
    class Fails(Told):
        def on_exception(self, *args, **kwargs):
            raise ValueError("second")

    told = Told()
    with pytest.raises(RuntimeError, match="first"):
        make_trainer(callbacks=[At(1, raiser(RuntimeError("first"))), Fails, told]).train()
    assert len(told.exceptions) == 1


def test_the_progress_bar_is_closed_after_an_error():
    trainer = make_trainer(callbacks=[At(2, raiser(KeyboardInterrupt()))], disable_tqdm=False)
    progress = trainer.callback_handler.callbacks[-1]
    progress.bars = True
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert progress.training_bar is None


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_the_workers_of_the_data_end_with_the_training_even_while_the_error_is_kept():
    error = RuntimeError()
    with pytest.raises(RuntimeError) as kept:
        make_trainer(callbacks=[At(1, raiser(error))], dataloader_num_workers=1).train()
    assert kept.value is error
    assert multiprocessing.active_children() == []


def test_a_training_that_ended_in_an_error_can_start_again():
    trainer = make_trainer(callbacks=[At(2, raiser(RuntimeError()))], max_steps=4)
    with pytest.raises(RuntimeError):
        trainer.train()
    assert not trainer.is_in_train
    trainer.remove_callback(At)
    assert trainer.train().global_step == 4


# ---- what cannot work ---------------------------------------------------------------------------------------------


class NoLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x, labels=None):
        return {"logits": self.layer(x), "hidden": x}


class Positional(NoLoss):
    def forward(self, features, labels):
        return (self.layer(features) - labels).mean()


class Bare(NoLoss):
    def forward(self, x, labels=None):
        return self.layer(x)


class Unlabelled(NoLoss):
    def forward(self, x):
        return self.layer(x)


class Renamed(NoLoss):
    def forward(self, a, labels=None):
        return self.layer(a)


class Broken(NoLoss):
    def forward(self, x, labels=None):
        return self.layer(x, 1)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            NoLoss,
            "NoLoss returned no loss but logits, hidden when it was given x, labels of a batch of x, labels; return it",
        ),
        (Bare, "Bare returned no loss but Tensor when it was given x, labels"),
        (Unlabelled, "Unlabelled returned no loss but Tensor when it was given x of a batch of x, labels; return"),
    ],
)
def test_a_model_that_returns_no_loss_is_told_what_it_returned_and_was_given(model, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_trainer(model).train()


@pytest.mark.parametrize("data", [Items(8), [{"x": item["x"]} for item in Items(8)]])
def test_a_batch_that_does_not_fit_the_model_is_shown_beside_what_it_takes(data):
    trainer = make_trainer(Renamed(), data, data)
    for run in (trainer.train, trainer.evaluate):
        with pytest.raises(TypeError, match=r"Renamed\.forward takes a, labels, the batch has x.*; call them the same"):
            run()


def test_a_batch_of_too_few_values_is_counted():
    with pytest.raises(TypeError, match="forward takes features, labels, the batch has 1 values"):
        make_trainer(Positional(), TensorDataset(torch.randn(8, 3))).train()


def test_an_error_in_the_model_itself_stays_what_it_is():
    with pytest.raises(TypeError, match="positional argument"):
        make_trainer(Broken()).train()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"eval_strategy": "epoch"}, 'eval_strategy="epoch", but there is nothing to evaluate on; pass eval_dataset'),
        (
            {"evaluation": Items(8), "eval_strategy": "epoch", "save_strategy": "best"},
            'set metric_for_best_model="loss"',
        ),
        ({"train": iter([1])}, "The training data have no length, so there is no telling how long an epoch is"),
        ({"optimizers": (None, object())}, r"pass both: optimizers=\(optimizer, scheduler\)"),
        ({"report_to": "nobody"}, "nobody"),
    ],
)
def test_what_cannot_work_is_known_when_the_trainer_is_made_and_leaves_no_folder(options, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        make_trainer(**options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("callbacks", ["tensorboard", ["tensorboard"]])
def test_a_tracker_among_the_callbacks_is_told_where_it_belongs(callbacks):
    with pytest.raises(TypeError, match='type report_to="tensorboard"'):
        Trainer(Net(), callbacks=callbacks)


def test_a_trainer_without_a_model_says_so():
    with pytest.raises(ValueError, match=r"needs a model; pass model=\.\.\."):
        Trainer()


@pytest.mark.parametrize(
    ("name", "advice"),
    [("train_datasets", "did you mean train_dataset?"), ("tokenizer", "type processing_class")],
)
def test_a_trainer_says_what_was_meant_by_an_argument_that_it_does_not_take(name, advice):
    with pytest.raises(TypeError) as refusal:
        Trainer(Net(), **{name: None})
    assert str(refusal.value) == f"Trainer has no argument {name} ({advice})."


@pytest.mark.parametrize(
    ("data", "options", "sentence"),
    [
        ([], {}, "yield no batch: there are 0 items for batches of 8 on 1 processes"),
        (Items(7), {"dataloader_drop_last": True}, "7 items for batches of 8 .* dataloader_drop_last=True; give more"),
    ],
)
def test_data_that_yield_no_batch_are_refused_before_the_training_begins(data, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_trainer(train=data, **options).train()


def test_an_empty_evaluation_says_so():
    with pytest.raises(ValueError, match="The data for the evaluation yield no batch"):
        make_trainer(evaluation=[]).evaluate()


def test_training_and_evaluating_on_nothing_say_what_to_pass():
    trainer = make_trainer()
    trainer.train_dataset = None
    with pytest.raises(ValueError, match="nothing to train on; pass train_dataset"):
        trainer.train()
    with pytest.raises(ValueError, match="nothing to evaluate on; pass eval_dataset"):
        trainer.evaluate()


def test_an_output_directory_that_cannot_be_written_is_known_at_once(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(OSError, match=r"output_dir='out' cannot be written to .*; choose another one"):
        make_trainer(Net)
    assert (tmp_path / "out").read_text() == "mine"
