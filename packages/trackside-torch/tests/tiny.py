"""Models and data that train in milliseconds, and a Trainer of them."""

import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

from trackside import TrainerCallback
from trackside_torch import Trainer, TrainingArguments

QUIET = {"report_to": "none", "use_cpu": True, "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}


class Net(nn.Module):
    """Two layers with dropout between them, so that the random states matter."""

    def __init__(self, width=8, dropout=0.0):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 1))

    def forward(self, x, labels=None):
        logits = self.layers(x).squeeze(-1)
        return {"logits": logits} if labels is None else {"loss": ((logits - labels) ** 2).mean(), "logits": logits}


class Scripted(nn.Module):
    """Its loss is what its labels are, so that a test chooses the losses."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, labels):
        return {"loss": labels.mean() + 0 * self.weight}


class Items(Dataset):
    """`length` items that are the same in each process and each run; with `noise`, a little random each time."""

    def __init__(self, length=32, noise=0.0):
        generator = torch.Generator().manual_seed(length)
        self.x = torch.randn(length, 3, generator=generator)
        self.labels = self.x.sum(dim=1)
        self.noise = noise

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        noise = self.noise * torch.randn(3) if self.noise else 0.0
        return {"x": self.x[i] + noise, "labels": self.labels[i]}


class Losses(Dataset):
    """Items for `Scripted`."""

    def __init__(self, losses):
        self.losses = torch.tensor(losses)

    def __len__(self):
        return len(self.losses)

    def __getitem__(self, i):
        return {"labels": self.losses[i]}


class Stream(IterableDataset):
    """The items of a map-style dataset, without a length."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return (self.items[i] for i in range(len(self.items)))


class Told(TrainerCallback):
    """Keeps the steps at which it was told of some events, and what came with them."""

    def __init__(self):
        self.saves, self.evaluations, self.exceptions, self.ends = [], [], [], []

    def on_save(self, args, state, control, **kwargs):
        self.saves.append(state.global_step)

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        self.evaluations.append(metrics)

    def on_train_end(self, args, state, control, **kwargs):
        self.ends.append(state.global_step)

    def on_exception(self, args, state, control, exception, **kwargs):
        self.exceptions.append(exception)


class At(TrainerCallback):
    """Does something at the end of a step."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.action(control)


def make_trainer(model=Net, train=None, evaluation=None, cls=Trainer, callbacks=(), seed_model=0, **options):
    """A Trainer of a model (or of what a function makes once it is seeded); arguments of both classes as keywords."""
    names = ("compute_metrics", "data_collator", "optimizers", "preprocess_logits_for_metrics", "processing_class")
    own = {name: options.pop(name) for name in names if name in options}
    args = TrainingArguments("out", **{**QUIET, **options})
    torch.manual_seed(seed_model)
    return cls(
        model if isinstance(model, nn.Module) else model(),
        args,
        train_dataset=Items() if train is None else train,
        eval_dataset=evaluation,
        callbacks=list(callbacks),
        **own,
    )


def scores(*values):
    """For `compute_metrics`: one score after the other."""
    remaining = iter(values)
    return lambda prediction: {"score": next(remaining)}


def logged(trainer, key="loss"):
    """The values of one key in the history."""
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def weights(trainer):
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


def same(some, others):
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def stop_training(control):
    """An action for `At`: ends the training in order."""
    control.should_training_stop = True


def raiser(error):
    """An action for `At`: ends the training in an error."""

    def action(control):
        raise error

    return action
