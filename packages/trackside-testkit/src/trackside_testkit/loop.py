"""A training loop without training: the events, the state and the files of one, in milliseconds and without torch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trackside import CallbackHandler, DefaultFlowCallback, ExportableState, TrainerControl, TrainerState
from trackside.flow import improves, monitored
from trackside.state import STATE_NAME, export_states


@dataclass
class FakeArguments:
    """Arguments as a user of a Trainer has them, under the same names: plain, nested, and one that is a secret."""

    output_dir: str | os.PathLike[str] = "out"
    run_name: str | None = None
    learning_rate: float = 0.1
    num_train_epochs: int = 2
    max_steps: int = -1
    per_device_train_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    logging_strategy: str = "steps"
    logging_first_step: bool = False
    logging_steps: float = 1
    eval_strategy: str = "epoch"
    eval_delay: float = 0
    eval_steps: float | None = None
    save_strategy: str = "epoch"
    save_steps: float = 500
    load_best_model_at_end: bool = False
    metric_for_best_model: str | None = None
    greater_is_better: bool | None = None
    seed: int = 42
    disable_tqdm: bool = True
    report_to: list[str] = field(default_factory=list)
    label_names: list[str] | None = None
    lr_scheduler_kwargs: dict[str, Any] = field(default_factory=lambda: {"warmup": {"steps": 3}})
    hub_model_id: str | None = None
    hub_token: str | None = None

    def __post_init__(self) -> None:
        self.output_dir = os.fspath(self.output_dir)


class FakeConfig:
    """A model's configuration."""

    def __init__(self, **values: Any) -> None:
        self.model_type = "fake"
        self.hidden_size = 32
        self.id2label = {0: "no", 1: "yes"}
        vars(self).update(values)

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class FakeModel:
    """A model that has a configuration and nothing else."""

    def __init__(self, config: FakeConfig | None = None) -> None:
        self.config = config or FakeConfig()


