"""A model with its data and callbacks: evaluation and prediction, which need no training."""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from trackside.callbacks import CallbackHandler, TrainerCallback, listed
from trackside.console import PrinterCallback, ProgressCallback
from trackside.flow import DefaultFlowCallback
from trackside.registry import resolve
from trackside.spelling import ChecksArguments
from trackside.state import TrainerControl, TrainerState
from trackside.values import describe
from trackside_torch.arguments import TrainingArguments
from trackside_torch.data import collate, make_loader, map_tensors, move, size_of
from trackside_torch.prediction import EvalLoopOutput, EvalPrediction, Gathered, PredictionOutput
from trackside_torch.processes import Processes
from trackside_torch.randomness import set_seed

logger = logging.getLogger(__name__)


class Evaluator(ChecksArguments):
    """The part of a `Trainer` that its training builds on."""

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        data_collator: Callable[[list[Any]], Any] | None,
        eval_dataset: Any,
        processing_class: Any,
        compute_metrics: Callable[[EvalPrediction], dict[str, Any]] | None,
        callbacks: Iterable[Any] | None,
        preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None,
    ) -> None:
        self.args = args
        self.processes = Processes.here(args.use_cpu)
        self.processes.join(args.ddp_backend, args.ddp_timeout)
        set_seed(args.seed)

        self.model = model.to(self.processes.device)
        self.model_wrapped: nn.Module = self.model
        self.data_collator = data_collator or collate
        self.eval_dataset = eval_dataset
        self.processing_class = processing_class
        self.compute_metrics = compute_metrics
        self.preprocess_logits_for_metrics = preprocess_logits_for_metrics

        dtype = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None
        device_type = self.processes.device.type
        self._autocast = torch.autocast(device_type, dtype=dtype) if dtype else contextlib.nullcontext()
        self._forward_names, self._needed_names, self._takes_any_name = _parameters_of(self.model)
        self._has_warned_of_metrics = False
        self.label_names = args.label_names or [name for name in self._forward_names if "label" in name] or ["labels"]

        own_callbacks = [] if callbacks is None else listed(callbacks)
        self.callback_handler = CallbackHandler(self._all_callbacks(own_callbacks), self.model, processing_class)
        self.control = TrainerControl()
        self.state = self._new_state()

    def _all_callbacks(self, own: list[Any]) -> list[Any]:
        given = {callback if isinstance(callback, type) else type(callback) for callback in own}
        reporters = [reporter for reporter in resolve(self.args.report_to) if type(reporter) not in given]
        console = PrinterCallback if self.args.disable_tqdm else ProgressCallback
        return [DefaultFlowCallback, *reporters, *own, console]

    def _new_state(self) -> TrainerState:
        return TrainerState(
            train_batch_size=self.args.train_batch_size,
            is_local_process_zero=self.is_local_process_zero(),
            is_world_process_zero=self.is_world_process_zero(),
            stateful_callbacks=self._exportable(),
        )

    def _exportable(self) -> list[Any]:
        callbacks = [
            callback for callback in self.callback_handler.callbacks if callable(getattr(callback, "state", None))
        ]
        return [*callbacks, self.control]

    def is_local_process_zero(self) -> bool:
        return self.processes.is_first_here

    def is_world_process_zero(self) -> bool:
        return self.processes.is_first

    # ---- callbacks and logs -------------------------------------------------------------------------------------

    def add_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        self.callback_handler.add_callback(callback)

    def pop_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> TrainerCallback | None:
        """Remove and return a callback, or the first one of a class."""
        popped: TrainerCallback | None = self.callback_handler.pop_callback(callback)
        return popped

    def remove_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        self.callback_handler.remove_callback(callback)

    def log(self, logs: Mapping[str, Any], start_time: float | None = None) -> None:
        """Add `logs` to the history as plain data, with epoch and step, and tell the callbacks; `logs` is not changed.

        `start_time` is there for overriders that pass it on.
        """
        entry: dict[str, Any] = describe(dict(logs))
        if self.state.epoch is not None:
            entry["epoch"] = self.state.epoch
        self.state.log_history.append({**entry, "step": self.state.global_step})
        self.control = self.callback_handler.on_log(self.args, self.state, self.control, entry)

    # ---- data --------------------------------------------------------------------------------------------------------

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        """A loader of `eval_dataset`, of the one of that name among several, or of the Trainer's own."""
        if isinstance(eval_dataset, str):
            eval_dataset = self._eval_dataset_called(eval_dataset)
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if dataset is None:
            raise ValueError("There is nothing to evaluate on; pass eval_dataset=... to the Trainer or to evaluate().")
        drop_last = self.args.dataloader_drop_last
        options = self._loader_options()
        return make_loader(dataset, self.args.eval_batch_size, self.processes, drop_last=drop_last, **options)

    def _eval_dataset_called(self, name: str) -> Any:
        datasets = self.eval_dataset if isinstance(self.eval_dataset, Mapping) else {}
        if name not in datasets:
            raise ValueError(f"There is no evaluation set {name!r}; there are {', '.join(datasets) or 'none by name'}.")
        return datasets[name]

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        """A loader of everything in `test_dataset`: predictions are never dropped."""
        return make_loader(test_dataset, self.args.eval_batch_size, self.processes, **self._loader_options())

    @property
    def _data_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def _loader_options(self) -> dict[str, Any]:
        args = self.args
        return {
            "collate_fn": self.data_collator,
            "num_workers": args.dataloader_num_workers,
            "pin_memory": args.dataloader_pin_memory and self.processes.device.type == "cuda",
            "persistent_workers": args.dataloader_persistent_workers,
            "prefetch_factor": args.dataloader_prefetch_factor,
        }

    # ---- the model ---------------------------------------------------------------------------------------------------

    def _prepare_inputs(self, inputs: Any) -> Any:
        """A batch on the device of the model."""
        return inputs if self.processes.device.type == "cpu" else move(inputs, self.processes.device)

    def _named(self, inputs: Any) -> Mapping[str, Any]:
        """A batch by the names of the arguments of `forward`; a tuple gets them in their order."""
        if isinstance(inputs, Mapping):
            return inputs
        values = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        return dict(zip(self._forward_names, values, strict=False))

    def _arguments(self, inputs: Any) -> Mapping[str, Any]:
        """What `forward` takes of a batch."""
        named = self._named(inputs)
        if self._takes_any_name or not self.args.remove_unused_columns or self._forward_names.keys() >= named.keys():
            return named
        return {name: value for name, value in named.items() if name in self._forward_names}

    def _outputs(self, model: nn.Module, inputs: Any) -> Any:
        """What the model returns for a batch."""
        arguments = self._arguments(inputs)
        try:
            return model(**arguments)
        except TypeError as error:
            surplus = not self._takes_any_name and not self._forward_names.keys() >= arguments.keys()
            if surplus or not arguments.keys() >= self._needed_names:
                raise TypeError(
                    f"{type(self.model).__name__}.forward takes {', '.join(self._forward_names)}, the batch has "
                    f"{_contents(inputs)}; call them the same, or override compute_loss."
                ) from error
            raise

    def _labels_of(self, inputs: Any) -> Any:
        """The labels in a batch, None without; the last of a tuple where `forward` has no name for them."""
        named = self._named(inputs)
        labels = tuple(named.get(name) for name in self.label_names)
        if all(label is not None for label in labels):
            return labels[0] if len(labels) == 1 else labels
        has_name = any(name in self._forward_names for name in self.label_names)
        if not has_name and isinstance(inputs, (tuple, list)) and len(inputs) > 1:
            return inputs[-1]
        return None

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The mean loss of a batch, or the pair of it and what the model returned; made to be overridden.

        `num_items_in_batch` is there for overriders that know it from `transformers`; it is None.
        """
        outputs = self._outputs(model, inputs)
        loss = _loss_of(outputs)
        if loss is None:
            given = ", ".join(self._arguments(inputs))
            returned = ", ".join(map(str, outputs)) if isinstance(outputs, Mapping) else type(outputs).__name__
            raise ValueError(
                f"{type(self.model).__name__} returned no loss but {returned} when it was given {given} of a batch of "
                f"{_contents(inputs)}; return it under the key 'loss', or override compute_loss."
            )
        return (loss, outputs) if return_outputs else loss

    # ---- evaluation and prediction ------------------------------------------------------------------------------

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, Any]:
        """The metrics of the model on a dataset, or on each of several by name; they are logged as well.

        Args:
            eval_dataset: instead of the Trainer's own.
            ignore_keys: outputs of the model that are no predictions.
            metric_key_prefix: what the names of the metrics begin with.
        """
        datasets = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(datasets, dict):
            metrics: dict[str, Any] = {}
            for name, dataset in datasets.items():
                metrics |= self.evaluate(dataset, ignore_keys, f"{metric_key_prefix}_{name}")
            return metrics
        loader = self.get_eval_dataloader(eval_dataset)
        loss_only = True if self.compute_metrics is None else None
        metrics = self._timed_loop(loader, "evaluation", loss_only, ignore_keys, metric_key_prefix).metrics
        self.log(metrics)
        if self.state.epoch is not None:
            metrics["epoch"] = self.state.epoch
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics=dict(metrics))
        return metrics

    def predict(
        self, test_dataset: Any, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test"
    ) -> PredictionOutput:
        """The predictions of the model on a dataset, and their metrics, which are not logged."""
        loader = self.get_test_dataloader(test_dataset)
        output = self._timed_loop(loader, "prediction", None, ignore_keys, metric_key_prefix)
        metrics = output.metrics
        self.control = self.callback_handler.on_predict(self.args, self.state, self.control, metrics=dict(metrics))
        return PredictionOutput(output.predictions, output.label_ids, metrics)

    def _timed_loop(
        self, loader: Any, description: str, loss_only: bool | None, ignore_keys: list[str] | None, prefix: str
    ) -> EvalLoopOutput:
        start_time = time.perf_counter()
        output = self.evaluation_loop(loader, description, loss_only, ignore_keys, prefix)
        seconds = time.perf_counter() - start_time
        steps = math.ceil(output.num_samples / (self.args.eval_batch_size * self.processes.world_size))
        output.metrics.update(speed(prefix, seconds, output.num_samples, steps))
        return output

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Go through the data once, and gather predictions and labels unless only the loss is wanted."""
        if prediction_loss_only is None:
            prediction_loss_only = self.args.prediction_loss_only
        # Each process evaluates its share by itself, and may have a batch more than another one.
        model = self.model_wrapped if self.processes.is_alone else self.model
        self.processes.broadcast(self.model.buffers())
        model.eval()
        self.callback_handler.eval_dataloader = dataloader

        every = self.args.eval_accumulation_steps
        losses, logits, labels = (Gathered(self.processes, every) for _ in range(3))
        num_samples = 0
        for inputs in dataloader:
            size = size_of(inputs) or 1
            num_samples += size
            loss, batch_logits, batch_labels = self.prediction_step(model, inputs, prediction_loss_only, ignore_keys)
            if batch_logits is not None and self.preprocess_logits_for_metrics is not None:
                batch_logits = self.preprocess_logits_for_metrics(batch_logits, batch_labels)
            losses.add(None if loss is None else loss.reshape(1).double().repeat(size))
            logits.add(batch_logits)
            labels.add(batch_labels)
            self.control = self.callback_handler.on_prediction_step(self.args, self.state, self.control)
        num_samples = sum(self.processes.gather(num_samples))
        if num_samples == 0:
            raise ValueError(f"The data for the {description} yield no batch; give a dataset that is not empty.")

        predictions, label_ids = logits.arrays(), labels.arrays()
        metrics: dict[str, Any] = {}
        if self.compute_metrics is not None and predictions is not None and label_ids is not None:
            metrics = self._computed_metrics(EvalPrediction(predictions, label_ids))
        elif self.compute_metrics is not None and description == "evaluation" and not prediction_loss_only:
            self._warn_of_missing_metrics(inputs, label_ids)
        loss_of_items = losses.arrays()
        if loss_of_items is not None:
            metrics[f"{metric_key_prefix}_loss"] = self._mean_loss(torch.from_numpy(loss_of_items))
        return EvalLoopOutput(predictions, label_ids, _prefixed(metrics, metric_key_prefix), num_samples)

    def _computed_metrics(self, prediction: EvalPrediction) -> dict[str, Any]:
        assert self.compute_metrics is not None
        metrics: Any = self.compute_metrics(prediction)
        if not isinstance(metrics, Mapping):
            found = type(metrics).__name__
            raise TypeError(f'compute_metrics returned a {found}; return a dict, such as {{"accuracy": 0.5}}.')
        computed: dict[str, Any] = describe(metrics)
        return computed

    def _warn_of_missing_metrics(self, inputs: Any, label_ids: Any) -> None:
        """Once, and not for predictions, which often have no labels."""
        if self._has_warned_of_metrics:
            return
        self._has_warned_of_metrics = True
        if label_ids is None:
            missing = ", ".join(self.label_names)
            reason = f"no labels ({missing}) in the batch, which has {_contents(inputs)}; set label_names"
        else:
            reason = f"{type(self.model).__name__} returned nothing but its loss; return logits beside it"
        logger.warning("compute_metrics was not called: %s.", reason)

    def _mean_loss(self, losses: torch.Tensor) -> float:
        """The mean over all items, of the finite ones only if there are any and the filter is on."""
        finite = torch.isfinite(losses)
        if self.args.logging_nan_inf_filter and finite.any():
            losses = losses[finite]
        return losses.mean().item()

    def prediction_step(
        self, model: nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[torch.Tensor | None, Any, Any]:
        """Loss, predictions and labels of a batch, each None where there is none; made to be overridden."""
        inputs = self._prepare_inputs(inputs)
        labels = self._labels_of(inputs)
        with torch.no_grad(), self._autocast:
            if labels is None:
                outputs = self._outputs(model, inputs)
                loss = outputs.get("loss") if isinstance(outputs, Mapping) else None
            else:
                loss, outputs = self.compute_loss(model, inputs, return_outputs=True)
        loss = None if loss is None else loss.detach().mean()
        if prediction_loss_only:
            return loss, None, None
        if ignore_keys is None:
            ignore_keys = getattr(getattr(self.model, "config", None), "keys_to_ignore_at_inference", [])
        logits = _logits_of(outputs, has_loss=labels is not None, ignored={"loss", *ignore_keys})
        return loss, map_tensors(torch.Tensor.detach, logits), labels


def _parameters_of(model: nn.Module) -> tuple[dict[str, None], set[str], bool]:
    """The names of the arguments of `forward` in order, of those that it needs, and whether it takes any others."""
    parameters = inspect.signature(model.forward).parameters.values()
    unnamed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [parameter for parameter in parameters if parameter.kind not in unnamed]
    needed = {parameter.name for parameter in named if parameter.default is inspect.Parameter.empty}
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    return dict.fromkeys(parameter.name for parameter in named), needed, takes_any


def _contents(inputs: Any) -> str:
    """What a batch has, for a sentence: its names, or how many values."""
    if isinstance(inputs, Mapping):
        return ", ".join(map(str, inputs))
    return f"{len(inputs) if isinstance(inputs, (tuple, list)) else 1} values"


def _loss_of(outputs: Any) -> torch.Tensor | None:
    if isinstance(outputs, Mapping):
        return outputs.get("loss")
    first = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else outputs
    return first if isinstance(first, torch.Tensor) and first.ndim == 0 else None


def _logits_of(outputs: Any, has_loss: bool, ignored: set[str]) -> Any:
    if isinstance(outputs, Mapping):
        logits = tuple(value for key, value in outputs.items() if key not in ignored)
    elif isinstance(outputs, (tuple, list)):
        logits = tuple(outputs[1:] if has_loss else outputs)
    else:
        return outputs
    return logits[0] if len(logits) == 1 else logits or None


def _prefixed(metrics: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {key if key.startswith(f"{prefix}_") else f"{prefix}_{key}": value for key, value in metrics.items()}


def speed(prefix: str, seconds: float, samples: float, steps: float) -> dict[str, Any]:
    """How long something took, and how much of it was done in each second."""
    seconds = max(seconds, 1e-9)
    return {
        f"{prefix}_runtime": round(seconds, 4),
        f"{prefix}_samples_per_second": round(samples / seconds, 3),
        f"{prefix}_steps_per_second": round(steps / seconds, 3),
    }
