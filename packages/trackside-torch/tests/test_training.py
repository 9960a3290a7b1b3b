import math

import pytest
import torch
from tiny import At, Items, Losses, Net, Scripted, Stream, Told, logged, make_trainer, same, weights
from torch import nn
from torch.utils.data import TensorDataset

from trackside import Reporter, TrainerCallback
from trackside_torch import Trainer


def test_training_lowers_the_loss():
    trainer = make_trainer(learning_rate=0.05, num_train_epochs=20, logging_strategy="epoch")
    trainer.train()
    losses = logged(trainer)
    assert losses[-1] < losses[0] / 4


def test_the_train_metrics_say_what_was_done():
    trainer = make_trainer(Scripted(), Losses([2.0] * 12), num_train_epochs=2, per_device_train_batch_size=4)
    output = trainer.train()
    metrics = output.metrics
    assert (output.global_step, output.training_loss, metrics["train_loss"]) == (6, 2.0, 2.0)
    assert (metrics["total_flos"], metrics["epoch"]) == (0, 2.0)
    assert metrics["train_samples_per_second"] == pytest.approx(24 / metrics["train_runtime"], rel=0.1)
    assert metrics["train_steps_per_second"] == pytest.approx(6 / metrics["train_runtime"], rel=0.1)
    assert trainer.state.log_history[-1] == {**metrics, "step": 6}


def test_a_nan_among_losses_of_2_leaves_the_logged_mean_at_2():
    losses = [2.0] * 6 + [math.nan] + [2.0] * 3
    options = {"per_device_train_batch_size": 1, "logging_strategy": "steps", "logging_steps": 10}
    trainer = make_trainer(Scripted(), Stream(Losses(losses)), max_steps=10, learning_rate=0.0, **options)
    trainer.train()
    assert logged(trainer) == [2.0]


