"""What a training is asked to do, with the names that users of `transformers` know."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any, ClassVar

import torch

from trackside.spelling import ChecksArguments
from trackside.values import describe
from trackside_torch.processes import Processes
from trackside_torch.schedules import SCHEDULES

INTERVALS = ("no", "steps", "epoch")
SAVE_INTERVALS = (*INTERVALS, "best")

# What users of `transformers` and of other trainers type, and what to type here.
INSTEAD = {
    "do_eval": "call evaluate()",
    "do_predict": "call predict(...)",
    "do_train": "call train()",
    "evaluation_strategy": "type eval_strategy",
    "gradient_checkpointing": "switch it on in the model",
    "logging_dir": 'type report_to={"tensorboard": {"logging_dir": ...}}',
    "lr": "type learning_rate",
    "lr_scheduler_kwargs": "pass optimizers=(optimizer, schedule) to the Trainer",
    "no_cuda": "type use_cpu=True",
    "optim": "pass optimizers=(optimizer, None) to the Trainer",
    "resume_from_checkpoint": "call train(resume_from_checkpoint=...)",
}


@dataclass
class TrainingArguments(ChecksArguments):
    """Everything a `Trainer` can be told; wrong values and those that do not fit together are refused at once.

    Steps are optimizer steps. `logging_steps`, `eval_steps` and `save_steps` below 1 are a part of all steps, and so
    are `warmup_steps`. Strategies are `"no"`, `"steps"` or `"epoch"`, and for saving also `"best"`.
    """

    instead: ClassVar[Mapping[str, str]] = INSTEAD

    output_dir: str = "trainer_output"

    per_device_train_batch_size: int = 8
    per_device_eval_batch_size: int = 8
    num_train_epochs: float = 3.0
    max_steps: int = -1
    """Steps to train for, whatever `num_train_epochs` says; -1 for as many as the epochs have."""
    gradient_accumulation_steps: int = 1

    learning_rate: float = 5e-5
    weight_decay: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    max_grad_norm: float | None = 1.0
    """The norm to which gradients are clipped; 0 or None for no clipping."""
    lr_scheduler_type: str = "linear"
    warmup_steps: float = 0
    warmup_ratio: float | None = None
    """The part of all steps that warms up; the same as a `warmup_steps` below 1."""

    bf16: bool = False
    fp16: bool = False
    torch_compile: bool = False
    torch_compile_backend: str | None = None
    torch_compile_mode: str | None = None
    use_cpu: bool = False

    seed: int = 42
    data_seed: int | None = None
    """Seed of the order of the training data; by default `seed`."""

    logging_strategy: str = "steps"
    logging_steps: float = 500
    logging_first_step: bool = False
    logging_nan_inf_filter: bool = True
    """Leave losses that are nan or infinite out of the logged mean."""
    disable_tqdm: bool = False
    report_to: Any = "all"
    run_name: str | None = None

    eval_strategy: str = "no"
    eval_steps: float | None = None
    eval_delay: float = 0
    eval_on_start: bool = False
    eval_accumulation_steps: int | None = None
    """Batches after which predictions leave the device; by default (None) they leave it at the end."""
    prediction_loss_only: bool = False

    save_strategy: str = "steps"
    save_steps: float = 500
    save_total_limit: int | None = None
    save_only_model: bool = False
    load_best_model_at_end: bool = False
    metric_for_best_model: str | None = None
    greater_is_better: bool | None = None
    """By default true, unless the name of the metric ends in `loss`."""

    ignore_data_skip: bool = False
    """Resume with the first batch of the epoch that was interrupted, not with the one it had come to."""
    restore_callback_states_from_checkpoint: bool = False

    dataloader_drop_last: bool = False
    dataloader_num_workers: int = 0
    dataloader_pin_memory: bool = True
    dataloader_persistent_workers: bool = False
    """Workers then draw their random numbers on from epoch to epoch, so that a resumed training draws others."""
    dataloader_prefetch_factor: int | None = None
    remove_unused_columns: bool = True
    """Do not pass on to the model what its `forward` does not take."""
    label_names: list[str] | None = None
    """Names of the labels in a batch; by default those parameters of `forward` that contain `label`."""

    ddp_backend: str | None = None
    ddp_find_unused_parameters: bool = False
    ddp_timeout: int = 1800
    """Seconds that processes wait for each other."""

    def __post_init__(self) -> None:
        self._check_types()
        self._normalize()
        self._check_choices()
        self._check_numbers()
        self._check_intervals()
        self._check_best_model()

    def _check_types(self) -> None:
        """Each number and each switch is one; a number of things may be given as 2.0, and is 2."""
        for spec in dataclasses.fields(TrainingArguments):
            value, kinds = getattr(self, spec.name), str(spec.type).split(" | ")
            if value is None and ("None" in kinds or "bool" in kinds):
                continue
            fault = _fault(value, kinds, spec.default)
            if fault is not None:
                raise ValueError(f"{spec.name}={value!r} is {fault}.")
            if "int" in kinds:
                setattr(self, spec.name, int(value))
        if isinstance(self.label_names, str):
            raise ValueError(f"label_names={self.label_names!r} is no list; type [{self.label_names!r}].")
        folder: Any = self.output_dir
        if not isinstance(folder, (str, os.PathLike)):
            raise ValueError(f"output_dir={folder!r} is no folder; type a path.")

    def _normalize(self) -> None:
        self.output_dir = os.path.expanduser(self.output_dir)
        for name in ("logging_strategy", "eval_strategy", "save_strategy", "lr_scheduler_type"):
            value = getattr(self, name)
            setattr(self, name, value.value if isinstance(value, Enum) else value)
        if self.eval_strategy == "steps" and not self.eval_steps:
            self.eval_steps = self.logging_steps
        if self.load_best_model_at_end and self.metric_for_best_model is None:
            self.metric_for_best_model = "loss"
        if self.greater_is_better is None and self.metric_for_best_model is not None:
            self.greater_is_better = not self.metric_for_best_model.endswith("loss")

    def _check_choices(self) -> None:
        self._one_of("logging_strategy", INTERVALS)
        self._one_of("eval_strategy", INTERVALS)
        self._one_of("save_strategy", SAVE_INTERVALS)
        self._one_of("lr_scheduler_type", tuple(SCHEDULES))
        if self.fp16 and self.bf16:
            raise ValueError("fp16 and bf16 are both set; a training has one precision, so leave one of them out.")

    def _check_numbers(self) -> None:
        self._at_least(1, "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps")
        self._at_least(1, "eval_accumulation_steps", "dataloader_prefetch_factor")
        self._at_least(0, "num_train_epochs", "learning_rate", "weight_decay", "max_grad_norm", "warmup_steps")
        self._at_least(0, "eval_delay", "save_total_limit", "dataloader_num_workers")
        self._at_least(-1, "max_steps")
        if self.warmup_ratio is not None and not 0 <= self.warmup_ratio <= 1:
            raise ValueError(f"warmup_ratio={self.warmup_ratio} is no part of all steps; type a number from 0 to 1.")
        if self.dataloader_num_workers == 0:
            for name in ("dataloader_persistent_workers", "dataloader_prefetch_factor"):
                if getattr(self, name):
                    raise ValueError(f"{name} needs workers; set dataloader_num_workers to 1 or more.")

    def _check_intervals(self) -> None:
        for name in ("logging_steps", "eval_steps", "save_steps"):
            steps = getattr(self, name)
            if steps is None:
                continue
            if not steps >= 0 or steps == math.inf:
                raise ValueError(f"{name}={steps} is no interval; type a number of steps, or a part of all below 1.")
            if steps > 1 and steps != int(steps):
                raise ValueError(f"{name}={steps} is no whole number of steps; type {int(steps)} or {int(steps) + 1}.")
            setattr(self, name, int(steps) if steps >= 1 else steps)
        if self.logging_strategy == "steps" and self.logging_steps == 0:
            raise ValueError('logging_steps=0 logs never; type a number of steps, or logging_strategy="no".')
        if self.eval_strategy == "steps" and self.eval_steps == 0:
            raise ValueError('eval_steps=0 evaluates never; type a number of steps, or eval_strategy="no".')

    def _check_best_model(self) -> None:
        """The best model can be known only if there are evaluations, and kept only if it is saved."""
        if self.eval_strategy == "no" and (self.load_best_model_at_end or self.save_strategy == "best"):
            asked = "load_best_model_at_end" if self.load_best_model_at_end else 'save_strategy="best"'
            raise ValueError(f'{asked} needs evaluations; set eval_strategy to "steps" or "epoch".')
        if not self.load_best_model_at_end or self.save_strategy == "best":
            return
        if self.eval_strategy != self.save_strategy:
            raise ValueError(
                f"load_best_model_at_end needs a checkpoint of each evaluated model, but eval_strategy is "
                f'"{self.eval_strategy}" and save_strategy is "{self.save_strategy}"; give both the same, or save '
                f'"best".'
            )
        if self.eval_strategy == "steps" and not _is_multiple(self.save_steps, self.eval_steps or 0):
            raise ValueError(
                f"load_best_model_at_end needs save_steps to be a multiple of eval_steps, but they are "
                f'{self.save_steps} and {self.eval_steps}; change one of them, or set save_strategy="best".'
            )

    def _one_of(self, name: str, choices: tuple[str, ...]) -> None:
        if getattr(self, name) not in choices:
            raise ValueError(f"{name}={getattr(self, name)!r} is not known; type one of {', '.join(choices)}.")

    def _at_least(self, least: int, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name}={value} is too small; type {least} or more.")

    @property
    def train_batch_size(self) -> int:
        return self.per_device_train_batch_size

    @property
    def eval_batch_size(self) -> int:
        return self.per_device_eval_batch_size

    @property
    def _processes(self) -> Processes:
        return Processes.here(self.use_cpu)

    @property
    def device(self) -> torch.device:
        return self._processes.device

    @property
    def world_size(self) -> int:
        return self._processes.world_size

    @property
    def process_index(self) -> int:
        return self._processes.rank

    @property
    def local_process_index(self) -> int:
        return self._processes.local_rank

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """Steps of warm-up, a ratio resolved."""
        if self.warmup_steps >= 1:
            return int(self.warmup_steps)
        return math.ceil(num_training_steps * (self.warmup_steps or self.warmup_ratio or 0))

    def to_dict(self) -> dict[str, Any]:
        """All arguments as plain data."""
        return {spec.name: describe(getattr(self, spec.name)) for spec in dataclasses.fields(self)}


def _fault(value: Any, kinds: list[str], default: Any) -> str | None:
    """Why `value` is of none of the kinds, and what to type; None if it is of one."""
    is_number = isinstance(value, Real)
    if "float" in kinds and not is_number:
        return f"no number; type {_spelled(value, float) or f'one, such as {default}'}"
    if "int" in kinds and not (is_number and value % 1 == 0):
        return f"no whole number; type {_spelled(value, round) or f'one, such as {default}'}"
    if "bool" in kinds and isinstance(value, str):
        return "text; type True or False"
    return None


def _spelled(value: Any, convert: Callable[[float], Any]) -> str | None:
    """The number that was meant, as YAML understands it too: 5.0e-05, not 5e-05, which is text there."""
    try:
        number = repr(convert(float(value)))
    except (TypeError, ValueError, OverflowError):
        return None
    return number if "." in number else number.replace("e", ".0e")


def _is_multiple(steps: float, of: float) -> bool:
    """Parts of all steps are compared as millionths; a part and a number of steps never fit together."""
    if (steps < 1) != (of < 1):
        return False
    scale = 1_000_000 if steps < 1 else 1
    return round(steps * scale) % max(round(of * scale), 1) == 0
