import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from trackside_torch import TrainingArguments


class Interval(str, Enum):
    EPOCH = "epoch"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"eval_strategy": "sometimes"}, "eval_strategy='sometimes' is not known; type one of no, steps, epoch."),
        ({"logging_strategy": "best"}, "logging_strategy='best' is not known"),
        ({"save_strategy": "never"}, "type one of no, steps, epoch, best."),
        ({"lr_scheduler_type": "lineer"}, "type one of linear, cosine, constant, constant_with_warmup."),
        ({"logging_steps": -1}, "logging_steps=-1 is no interval"),
        ({"eval_steps": -5}, "eval_steps=-5 is no interval"),
        ({"save_steps": -0.5}, "save_steps=-0.5 is no interval"),
        ({"logging_steps": float("nan")}, "logging_steps=nan is no interval"),
        ({"logging_steps": float("inf")}, "logging_steps=inf is no interval"),
        ({"save_steps": 2.5}, "save_steps=2.5 is no whole number of steps; type 2 or 3."),
        ({"logging_steps": 0}, 'logging_steps=0 logs never; type a number of steps, or logging_strategy="no".'),
        ({"eval_strategy": "steps", "logging_strategy": "no", "logging_steps": 0}, "eval_steps=0 evaluates never"),
        ({"per_device_train_batch_size": 0}, "per_device_train_batch_size=0 is too small; type 1 or more."),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps=0 is too small"),
        ({"num_train_epochs": -1}, "num_train_epochs=-1 is too small"),
        ({"max_steps": -2}, "max_steps=-2 is too small; type -1 or more."),
        ({"learning_rate": float("nan")}, "learning_rate=nan is too small"),
        ({"warmup_ratio": 1.5}, "warmup_ratio=1.5 is no part of all steps"),
        ({"save_total_limit": -1}, "save_total_limit=-1 is too small"),
        ({"learning_rate": "5e-5"}, "learning_rate='5e-5' is no number; type 5.0e-05."),
        ({"logging_steps": "10"}, "logging_steps='10' is no number; type 10.0."),
        ({"num_train_epochs": None}, "num_train_epochs=None is no number; type one, such as 3.0."),
        ({"max_steps": 2.5}, "max_steps=2.5 is no whole number; type 2."),
        ({"max_steps": None}, "max_steps=None is no whole number; type one, such as -1."),
        ({"max_steps": float("inf")}, "max_steps=inf is no whole number"),
        ({"per_device_train_batch_size": "16"}, "per_device_train_batch_size='16' is no whole number; type 16."),
        ({"seed": "a"}, "seed='a' is no whole number; type one, such as 42."),
        ({"save_total_limit": 1.5}, "save_total_limit=1.5 is no whole number"),
        ({"use_cpu": "false"}, "use_cpu='false' is text; type True or False."),
        ({"output_dir": None}, "output_dir=None is no folder; type a path."),
        ({"eval_strategy": None}, "eval_strategy=None is not known; type one of no"),
        ({"label_names": "labels"}, "label_names='labels' is no list; type ['labels']."),
        ({"fp16": True, "bf16": True}, "leave one of them out"),
        ({"dataloader_prefetch_factor": 2}, "dataloader_prefetch_factor needs workers"),
        ({"load_best_model_at_end": True}, "load_best_model_at_end needs evaluations"),
        ({"save_strategy": "best"}, 'save_strategy="best" needs evaluations'),
        (
            {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "steps"},
            'eval_strategy is "epoch" and save_strategy is "steps"',
        ),
        (
            {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 3},
            "save_steps to be a multiple of eval_steps, but they are 3 and 2",
        ),
        (
            {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 0.1, "save_steps": 30},
            "save_steps to be a multiple of eval_steps, but they are 30 and 0.1",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_one_sentence_that_says_what_to_type(options, sentence):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as refusal:
        TrainingArguments(**{"output_dir": "out", **options})
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    "options",
    [
        {"logging_strategy": "epoch", "logging_steps": 0},
        {"save_steps": 0},
        {"max_steps": 0},
        {"use_cpu": None},
        {"learning_rate": np.float32(1e-3), "warmup_steps": 1},
        {"num_train_epochs": 0},
        {"max_grad_norm": 0},
        {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 0.1, "save_steps": 0.3},
        {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "best"},
    ],
)
def test_what_transformers_accepts_is_accepted(options):
    TrainingArguments("out", **options)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"learning_rat": 1e-3}, "learning_rat (did you mean learning_rate?)"),
        ({"epochs": 3, "num_epochs": 3}, "epochs (did you mean num_train_epochs?), num_epochs (did you mean num_train"),
        ({"batch_size": 8}, "did you mean per_device_train_batch_size?"),
        ({"evaluation_strategy": "epoch"}, "type eval_strategy"),
        ({"logging_dir": "runs"}, 'type report_to={"tensorboard": {"logging_dir": ...}}'),
        ({"optim": "sgd", "no_cuda": True}, "optim (pass optimizers=(optimizer, None) to the Trainer), no_cuda (type"),
        ({"overwrite_output_dir": True}, "leave it out"),
    ],
)
def test_an_argument_that_is_not_there_is_refused_with_what_to_type_instead(options, advice):
    with pytest.raises(TypeError, match="TrainingArguments has no argument") as refusal:
        TrainingArguments("out", **options)
    assert advice in str(refusal.value)


