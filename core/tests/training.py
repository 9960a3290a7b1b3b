"""What the core's tests share: arguments as a loop has them, and a reporter that keeps what it is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from trackside import Reporter, TrainerControl, TrainerState


def arguments(**changes: Any) -> SimpleNamespace:
    """The arguments that callbacks of the core read, with the defaults of a Trainer."""
    defaults = {
        "output_dir": "out",
        "run_name": None,
        "logging_strategy": "steps",
        "logging_first_step": False,
        "logging_steps": 10,
        "eval_strategy": "no",
        "eval_steps": None,
        "eval_delay": 0,
        "save_strategy": "no",
        "save_steps": 500,
        "metric_for_best_model": None,
        "greater_is_better": None,
        "load_best_model_at_end": False,
    }
    return SimpleNamespace(**{**defaults, **changes})


class Notebook(Reporter):
    """Writes down each operation, and fails in those that it is told to fail in."""

    name = "notebook"
    reopenable = True

    def __init__(self, failing: tuple[str, ...] = (), **options: Any) -> None:
        super().__init__(**options)
        self.failing = failing
        self.calls: list[tuple[str, Any]] = []

    def note(self, operation: str, content: Any) -> None:
        self.calls.append((operation, content))
        if operation in self.failing:
            raise RuntimeError(f"no {operation} today")

    def start(self, run: Any) -> str:
        self.note("start", run)
        self.run = object()
        return run.tracker_id or f"id-of-{run.id}"

    def log_points(self, points: Any) -> None:
        self.note("log_points", points)

    def log_params(self, params: Any) -> None:
        self.note("log_params", params)

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        self.note("log_text", (key, text, step))

    def finish(self, status: Any) -> None:
        self.note("finish", status)

    def told(self, operation: str) -> list[Any]:
        return [content for name, content in self.calls if name == operation]

    @property
    def points(self) -> list[tuple[int, dict[str, Any]]]:
        return [(point.step, dict(point.values)) for batch in self.told("log_points") for point in batch]

    def is_duplicate_of(self, other: Reporter) -> bool:
        return False


class Loop:
    """Tells reporters what a training tells them."""

    def __init__(self, *reporters: Any, **changes: Any) -> None:
        self.reporters = list(reporters)
        self.args = arguments(**changes)
        self.state = TrainerState()
        self.control = TrainerControl()
        self.model = SimpleNamespace(config={"hidden_size": 8})

    def fire(self, event: str, **kwargs: Any) -> None:
        for reporter in self.reporters:
            getattr(reporter, event)(self.args, self.state, self.control, model=self.model, **kwargs)

    def begin(self, state: TrainerState | None = None) -> None:
        self.state = state or TrainerState()
        self.fire("on_train_begin")

    def log(self, logs: dict[Any, Any], step: int | None = None) -> None:
        self.state.global_step = self.state.global_step if step is None else step
        self.fire("on_log", logs=logs)

    def evaluate(self, metrics: dict[str, Any]) -> None:
        self.log(metrics)
        self.fire("on_evaluate", metrics=metrics)

    def end(self, exception: BaseException | None = None) -> None:
        if exception is None:
            self.fire("on_train_end")
        else:
            self.fire("on_exception", exception=exception)


def kinds(reporter: Notebook) -> list[str]:
    """The operations that it was told of, in order."""
    return [name for name, _ in reporter.calls]
