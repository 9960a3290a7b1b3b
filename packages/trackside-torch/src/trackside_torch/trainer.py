"""The training loop."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader

from trackside.console import say
from trackside.flow import improves, monitored
from trackside.state import STATE_NAME, TrainerControl, TrainerState, export_states
from trackside_torch import checkpoints
from trackside_torch.arguments import TrainingArguments
from trackside_torch.data import iterate_epoch, make_loader
from trackside_torch.evaluator import Evaluator, speed
from trackside_torch.losses import RunningLoss
from trackside_torch.plan import Plan, check_is_bounded
from trackside_torch.prediction import EvalPrediction, TrainOutput
from trackside_torch.randomness import random_states, restore_random_states
from trackside_torch.schedules import get_scheduler

logger = logging.getLogger(__name__)

FLAGS = tuple(flag.name for flag in dataclasses.fields(TrainerControl))


class Trainer(Evaluator):
    """Trains, evaluates and predicts with a PyTorch model, and tells its callbacks of each event.

    The model is called with the batch as keyword arguments and returns its loss when it is given labels: under the key
    `loss`, as the first of a tuple, or alone. For any other model override `compute_loss`; it gets the batch as it is.

    Args:
        model: what to train.
        args: how; see `TrainingArguments`.
        data_collator: makes a batch of a list of items; by default tensors are stacked.
        train_dataset: map-style or iterable. An item is a mapping by names of arguments, or a tuple in their order.
        eval_dataset: the same for evaluations, or several by name.
        processing_class: tokenizer or the like, handed to the callbacks and saved beside the model.
        compute_metrics: the metrics of an `EvalPrediction`, as a dict.
        callbacks: classes or instances, told after the default flow and the reporters.
        optimizers: an optimizer and a schedule to use instead of AdamW and `lr_scheduler_type`; the schedule may be
            None.
        preprocess_logits_for_metrics: `(logits, labels) -> logits`, what to keep of each batch for the metrics.
    """

    instead: ClassVar[Mapping[str, str]] = {
        "compute_loss_func": "override compute_loss",
        "model_init": "pass model=...",
        "tokenizer": "type processing_class",
    }

    def __init__(
        self,
        model: nn.Module | None = None,
        args: TrainingArguments | None = None,
        data_collator: Callable[[list[Any]], Any] | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        compute_metrics: Callable[[EvalPrediction], dict[str, Any]] | None = None,
        callbacks: Iterable[Any] | None = None,
        optimizers: tuple[Optimizer | None, Any] = (None, None),
        preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        if model is None:
            raise ValueError("A Trainer needs a model; pass model=...")
        args = args or TrainingArguments()
        self.train_dataset = train_dataset
        self.optimizer, self.lr_scheduler = optimizers
        _check(args, train_dataset, eval_dataset, optimizers)
        super().__init__(
            model,
            args,
            data_collator,
            eval_dataset,
            processing_class,
            compute_metrics,
            callbacks,
            preprocess_logits_for_metrics,
        )
        if self.processes.is_first:
            _make_writable(args.output_dir)
        self.callback_handler.optimizer, self.callback_handler.lr_scheduler = optimizers
        self.scaler = torch.amp.GradScaler(self.processes.device.type) if args.fp16 else None
        self.is_in_train = False
        self.current_gradient_accumulation_steps = args.gradient_accumulation_steps
        self._makes_scheduler = self.lr_scheduler is None
        self._parameters = list(self.model.parameters())
        self._has_gradients = False
        self._grad_norm: Any = None
        self._learning_rate: Any = None
        self._flos = 0.0
        self._floating_point_ops = getattr(self.model, "floating_point_ops", None)
        self.control = self.callback_handler.on_init_end(args, self.state, self.control)

    # ---- data, optimizer, schedule ------------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader:
        if self.train_dataset is None:
            raise ValueError("There is nothing to train on; pass train_dataset=... to the Trainer.")
        return make_loader(
            self.train_dataset,
            self.args.train_batch_size,
            self.processes,
            seed=self._data_seed,
            drop_last=self.args.dataloader_drop_last,
            is_training=True,
            **self._loader_options(),
        )

    def create_optimizer(self) -> Optimizer:
        """AdamW, unless there is an optimizer; weights decay only in parameters of two or more dimensions."""
        if self.optimizer is None:
            args = self.args
            trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            decaying = [parameter for parameter in trained if args.weight_decay and parameter.ndim >= 2]
            others = [parameter for parameter in trained if not args.weight_decay or parameter.ndim < 2]
            groups = [{"params": decaying, "weight_decay": args.weight_decay}, {"params": others, "weight_decay": 0.0}]
            self.optimizer = torch.optim.AdamW(
                [group for group in groups if group["params"]],
                lr=args.learning_rate,
                betas=(args.adam_beta1, args.adam_beta2),
                eps=args.adam_epsilon,
            )
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> Any:
        """The schedule that `lr_scheduler_type` names, unless one was given."""
        if self._makes_scheduler:
            warmup = self.args.get_warmup_steps(num_training_steps)
            optimizer = optimizer or self.create_optimizer()
            self.lr_scheduler = get_scheduler(self.args.lr_scheduler_type, optimizer, warmup, num_training_steps)
        return self.lr_scheduler

    # ---- training -----------------------------------------------------------------------------------------------

    def train(self, resume_from_checkpoint: str | os.PathLike[str] | bool | None = None) -> TrainOutput:
        """Train from the start, or on from a checkpoint: the folder named, or the last one with True.

        Whatever ends the training by an error, callbacks are told by `on_exception`, and the error goes on.
        """
        self.is_in_train = True
        try:
            return self._train(resume_from_checkpoint)
        except BaseException as error:
            self.control = self.callback_handler.on_exception(self.args, self.state, self.control, exception=error)
            raise
        finally:
            self.is_in_train = False

    def _train(self, resume_from_checkpoint: str | os.PathLike[str] | bool | None) -> TrainOutput:
        args = self.args
        loader = self.get_train_dataloader()
        plan = Plan.of(args, loader, self.processes.world_size)
        checkpoint = None
        if resume_from_checkpoint not in (None, False):
            checkpoint = checkpoints.find_checkpoint(resume_from_checkpoint, args.output_dir)
        first_epoch, first_batch = self._begin(plan, loader, checkpoint)
        if checkpoint is not None:
            step, last_step = self.state.global_step, self.state.max_steps
            rest = ": nothing is left to train" if 0 < last_step <= step else ""
            self._say(f"Resuming from {checkpoint.name} at step {step} of {last_step}{rest}")

        self._loss = RunningLoss(self.processes, skips_non_finite=args.logging_nan_inf_filter)
        self._last_logged_step = first_step = self.state.global_step
        self._clear_gradients()
        self.control = self.callback_handler.on_train_begin(args, self.state, self.control)
        start_time = time.perf_counter()  # trackers have started by now: that is no part of the training's speed
        if args.eval_on_start:
            self.evaluate()

        epochs = range(first_epoch, plan.num_train_epochs)
        if checkpoint is not None and self._is_over():
            epochs = range(0)
        for epoch in epochs:
            self.control = self.callback_handler.on_epoch_begin(args, self.state, self.control)
            batches = iterate_epoch(loader, epoch, self._data_seed, self.processes.rank, first_batch)
            with contextlib.closing(batches):
                if epoch == first_epoch and checkpoint is not None:
                    self._restore_random_states(checkpoint)
                self._train_epoch(plan, epoch, batches, first_batch)
            first_batch = 0
            if self._agree().should_training_stop:
                break
        return self._finish(plan, self.state.global_step - first_step, time.perf_counter() - start_time)

    def _say(self, line: str) -> None:
        if self.processes.is_first:
            say(line)

    def _is_over(self) -> bool:
        """Whether a resumed training had come to its end, or to what a callback takes for its end."""
        return self._agree().should_training_stop or 0 < self.state.max_steps <= self.state.global_step

    def _begin(self, plan: Plan, loader: Any, checkpoint: Path | None) -> tuple[int, int]:
        """Set up state, model, optimizer and schedule; the epoch to begin with, and the batches done of it."""
        if checkpoint is not None:
            checkpoints.load_weights(checkpoint, self.model)
            self.state = TrainerState.load_from_json(checkpoint / STATE_NAME)
            first_epoch, first_batch = plan.position(self.state, self.args.gradient_accumulation_steps)
            self._restore_callbacks()
        else:
            self.state = self._new_state()
            self.state.compute_steps(self.args, plan.max_steps)
            first_epoch, first_batch = 0, 0
        self.state.max_steps = plan.max_steps
        self.state.num_train_epochs = plan.num_train_epochs
        self.state.train_batch_size = plan.train_batch_size
        self.state.is_local_process_zero = self.is_local_process_zero()
        self.state.is_world_process_zero = self.is_world_process_zero()
        self._flos = 0.0

        self.model_wrapped = self._wrap()
        self.create_optimizer()
        self.create_scheduler(plan.max_steps)
        if checkpoint is not None:
            self._restore_optimizer(checkpoint)
        handler = self.callback_handler
        handler.model, handler.optimizer, handler.lr_scheduler = self.model, self.optimizer, self.lr_scheduler
        handler.train_dataloader = loader
        return first_epoch, 0 if self.args.ignore_data_skip else first_batch

    def _wrap(self) -> nn.Module:
        """The model as it is called in training: compiled, and in step with the other processes."""
        if self.model_wrapped is not self.model:
            return self.model_wrapped
        model: nn.Module = self.model
        if not self.processes.is_alone:
            devices = [self.processes.device] if self.processes.device.type == "cuda" else None
            unused = self.args.ddp_find_unused_parameters
            model = DistributedDataParallel(model, device_ids=devices, find_unused_parameters=unused)
        if self.args.torch_compile:
            backend, mode = self.args.torch_compile_backend or "inductor", self.args.torch_compile_mode
            model = torch.compile(model, backend=backend, mode=mode)  # type: ignore[assignment]
        return model

    def _train_epoch(self, plan: Plan, epoch: int, batches: Iterator[Any], done: int) -> None:
        """Train on the rest of an epoch, of whose batches some may be done."""
        accumulation = self.args.gradient_accumulation_steps
        self._grad_norm = self._learning_rate = None
        was_empty = done == 0
        while done < plan.batches_per_epoch:
            # The batches of a step are fetched together, so that each of them knows its share of the step.
            step_batches = list(itertools.islice(batches, min(accumulation, plan.batches_per_epoch - done)))
            if not step_batches:
                break
            was_empty = False
            done += len(step_batches)
            is_whole = done % accumulation == 0 or done == plan.batches_per_epoch
            self._train_step(step_batches, is_whole, epoch + done / plan.batches_per_epoch)
            if self._is_to_stop():
                break
        if was_empty:
            self._stop_for_lack_of_data(epoch)
        self.control = self.callback_handler.on_epoch_end(self.args, self.state, self.control)
        self._log_evaluate_save()

    def _train_step(self, batches: list[Any], is_whole: bool, epoch: float) -> None:
        """One optimizer step; without it where the data end before the step `is_whole`. `epoch`: the time after it."""
        args, handler = self.args, self.callback_handler
        self.current_gradient_accumulation_steps = len(batches)
        self.control = handler.on_step_begin(args, self.state, self.control)
        if self._has_gradients:
            self._clear_gradients()
        for number, inputs in enumerate(batches, start=1):
            if is_whole and number == len(batches):
                self._train_batch(inputs)
                self._step_optimizer()
                self.state.global_step += 1
                self.state.epoch = epoch
                self.control = handler.on_step_end(args, self.state, self.control)
                self._log_evaluate_save()
            else:
                with self._without_exchange():
                    self._train_batch(inputs)
                self.control = handler.on_substep_end(args, self.state, self.control)
                self._agree()
                if self._is_to_stop():
                    return

    def _train_batch(self, inputs: Any) -> None:
        self._has_gradients = True
        self._loss.add(self.training_step(self.model_wrapped, inputs), 1 / self.current_gradient_accumulation_steps)
        self._flos += self.floating_point_ops(inputs)

    def training_step(self, model: nn.Module, inputs: Any) -> torch.Tensor:
        """Forward and backward pass of a batch; its share of the loss of the step, detached."""
        if not self.model.training:
            model.train()
        inputs = self._prepare_inputs(inputs)
        with self._autocast:
            loss = self.compute_loss(model, inputs)
        if self.current_gradient_accumulation_steps > 1:
            loss = loss / self.current_gradient_accumulation_steps
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        return loss.detach()

    def _step_optimizer(self) -> None:
        assert self.optimizer is not None
        args, handler = self.args, self.callback_handler
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        self._grad_norm = self._clip_gradients()
        self.control = handler.on_pre_optimizer_step(args, self.state, self.control)
        was_skipped = False
        if self.scaler is None:
            self.optimizer.step()
        else:
            scale = self.scaler.get_scale()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            was_skipped = self.scaler.get_scale() < scale
        self.control = handler.on_optimizer_step(args, self.state, self.control)
        self._learning_rate = self._current_learning_rate()
        if not was_skipped and not isinstance(self.lr_scheduler, ReduceLROnPlateau):
            self.lr_scheduler.step()
        self._clear_gradients()

    def _clip_gradients(self) -> torch.Tensor:
        """Clip the gradients; their norm before that."""
        if self.args.max_grad_norm:
            return nn.utils.clip_grad_norm_(self._parameters, self.args.max_grad_norm)
        norms = [parameter.grad.norm() for parameter in self._parameters if parameter.grad is not None]
        return torch.stack(norms).norm() if norms else torch.zeros(())

    def _clear_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None
        self._has_gradients = False

    def _current_learning_rate(self) -> Any:
        assert self.optimizer is not None
        return self.optimizer.param_groups[0]["lr"]

    def _without_exchange(self) -> contextlib.AbstractContextManager[Any]:
        """Where gradients are not exchanged with other processes, since more are to come."""
        no_sync = getattr(self.model_wrapped, "no_sync", None) if not self.processes.is_alone else None
        context: contextlib.AbstractContextManager[Any] = contextlib.nullcontext() if no_sync is None else no_sync()
        return context

    def floating_point_ops(self, inputs: Any) -> float:
        """Operations that a batch cost, where the model can tell by `floating_point_ops(inputs)`; else 0."""
        return self._floating_point_ops(inputs) if self._floating_point_ops else 0.0

    def _store_flos(self) -> None:
        """Add what was counted here since the last time, by all processes."""
        self.state.total_flos += self.processes.sum([self._flos])[0]
        self._flos = 0.0

    # ---- control ------------------------------------------------------------------------------------------------

    def _agree(self) -> TrainerControl:
        """Take over what callbacks asked for in other processes, so that all do the same."""
        if not self.processes.is_alone:
            asked = [getattr(self.control, flag) for flag in FLAGS]
            for flag, is_set in zip(FLAGS, self.processes.agree(asked), strict=True):
                setattr(self.control, flag, is_set)
        return self.control

    def _is_to_stop(self) -> bool:
        return self.control.should_epoch_stop or self.control.should_training_stop

    def _log_evaluate_save(self) -> None:
        """Do what callbacks asked for."""
        if self._agree().should_log and self.state.global_step > self._last_logged_step:
            self._log_training()
            self._agree()
        if self.control.should_evaluate:
            metrics = self._evaluate_and_adapt()
            is_best = self._note_best(metrics)
            if is_best and (self.args.load_best_model_at_end or self.args.save_strategy == "best"):
                self.control.should_save = True
            self._agree()
        if self.control.should_save:
            self._save_checkpoint()
            self.control = self.callback_handler.on_save(self.args, self.state, self.control)
            self._agree()

    def _log_training(self) -> None:
        logs = {"loss": self._loss.take()}
        if self._grad_norm is not None:
            logs["grad_norm"] = self._grad_norm
        logs["learning_rate"] = self._current_learning_rate() if self._learning_rate is None else self._learning_rate
        self._last_logged_step = self.state.global_step
        self._store_flos()
        self.log(logs)

    def _evaluate_and_adapt(self) -> dict[str, Any]:
        """Evaluate, and let a schedule that follows a metric take its step."""
        metrics = self.evaluate()
        if isinstance(self.lr_scheduler, ReduceLROnPlateau):
            self.lr_scheduler.step(self._monitored(metrics, self.args.metric_for_best_model or "loss"))
        return metrics

    def _note_best(self, metrics: Mapping[str, Any]) -> bool:
        """Whether this evaluation is the best so far."""
        name = self.args.metric_for_best_model
        if name is None:
            return False
        value = self._monitored(metrics, name)
        if not improves(value, self.state.best_metric, self.args.greater_is_better):
            return False
        self.state.best_metric = value
        if self.args.save_strategy != "no":
            self.state.best_global_step = self.state.global_step
        return True

    @staticmethod
    def _monitored(metrics: Mapping[str, Any], name: str) -> Any:
        value = monitored(metrics, name)
        if value is None:
            raise KeyError(
                _Sentence(
                    f"metric_for_best_model={name!r} is not among the metrics of the evaluation; choose one of "
                    f"{', '.join(sorted(metrics))}."
                )
            )
        return value

    def _stop_for_lack_of_data(self, epoch: int) -> None:
        if self.state.global_step == 0:
            raise ValueError("The training data yield no batch: the iterable dataset gave not a single item.")
        logger.warning(
            "The training data yield no more batch in epoch %d, so training stops at step %d of %d.",
            epoch,
            self.state.global_step,
            self.state.max_steps,
        )
        self.control.should_training_stop = True

    def _finish(self, plan: Plan, steps: int, seconds: float) -> TrainOutput:
        """The last log, the best model, the checkpoints that are to stay."""
        self._store_flos()
        loss = self._loss.overall()
        samples = plan.num_samples * steps / max(self.state.max_steps, 1)
        metrics = speed("train", seconds, samples, steps)
        metrics |= {"total_flos": self.state.total_flos, "train_loss": loss, "epoch": self.state.epoch}
        # Of a finished training that is resumed, the results are logged already, and these are none.
        has_trained = steps > 0 or self.state.global_step == 0
        self.log(metrics if has_trained else {"total_flos": self.state.total_flos})
        self._keep_the_best()
        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)
        return TrainOutput(self.state.global_step, loss, metrics)

    def _keep_the_best(self) -> None:
        """Load the best model and delete the other checkpoints, where that is asked for and possible."""
        best = self.state.best_model_checkpoint
        if self.args.load_best_model_at_end and (best is None or not os.path.isdir(best)):
            logger.warning("There is no checkpoint of the best model to load; the model is that of the last step.")
        elif self.args.load_best_model_at_end and best is not None:
            checkpoints.load_weights(Path(best), self.model)
            self._say(f"Loaded the best model: {Path(best).name}")
        self.processes.wait()
        if best is not None and self.args.save_total_limit == 1 and self.processes.is_first:
            checkpoints.remove_all_but(Path(self.args.output_dir), Path(best))

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def save_model(self, output_dir: str | os.PathLike[str] | None = None) -> None:
        """Write the model, and the processing class if it can be saved, to a folder; by default `args.output_dir`."""
        if self.processes.is_first:
            folder = Path(self.args.output_dir if output_dir is None else output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            checkpoints.save_weights(self.model, folder)
            if hasattr(self.processing_class, "save_pretrained"):
                self.processing_class.save_pretrained(folder)

    def _save_checkpoint(self) -> None:
        self._store_flos()
        output_dir = Path(self.args.output_dir)
        folder = output_dir / checkpoints.checkpoint_name(self.state.global_step)
        with checkpoints.new_checkpoint(folder, self.processes) as partial:
            self.save_model(partial)
            if not self.args.save_only_model:
                torch.save(random_states(), partial / checkpoints.random_states_name(self.processes))
                if self.processes.is_first:
                    self._save_optimizer(partial)
            self._note_best_checkpoint(folder)
            self.state.stateful_callbacks |= export_states(self._exportable())
            if self.processes.is_first:
                self.state.save_to_json(partial / STATE_NAME)
        if self.processes.is_first:
            best = self.state.best_model_checkpoint
            checkpoints.remove_surplus(output_dir, self.args.save_total_limit, folder, best)

    def _save_optimizer(self, folder: Path) -> None:
        assert self.optimizer is not None
        torch.save(self.optimizer.state_dict(), folder / checkpoints.OPTIMIZER_NAME)
        torch.save(self.lr_scheduler.state_dict(), folder / checkpoints.SCHEDULER_NAME)
        if self.scaler is not None:
            torch.save(self.scaler.state_dict(), folder / checkpoints.SCALER_NAME)

    def _note_best_checkpoint(self, new: Path) -> None:
        """The best checkpoint is that of the best step, if it is this `new` one or was saved before."""
        if self.state.best_global_step is None or self.args.save_strategy == "no":
            return
        best = new.with_name(checkpoints.checkpoint_name(self.state.best_global_step))
        if best == new or best.is_dir():
            self.state.best_model_checkpoint = str(best)

    def _restore_optimizer(self, checkpoint: Path) -> None:
        assert self.optimizer is not None
        parts = [
            (self.optimizer, checkpoints.OPTIMIZER_NAME),
            (self.lr_scheduler, checkpoints.SCHEDULER_NAME),
            (self.scaler, checkpoints.SCALER_NAME),
        ]
        for part, name in parts:
            saved = checkpoints.load(checkpoint / name) if part is not None else None
            if saved is not None:
                checkpoints.load_state(part, saved, checkpoint / name)
            elif part is not None:
                logger.warning("%s has no %s, so the %s starts anew.", checkpoint, name, type(part).__name__)

    def _restore_random_states(self, checkpoint: Path) -> None:
        states = checkpoints.load(checkpoint / checkpoints.random_states_name(self.processes))
        if states is None:
            logger.warning(
                "%s has no random states for this process: the training will not be exactly the one that was "
                "interrupted.",
                checkpoint,
            )
        else:
            restore_random_states(states)

    def _restore_callbacks(self) -> None:
        """Restore the counts of early stopping, or with `restore_callback_states_from_checkpoint` all states.

        In the latter case callbacks and control are built anew from what was saved, constructor arguments included.
        """
        remaining = {
            name: list(states) if isinstance(states, list) else [states]
            for name, states in (self.state.stateful_callbacks or {}).items()
        }
        for item in self._exportable():
            states = remaining.get(type(item).__name__)
            if not states:
                continue
            saved = states.pop(0)
            if self.args.restore_callback_states_from_checkpoint:
                self._rebuild(item, saved)
            elif hasattr(item, "early_stopping_patience_counter"):  # that of `transformers` has it too
                item.early_stopping_patience_counter = saved["attributes"]["early_stopping_patience_counter"]

    def _rebuild(self, item: Any, saved: dict[str, Any]) -> None:
        rebuilt = type(item)(**saved.get("args", {}))
        for name, value in saved.get("attributes", {}).items():
            setattr(rebuilt, name, value)
        if item is self.control:
            self.control = rebuilt
        else:
            self.remove_callback(item)
            self.add_callback(rebuilt)


class _Sentence(str):
    """A KeyError shows its key as Python would write it; this one is shown as it reads."""

    __repr__ = str.__str__


def _check(args: TrainingArguments, train_dataset: Any, eval_dataset: Any, optimizers: tuple[Any, Any]) -> None:
    """Refuse what can be known to fail later."""
    if args.eval_strategy != "no" and eval_dataset is None:
        raise ValueError(
            f'eval_strategy="{args.eval_strategy}", but there is nothing to evaluate on; pass eval_dataset=..., or '
            'set eval_strategy="no".'
        )
    if args.save_strategy == "best" and args.metric_for_best_model is None:
        raise ValueError('save_strategy="best" needs to know what is best; set metric_for_best_model="loss".')
    if train_dataset is not None:
        check_is_bounded(train_dataset, args)
    if optimizers[0] is None and optimizers[1] is not None:
        raise ValueError("A schedule belongs to an optimizer; pass both: optimizers=(optimizer, scheduler).")


def _make_writable(output_dir: str) -> None:
    """Make the folder, and see that files can be made in it, before anything is computed."""
    probe = Path(output_dir) / f".probe-{os.getpid()}"
    try:
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(
            error.errno or errno.EACCES,
            f"output_dir={output_dir!r} cannot be written to ({error.strerror}); choose another one",
        ) from error