def test_arguments_of_ones_own_may_be_added_in_a_subclass():
    @dataclass
    class Own(TrainingArguments):
        temperature: float = 1.0

    assert Own(temperature=2.0).temperature == 2.0
    with pytest.raises(TypeError, match=r"Own has no argument temprature \(did you mean temperature\?\)"):
        Own(temprature=2.0)


def test_a_number_of_things_is_whole_however_it_is_given():
    args = TrainingArguments("out", max_steps=100.0, seed=np.int64(7), num_train_epochs=1.5)
    assert (repr(args.max_steps), repr(args.seed), args.num_train_epochs) == ("100", "7", 1.5)


def test_a_path_is_a_name_of_a_folder_and_knows_the_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("USERPROFILE", "/home/me")
    assert TrainingArguments(Path("out")).output_dir == "out"
    assert TrainingArguments("~/out").output_dir == "/home/me/out"


def test_an_enum_means_its_value():
    assert TrainingArguments("out", eval_strategy=Interval.EPOCH).eval_strategy == "epoch"


def test_evaluations_follow_the_logs_unless_told_otherwise():
    assert TrainingArguments("out", eval_strategy="steps", logging_steps=7).eval_steps == 7


@pytest.mark.parametrize(("name", "greater"), [("accuracy", True), ("loss", False), ("eval_loss", False)])
def test_greater_is_better_unless_the_metric_is_a_loss(name, greater):
    assert TrainingArguments("out", metric_for_best_model=name).greater_is_better is greater


def test_the_best_model_is_by_default_the_one_of_least_loss():
    args = TrainingArguments("out", load_best_model_at_end=True, eval_strategy="epoch", save_strategy="epoch")
    assert (args.metric_for_best_model, args.greater_is_better) == ("loss", False)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"warmup_steps": 7}, 7),
        ({"warmup_steps": 0.101}, 11),
        ({"warmup_ratio": 0.1}, 10),
        ({"warmup_ratio": 1.0}, 100),
    ],
)
def test_a_warm_up_is_a_number_of_steps_or_a_part_of_all(options, steps):
    assert TrainingArguments("out", **options).get_warmup_steps(100) == steps


def test_all_arguments_can_be_written_as_json():
    args = TrainingArguments("out", report_to=["tensorboard"], eval_strategy=Interval.EPOCH)
    written = json.loads(json.dumps(args.to_dict()))
    assert (written["report_to"], written["eval_strategy"]) == (["tensorboard"], "epoch")