class FakeLoop:
    """Runs callbacks, behind the real handler, through the events of `transformers.Trainer` in the same order.

        loop = FakeLoop([MyCallback()], output_dir=tmp_path, num_train_epochs=3)
        loop.train(fail_at=5)

    The losses are made up: 1/2 after the first step, 1/3 after the second, and so on, see `loss`. A checkpoint is a
    small folder with a real `trainer_state.json`. Each training has a state of its own, as in a Trainer.

    Args:
        callbacks: what is to be told; a `DefaultFlowCallback` comes before them.
        args: the arguments of the loop; `FakeArguments` if there are none.
        model: what the callbacks are given as `model`.
        steps_per_epoch: optimizer steps in an epoch.
        rank: of this process in the world; only rank 0 writes checkpoints.
        local_rank: of this process on its node, the same as `rank` if not given.
        arguments: of `FakeArguments`, by name.
    """

    def __init__(
        self,
        callbacks: Iterable[Any] = (),
        args: Any = None,
        model: Any = None,
        *,
        steps_per_epoch: int = 4,
        rank: int = 0,
        local_rank: int | None = None,
        **arguments: Any,
    ) -> None:
        self.args = args or FakeArguments(**arguments)
        self.model = model or FakeModel()
        self.steps_per_epoch = steps_per_epoch
        self.rank = rank
        self.local_rank = rank if local_rank is None else local_rank
        self.handler = CallbackHandler([DefaultFlowCallback(), *callbacks], model=self.model)
        self.control = TrainerControl()
        self.state = self._ranked(TrainerState())
        self._logged_step = 0
        self.fire("on_init_end")

    def fire(self, event: str, **kwargs: Any) -> None:
        """Tell the callbacks of any event, also out of turn."""
        self.control = getattr(self.handler, event)(self.args, self.state, self.control, **kwargs)

    def loss(self, step: int) -> float:
        """The loss of a step; override it to script a training."""
        return 1 / (step + 1)

    def train(
        self,
        resume_from: str | os.PathLike[str] | None = None,
        *,
        fail_at: int | None = None,
        exception: BaseException | None = None,
    ) -> dict[str, Any]:
        """Train, or go on from a checkpoint; returns what is logged at the end.

        With `fail_at` the loop is left in that step, before it is counted, by `exception` (a RuntimeError).
        """
        self.state = self._new_state() if resume_from is None else self._load_state(Path(resume_from))
        self.state.num_train_epochs = self.args.num_train_epochs
        self.state.max_steps = self._max_steps()
        try:
            return self._train(fail_at, exception or RuntimeError(f"step {fail_at} has failed, as it was told to"))
        except BaseException as error:
            self.fire("on_exception", exception=error)
            raise

    def evaluate(self) -> dict[str, Any]:
        """Evaluate: `on_log`, then `on_evaluate` with the same dict."""
        self.fire("on_prediction_step")
        metrics = {"eval_loss": self.loss(self.state.global_step), "eval_accuracy": 0.75, "eval_runtime": 0.5}
        self.log(metrics)
        self.fire("on_evaluate", metrics=metrics)
        return metrics

    def predict(self) -> dict[str, Any]:
        """Predict: `on_predict`, and nothing is logged."""
        self.fire("on_prediction_step")
        metrics = {"test_loss": self.loss(self.state.global_step), "test_runtime": 0.5}
        self.fire("on_predict", metrics=metrics)
        return metrics

    def begin(self, step: int = 0) -> None:
        """Begin a training that the test itself goes on with, and be at a step of it."""
        self.fire("on_train_begin")
        self.state.global_step = step

    def log_at(self, step: int, **logs: Any) -> None:
        """Go to a step, and log there."""
        self.state.global_step = step
        self.log(logs)

    def log(self, logs: dict[str, Any]) -> None:
        """Log at the present step. As in a Trainer, `logs` gets the epoch, and the callbacks get `logs` itself."""
        logs["epoch"] = self.state.epoch
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self.fire("on_log", logs=logs)

    def save(self) -> Path:
        """Save a checkpoint at the present step."""
        folder = Path(self.args.output_dir, f"checkpoint-{self.state.global_step}")
        if self.rank == 0:
            exportable = [callback for callback in self.handler.callbacks if isinstance(callback, ExportableState)]
            self.state.stateful_callbacks.update(export_states(exportable))
            folder.mkdir(parents=True, exist_ok=True)
            self.state.save_to_json(folder / STATE_NAME)
            (folder / "model.bin").write_bytes(b"weights")
            (folder / "training_args.bin").write_bytes(b"a pickle of all arguments")
        self.fire("on_save")
        return folder

    # ---- the parts of a training ------------------------------------------------------------------------------

    def _max_steps(self) -> int:
        return self.args.max_steps if self.args.max_steps > 0 else self.args.num_train_epochs * self.steps_per_epoch

    def _new_state(self) -> TrainerState:
        state = TrainerState(train_batch_size=self.args.per_device_train_batch_size)
        state.compute_steps(self.args, self._max_steps())
        return self._ranked(state)

    def _load_state(self, checkpoint: Path) -> TrainerState:
        state = TrainerState.load_from_json(checkpoint / STATE_NAME)
        for callback in self.handler.callbacks:
            saved = state.stateful_callbacks.get(type(callback).__name__)
            if isinstance(callback, ExportableState) and saved is not None:
                vars(callback).update(saved["attributes"])
        return self._ranked(state)

    def _ranked(self, state: TrainerState) -> TrainerState:
        state.is_world_process_zero = self.rank == 0
        state.is_local_process_zero = self.local_rank == 0
        return state

    def _train(self, fail_at: int | None, exception: BaseException) -> dict[str, Any]:
        self._logged_step = self.state.global_step
        self.fire("on_train_begin")
        while not self.control.should_training_stop and self.state.global_step < self.state.max_steps:
            self._train_epoch(fail_at, exception)
        summary = {"train_runtime": 1.5, "train_samples_per_second": 64.0, "train_loss": 0.25, "total_flos": 1e9}
        self.log(summary)
        self.fire("on_train_end")
        return summary

    def _train_epoch(self, fail_at: int | None, exception: BaseException) -> None:
        self.fire("on_epoch_begin")
        for _ in range(self.state.global_step % self.steps_per_epoch, self.steps_per_epoch):
            self.fire("on_step_begin")
            if self.state.global_step + 1 == fail_at:
                raise exception
            self._step()
            self._serve()
            if self.control.should_epoch_stop or self.control.should_training_stop:
                break
        self.fire("on_epoch_end")
        self._serve()

    def _step(self) -> None:
        for _ in range(self.args.gradient_accumulation_steps - 1):
            self.fire("on_substep_end")
        self.fire("on_pre_optimizer_step")
        self.fire("on_optimizer_step")
        self.state.global_step += 1
        self.state.epoch = self.state.global_step / self.steps_per_epoch
        self.fire("on_step_end")

    def _serve(self) -> None:
        """Do what the callbacks have asked for: log, evaluate, save."""
        if self.control.should_log and self.state.global_step > self._logged_step:
            self._logged_step = self.state.global_step
            loss = self.loss(self.state.global_step)
            self.log({"loss": loss, "grad_norm": 2 * loss, "learning_rate": self.args.learning_rate})
        if self.control.should_evaluate:
            self._keep_best(self.evaluate())
        if self.control.should_save:
            self.save()

    def _keep_best(self, metrics: dict[str, Any]) -> None:
        value = monitored(metrics, self.args.metric_for_best_model)
        if value is not None and improves(value, self.state.best_metric, self.args.greater_is_better):
            self.state.best_metric, self.state.best_global_step = value, self.state.global_step