def test_accumulated_batches_train_as_one_large_batch_does():
    large = make_trainer(per_device_train_batch_size=16, num_train_epochs=2, learning_rate=0.01)
    small = make_trainer(
        per_device_train_batch_size=4, gradient_accumulation_steps=4, num_train_epochs=2, learning_rate=0.01
    )
    large.train()
    small.train()
    assert small.state.global_step == large.state.global_step
    for a, b in zip(weights(small), weights(large), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_last_step_with_fewer_batches_is_not_scaled_down():
    logs = {"logging_strategy": "steps", "logging_steps": 1}
    trainer = make_trainer(
        Scripted(),
        Losses([2.0] * 7),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=3,
        num_train_epochs=2,
        **logs,
    )
    trainer.train()
    assert logged(trainer) == pytest.approx([2.0] * 6)


def test_gradients_of_a_step_that_was_given_up_do_not_leak_into_the_next_one():
    class FirstBatchOnly(TrainerCallback):
        """Ends the first epoch in the middle of its first step."""

        def on_substep_end(self, args, state, control, **kwargs):
            control.should_epoch_stop = state.global_step == 0 and not getattr(self, "was_here", False)
            self.was_here = True

    class Gradients(TrainerCallback):
        def __init__(self):
            self.first = None

        def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
            if self.first is None:
                self.first = [parameter.grad.clone() for parameter in model.parameters()]

    data = [Items(32)[i] for i in [0] * 32]
    found = []
    for callbacks in ([], [FirstBatchOnly()]):
        seen = Gradients()
        make_trainer(
            train=data, callbacks=[*callbacks, seen], gradient_accumulation_steps=2, max_grad_norm=0, num_train_epochs=2
        ).train()
        found.append(seen.first)
    assert same(*found)


@pytest.mark.parametrize(("limit", "expected"), [(0.1, 0.1), (0, None), (None, None)])
def test_gradients_are_clipped_after_their_norm_is_taken(limit, expected):
    class Norms(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
            self.norm = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm().item()

    norms = Norms()
    logs = {"logging_strategy": "steps", "logging_steps": 1}
    trainer = make_trainer(max_grad_norm=limit, max_steps=1, callbacks=[norms], **logs)
    trainer.train()
    (before,) = logged(trainer, "grad_norm")
    assert before > 0.2
    assert norms.norm == pytest.approx(expected or before, rel=1e-4)


def test_a_given_optimizer_and_schedule_are_used():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    logs = {"logging_strategy": "steps", "logging_steps": 1}
    trainer = make_trainer(model, optimizers=(optimizer, schedule), max_steps=4, **logs)
    trainer.train()
    assert trainer.optimizer is optimizer
    assert logged(trainer, "learning_rate") == pytest.approx([0.5, 0.5, 0.05, 0.05])


def test_a_given_optimizer_alone_gets_the_schedule_of_the_arguments():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    trainer = make_trainer(model, optimizers=(optimizer, None), max_steps=2, logging_strategy="steps", logging_steps=1)
    trainer.train()
    assert logged(trainer, "learning_rate") == [1.0, 0.5]


def test_a_schedule_that_follows_a_metric_moves_at_evaluations():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0)
    scores = iter([0.5, 0.4, 0.3])
    make_trainer(
        model,
        evaluation=Items(8),
        optimizers=(optimizer, schedule),
        eval_strategy="epoch",
        metric_for_best_model="score",
        compute_metrics=lambda prediction: {"score": next(scores)},
    ).train()
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_weights_decay_in_matrices_only():
    trainer = make_trainer(weight_decay=0.1)
    groups = trainer.create_optimizer().param_groups
    assert {group["weight_decay"]: {p.ndim for p in group["params"]} for group in groups} == {0.1: {2}, 0.0: {1}}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_the_forward_pass_runs_in_half_precision_and_the_weights_stay_whole(precision):
    class Seen(Net):
        def forward(self, x, labels=None):
            outputs = super().forward(x, labels)
            self.dtype = outputs["logits"].dtype
            return outputs

    trainer = make_trainer(
        Seen(), num_train_epochs=10, learning_rate=0.05, logging_strategy="epoch", **{precision: True}
    )
    trainer.train()
    assert trainer.model.dtype == {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    losses = logged(trainer)
    assert losses[-1] < losses[0]
    assert math.isfinite(losses[-1])


def test_a_step_that_the_scaler_skips_does_not_move_the_schedule():
    class Steep(Scripted):
        """Its gradient is what its labels are."""

        def forward(self, labels):
            return {"loss": (self.weight * labels).mean()}

    options = {"per_device_train_batch_size": 1, "logging_strategy": "steps", "logging_steps": 1, "learning_rate": 0.3}
    trainer = make_trainer(Steep, Stream(Losses([3e38, 1.0, 1.0])), fp16=True, max_steps=3, **options)
    trainer.train()
    assert trainer.state.global_step == 3
    assert logged(trainer, "learning_rate") == pytest.approx([0.3, 0.3, 0.2])


def test_the_model_is_compiled_on_request():
    trainer = make_trainer(torch_compile=True, torch_compile_backend="eager", max_steps=2)
    plain = make_trainer(max_steps=2)
    trainer.train()
    plain.train()
    assert isinstance(trainer.model_wrapped, torch._dynamo.OptimizedModule)
    assert same(weights(trainer), weights(plain))


def test_the_same_seed_gives_the_same_training_and_another_one_another_order():
    def losses(**seeds):
        trainer = make_trainer(lambda: Net(dropout=0.5), logging_strategy="steps", logging_steps=1, **seeds)
        trainer.train()
        return logged(trainer)

    assert losses() == losses()
    assert losses() != losses(data_seed=1)
    assert losses() != losses(seed=1)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_data_loaded_by_workers_give_the_same_training():
    alone, helped = (make_trainer(dataloader_num_workers=workers) for workers in (0, 1))
    alone.train()
    helped.train()
    assert same(weights(alone), weights(helped))


class Positional(nn.Module):
    """Takes the tensors of a `TensorDataset` by position and returns a tuple."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, features, labels):
        logits = self.layer(features).squeeze(-1)
        return ((logits - labels) ** 2).mean(), logits


def test_batches_may_be_tuples_and_so_may_what_a_model_returns():
    data = TensorDataset(torch.randn(16, 3), torch.randn(16))
    trainer = make_trainer(
        Positional(), data, data, compute_metrics=lambda p: {"n": len(p.predictions) + len(p.label_ids)}
    )
    trainer.train()
    assert trainer.evaluate()["eval_n"] == 32


def test_a_loss_of_ones_own_gets_batches_as_they_are():
    class Squared(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            features, targets = inputs
            outputs = model(features)
            loss = ((outputs.squeeze(-1) - targets) ** 2).mean()
            return (loss, outputs) if return_outputs else loss

    data = TensorDataset(torch.randn(16, 3), torch.arange(16.0))
    seen = []
    options = {"compute_metrics": lambda p: seen.append((p.predictions.shape, p.label_ids.tolist())) or {}}
    trainer = make_trainer(lambda: nn.Linear(3, 1), data, data, cls=Squared, **options)
    assert trainer.train().training_loss > 0
    assert trainer.evaluate()["eval_loss"] > 0
    assert seen == [((16, 1), list(range(16)))]


def test_a_loss_of_ones_own_is_used_in_training_and_evaluation():
    class Seven(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            outputs = model(inputs["x"])
            loss = 7 + 0 * (outputs["logits"] * inputs["weight"]).sum()
            return (loss, outputs) if return_outputs else loss

    data = [{**Items()[i], "weight": 1.0} for i in range(16)]
    trainer = make_trainer(cls=Seven, train=data, evaluation=data)
    assert trainer.train().training_loss == 7
    assert trainer.evaluate()["eval_loss"] == 7


def test_what_forward_does_not_take_is_left_out_unless_told_otherwise():
    data = [{**Items()[i], "note": "text"} for i in range(16)]
    make_trainer(train=data).train()
    with pytest.raises(TypeError, match="note"):
        make_trainer(train=data, remove_unused_columns=False).train()


def test_a_collator_makes_the_batches():
    def doubled(items):
        return {"labels": torch.stack([item["labels"] for item in items]) * 2}

    trainer = make_trainer(Scripted(), Losses([1.0] * 8), data_collator=doubled)
    assert trainer.train().training_loss == 2.0


def test_a_callback_that_leaves_the_model_in_evaluation_mode_does_not_end_its_training_mode():
    modes = []

    class Watched(Net):
        def forward(self, x, labels=None):
            modes.append(self.training)
            return super().forward(x, labels)

    model = Watched()
    make_trainer(model, callbacks=[At(1, lambda control: model.eval())]).train()
    assert modes == [True] * 12


def test_floating_point_operations_are_counted_where_the_model_can_tell():
    class Counted(Net):
        def floating_point_ops(self, inputs):
            return 10 * len(inputs["labels"])

    assert make_trainer(Counted(), num_train_epochs=2).train().metrics["total_flos"] == 640


def test_every_number_becomes_plain_as_it_enters_the_log_and_the_dict_of_the_caller_stays():
    trainer = make_trainer()
    norm = torch.tensor(1.5, requires_grad=True)
    mine = {"grad_norm": norm, "per": {"a": torch.tensor([1, 2])}, 0: 0.5}
    trainer.log(mine)
    assert trainer.state.log_history == [{"grad_norm": 1.5, "per": {"a": [1, 2]}, "0": 0.5, "epoch": 0, "step": 0}]
    assert mine["grad_norm"] is norm
    assert set(mine) == {"grad_norm", "per", 0}
    trainer.state.save_to_json("state.json")


def test_callbacks_can_be_added_popped_and_removed():
    trainer = make_trainer(callbacks=[Told])
    assert isinstance(trainer.pop_callback(Told), Told)
    assert trainer.pop_callback(Told) is None
    told = Told()
    trainer.add_callback(told)
    trainer.remove_callback(told)
    trainer.train()
    assert told.ends == []


def test_callbacks_stand_in_the_order_default_flow_reporters_own_console():
    class Mine(Reporter):
        name = "mine"

        def start(self, run):
            return None

        def log_points(self, points):
            pass

        def finish(self, status):
            pass

    trainer = make_trainer(report_to=[Mine()], callbacks=[Told], disable_tqdm=False)
    names = trainer.callback_handler.callback_list.split("\n")
    assert names == ["DefaultFlowCallback", "Mine", "Told", "ProgressCallback"]
    trainer = make_trainer(report_to=[Mine()], callbacks=[Mine()], disable_tqdm=True)
    names = trainer.callback_handler.callback_list.split("\n")
    assert names == ["DefaultFlowCallback", "Mine", "PrinterCallback"]
