import math

import numpy as np
import pytest
import torch
from tiny import Items, Losses, Net, Scripted, Stream, Told, logged, make_trainer
from torch import nn

from trackside_torch import Trainer


class Echo(nn.Module):
    """Its predictions are its inputs, so that a test sees what arrives and in which order."""

    def forward(self, x, labels=None):
        return {"loss": x.float().mean(), "logits": x} if labels is not None else {"logits": x}


def echo(**options):
    return make_trainer(Echo(), **options)


def rows(*lengths):
    return [{"x": torch.full((length,), float(length)), "labels": length} for length in lengths]


def test_metrics_are_computed_of_all_predictions_and_labels_in_the_order_of_the_data():
    def metrics(prediction):
        predictions, labels = prediction
        assert (predictions is prediction.predictions, labels is prediction.label_ids) == (True, True)
        return {"ordered": bool((predictions[:, 0] == labels).all()), "n": len(labels)}

    data = [{"x": torch.tensor([float(i)]), "labels": i} for i in range(19)]
    found = echo(evaluation=data, compute_metrics=metrics).evaluate()
    assert (found["eval_ordered"], found["eval_n"], found["eval_loss"]) == (True, 19, 9.0)


def test_the_loss_of_an_evaluation_is_the_mean_over_its_items_whatever_the_batches():
    losses = [1.0] * 8 + [10.0]
    trainer = make_trainer(Scripted(), evaluation=Losses(losses))
    assert trainer.evaluate()["eval_loss"] == pytest.approx(2.0)


def test_losses_that_are_not_finite_are_left_out_of_an_evaluation_unless_all_are():
    some = make_trainer(Scripted(), evaluation=Losses([2.0] * 8 + [math.nan] * 8))
    all_of_them = make_trainer(Scripted(), evaluation=Losses([math.nan] * 8))
    assert some.evaluate()["eval_loss"] == 2.0
    assert math.isnan(all_of_them.evaluate()["eval_loss"])


def test_batches_of_different_lengths_are_filled_up_with_minus_100():
    def collate(items):
        return {"x": torch.stack([item["x"] for item in items]), "labels": torch.tensor([i["labels"] for i in items])}

    output = echo(data_collator=collate, per_device_eval_batch_size=1).predict(rows(2, 1, 3))
    assert output.predictions.tolist() == [[2, 2, -100], [1, -100, -100], [3, 3, 3]]
    assert output.label_ids.tolist() == [2, 1, 3]


@pytest.mark.parametrize("every", [None, 1, 2])
def test_nested_outputs_keep_their_shape(every):
    class Nested(nn.Module):
        def forward(self, x, labels=None):
            return {"loss": x.sum(), "logits": (x, {"double": 2 * x}), "other": x + 1}

    logits, other = make_trainer(Nested(), eval_accumulation_steps=every).predict(rows(*[1] * 20)).predictions
    first, second = logits
    assert (first.shape, second["double"].tolist(), other.tolist()) == ((20, 1), [[2.0]] * 20, [[2.0]] * 20)


def test_half_precision_predictions_become_arrays_too():
    predictions = make_trainer(Net, bf16=True).predict(Items(4)).predictions
    assert predictions.dtype == np.float32


def test_predictions_without_labels_have_no_loss():
    output = echo().predict([{"x": torch.ones(1)}] * 3)
    assert output.label_ids is None
    assert set(output.metrics) == {"test_runtime", "test_samples_per_second", "test_steps_per_second"}


def test_predictions_are_never_dropped_with_an_incomplete_batch():
    trainer = echo(dataloader_drop_last=True)
    assert len(trainer.predict(rows(*[1] * 10)).predictions) == 10


def test_outputs_can_be_ignored_and_logits_be_reduced():
    class Two(nn.Module):
        def forward(self, x, labels=None):
            return {"loss": x.sum(), "logits": x, "past": x}

    def first_of(logits, labels):
        return logits[:, 0]

    trainer = make_trainer(Two(), preprocess_logits_for_metrics=first_of)
    assert trainer.predict(rows(2, 2), ignore_keys=["past"]).predictions.tolist() == [2, 2]


def test_an_evaluation_without_metrics_keeps_no_predictions():
    class Watched(Trainer):
        def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
            assert prediction_loss_only
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    assert "eval_loss" in make_trainer(cls=Watched, evaluation=Items(8)).evaluate()


