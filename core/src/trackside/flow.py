"""The default flow of a training (when to log, evaluate, save and stop), early stopping, and what "better" means."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from trackside.callbacks import TrainerCallback
from trackside.console import say
from trackside.spelling import ChecksArguments
from trackside.state import ExportableState, TrainerControl, TrainerState

logger = logging.getLogger(__name__)


def improves(value: float, best: float | None, greater_is_better: bool | None) -> bool:
    """Whether `value` is better than the best so far (None: there is none). nan is never better."""
    if math.isnan(value):
        return False
    if best is None:
        return True
    return value > best if greater_is_better else value < best


def monitored(metrics: Mapping[str, Any], name: str | None) -> Any:
    """The metric that `metric_for_best_model` names, with or without its prefix `eval_`; None if it is not there."""
    if name is None:
        return None
    return metrics.get(metric_key(name))


def metric_key(name: str) -> str:
    return name if name.startswith("eval_") else f"eval_{name}"


class DefaultFlowCallback(TrainerCallback):
    """Asks for logs, evaluations and saves by the strategies of the arguments, and ends training at `max_steps`."""

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        step = state.global_step
        is_last = step >= state.max_steps
        if args.logging_strategy == "steps" and step % state.logging_steps == 0:
            control.should_log = True
        if step == 1 and args.logging_first_step:
            control.should_log = True
        if args.eval_strategy == "steps" and args.eval_delay <= step and (is_last or step % state.eval_steps == 0):
            control.should_evaluate = True
        if args.save_strategy == "steps" and (is_last or (state.save_steps > 0 and step % state.save_steps == 0)):
            control.should_save = True
        if is_last:
            control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if args.logging_strategy == "epoch":
            control.should_log = True
        if args.eval_strategy == "epoch" and args.eval_delay <= (state.epoch or 0):
            control.should_evaluate = True
        if args.save_strategy == "epoch":
            control.should_save = True


class EarlyStoppingCallback(ChecksArguments, TrainerCallback, ExportableState):
    """Stops training after `early_stopping_patience` evaluations in a row without a better metric.

    Better means: better than `state.best_metric` by more than `early_stopping_threshold`; where a loop keeps no best
    metric, better than all before. nan is no improvement; with `stop_on_nan` it stops at once. The count is kept in the
    checkpoints: a training that was stopped does not go on when it is resumed, unless with more patience.
    """

    def __init__(
        self,
        early_stopping_patience: int = 1,
        early_stopping_threshold: float | None = 0.0,
        *,
        stop_on_nan: bool = False,
    ) -> None:
        self.early_stopping_patience = early_stopping_patience
        self.early_stopping_threshold = early_stopping_threshold
        self.stop_on_nan = stop_on_nan
        self.early_stopping_patience_counter = 0
        self._best: float | None = None
        self._has_warned = False

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if args.metric_for_best_model is None:
            raise ValueError('EarlyStoppingCallback needs a metric to watch: set metric_for_best_model="loss".')
        if args.eval_strategy == "no":
            raise ValueError('EarlyStoppingCallback needs evaluations: set eval_strategy to "steps" or "epoch".')
        if not args.load_best_model_at_end:
            logger.warning(
                "EarlyStoppingCallback without load_best_model_at_end=True: the model will be that of the last step, "
                "not the best one."
            )
        self._best = None
        if state.global_step > 0 and self._is_out_of_patience():
            control.should_training_stop = True
            if state.is_world_process_zero:
                reason = self._reason(args.metric_for_best_model, state)
                say(f"Nothing is left to train: {reason}; raise early_stopping_patience to go on.")

    def on_evaluate(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        metrics = metrics or {}
        value = monitored(metrics, args.metric_for_best_model)
        if value is None:
            self.warn_once(args.metric_for_best_model, metrics)
            return
        best = self._best if state.best_metric is None else state.best_metric
        self._best = value if improves(value, best, args.greater_is_better) else best
        if self._is_improvement(value, best, args.greater_is_better):
            self.early_stopping_patience_counter = 0
        else:
            self.early_stopping_patience_counter += 1
        if self._is_out_of_patience() or (self.stop_on_nan and math.isnan(value)):
            is_early = not control.should_training_stop and not 0 < state.max_steps <= state.global_step
            control.should_training_stop = True
            if is_early and state.is_world_process_zero:
                say(f"Stopped at step {state.global_step}: {self._reason(args.metric_for_best_model, state)}.")

    def _is_out_of_patience(self) -> bool:
        return self.early_stopping_patience_counter >= self.early_stopping_patience

    def _is_improvement(self, value: float, best: float | None, greater_is_better: bool | None) -> bool:
        threshold = self.early_stopping_threshold or 0.0
        return improves(value, best, greater_is_better) and (best is None or abs(value - best) > threshold)

    def _reason(self, name: str, state: TrainerState) -> str:
        """Why there is nothing more to be had: `eval_loss has not improved for 3 evaluations (best 0.1 at step 20)`."""
        count = self.early_stopping_patience_counter
        if not self._is_out_of_patience():
            return f"{metric_key(name)} is nan"
        margin = f" by more than {self.early_stopping_threshold:g}" if self.early_stopping_threshold else ""
        evaluations = "1 evaluation" if count == 1 else f"{count} evaluations"
        return f"{metric_key(name)} has not improved{margin} for {evaluations}{self._best_so_far(state)}"

    def _best_so_far(self, state: TrainerState) -> str:
        best = state.best_metric if self._best is None else self._best
        if best is None:
            return ""
        is_known = best == state.best_metric and state.best_global_step is not None
        return f" (best {best:.4g}{f' at step {state.best_global_step}' if is_known else ''})"

    def warn_once(self, name: str, metrics: Mapping[str, Any]) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("EarlyStoppingCallback watches %r, which is not among %s.", name, ", ".join(sorted(metrics)))

    def state(self) -> dict[str, Any]:
        return {
            "args": {
                "early_stopping_patience": self.early_stopping_patience,
                "early_stopping_threshold": self.early_stopping_threshold,
            },
            "attributes": {"early_stopping_patience_counter": self.early_stopping_patience_counter},
        }