def test_metrics_that_cannot_be_computed_are_named_once_with_what_is_missing(caplog):
    trainer = make_trainer(evaluation=Items(8), label_names=["lab"], compute_metrics=lambda prediction: {"n": 1})
    assert "eval_n" not in trainer.evaluate()
    trainer.evaluate()
    assert caplog.messages == [
        "compute_metrics was not called: no labels (lab) in the batch, which has x, labels; set label_names."
    ]


def test_a_model_that_returns_its_loss_alone_is_named_where_metrics_are_wanted(caplog):
    trainer = make_trainer(Scripted(), evaluation=Losses([1.0] * 8), compute_metrics=lambda prediction: {"n": 1})
    assert "eval_n" not in trainer.evaluate()
    assert "Scripted returned nothing but its loss; return logits beside it." in caplog.text


def test_metrics_that_nobody_expects_are_not_missed(caplog):
    unlabelled = [{"x": item["x"]} for item in Items(8)]
    trainer = make_trainer(evaluation=Items(8), compute_metrics=lambda prediction: {"n": 1}, prediction_loss_only=True)
    trainer.evaluate()
    trainer.predict(unlabelled)
    make_trainer(evaluation=unlabelled).evaluate()
    assert caplog.messages == []


@pytest.mark.parametrize("returned", [0.5, None, [0.5]])
def test_metrics_without_names_are_refused(returned):
    trainer = make_trainer(evaluation=Items(8), compute_metrics=lambda prediction: returned)
    with pytest.raises(
        TypeError, match=r"compute_metrics returned a (float|NoneType|list); return a dict, such as {\"accuracy\": 0.5}"
    ):
        trainer.evaluate()


def test_an_evaluation_set_that_is_not_there_is_named_beside_those_that_are():
    trainer = make_trainer(evaluation={"a": Items(8), "b": Items(4)})
    with pytest.raises(ValueError, match="There is no evaluation set 'c'; there are a, b"):
        trainer.evaluate("c")
    with pytest.raises(ValueError, match="'a'; there are none by name"):
        make_trainer(evaluation=Items(8)).evaluate("a")


def test_several_sets_are_evaluated_under_their_names():
    told = Told()
    trainer = make_trainer(evaluation={"a": Items(8), "b": Items(4)}, callbacks=[told])
    metrics = trainer.evaluate()
    assert {"eval_a_loss", "eval_b_loss"} <= set(metrics)
    assert [set(seen) & {"eval_a_loss", "eval_b_loss"} for seen in told.evaluations] == [
        {"eval_a_loss"},
        {"eval_b_loss"},
    ]


def test_iterable_data_are_evaluated_to_their_end():
    trainer = make_trainer(evaluation=Stream(Items(11)), compute_metrics=lambda p: {"n": len(p.label_ids)})
    assert trainer.evaluate()["eval_n"] == 11


def test_metrics_of_every_kind_of_number_can_be_saved_and_containers_become_lists():
    def metrics(prediction):
        return {"f1": np.float32(0.5), "per": {"a": np.array([1, 2])}, "t": torch.tensor(2)}

    trainer = make_trainer(evaluation=Items(8), compute_metrics=metrics)
    found = trainer.evaluate()
    assert (found["eval_f1"], found["eval_per"], found["eval_t"]) == (0.5, {"a": [1, 2]}, 2)
    assert [type(found[key]) for key in ("eval_f1", "eval_t")] == [float, int]
    trainer.state.save_to_json("state.json")


def test_what_a_callback_does_to_its_dicts_does_not_reach_the_caller():
    class Meddles(Told):
        def on_log(self, args, state, control, logs, **kwargs):
            logs.clear()

        def on_evaluate(self, args, state, control, metrics, **kwargs):
            metrics["eval_loss"] = 99

    trainer = make_trainer(evaluation=Items(8), callbacks=[Meddles])
    assert trainer.evaluate()["eval_loss"] == logged(trainer, "eval_loss")[0] != 99
    assert "train_loss" in trainer.train().metrics


def test_an_evaluation_leaves_the_random_numbers_of_the_training_alone():
    before = torch.get_rng_state()
    trainer = make_trainer(evaluation=Items(8))
    torch.set_rng_state(before)
    trainer.evaluate()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_best_metric_is_that_of_evaluations_in_training_only():
    trainer = make_trainer(evaluation=Items(8), metric_for_best_model="loss")
    trainer.evaluate()
    assert trainer.state.best_metric is None
