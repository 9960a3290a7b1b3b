"""What a person at the terminal sees of a training."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, TextIO

from trackside.callbacks import TrainerCallback
from trackside.state import TrainerControl, TrainerState
from trackside.values import Redaction, describe

_UNCOUNTABLE_STEPS = 2**31
_SPEEDS = ("_runtime", "_samples_per_second", "_steps_per_second", "_model_preparation_time")
_redact = Redaction()


class PrinterCallback(TrainerCallback):
    """Prints each log on a line of its own."""

    def __init__(self, max_str_len: int = 100) -> None:
        self.max_str_len = max_str_len

    def on_log(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if state.is_local_process_zero and logs:
            show(format_logs(logs, state, self.max_str_len), sys.stdout)


class ProgressCallback(TrainerCallback):
    """A progress bar of the training, one of each evaluation, and the logs as lines above them.

    `bars` and `lines` switch the two separately. By default (None) there are bars where standard error is a terminal
    and tqdm is installed; elsewhere the logs are plain lines, fit for a file. Other ranks show nothing.
    """

    def __init__(self, max_str_len: int = 100, *, bars: bool | None = None, lines: bool = True) -> None:
        self.max_str_len = max_str_len
        self.bars = bars
        self.lines = lines
        self.training_bar: Any = None
        self.prediction_bar: Any = None

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._close()
        if state.is_world_process_zero:
            total = state.max_steps if 0 < state.max_steps < _UNCOUNTABLE_STEPS else None
            self.training_bar = self._bar(total=total, initial=state.global_step, unit="step")

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.training_bar is not None:
            self.training_bar.update(state.global_step - self.training_bar.n)

    def on_prediction_step(
        self, args: Any, state: TrainerState, control: TrainerControl, eval_dataloader: Any = None, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        if self.prediction_bar is None:
            is_alone = self.training_bar is None
            self.prediction_bar = self._bar(total=_length(eval_dataloader), leave=is_alone, unit="batch")
        if self.prediction_bar is not None:
            self.prediction_bar.update(1)

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._close_prediction_bar()

    def on_predict(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._close_prediction_bar()

    def on_log(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not (self.lines and logs and state.is_world_process_zero):
            return
        line = format_logs(logs, state, self.max_str_len)
        bar = self.training_bar if self.prediction_bar is None else self.prediction_bar
        with nullcontext() if bar is None else bar.external_write_mode(sys.stdout):
            show(line, sys.stdout)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._close()

    def on_exception(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._close()

    def _bar(self, **options: Any) -> Any:
        if not (_is_terminal() if self.bars is None else self.bars):
            return None
        try:
            from tqdm import tqdm
        except ImportError:
            return None
        return tqdm(dynamic_ncols=True, **options)

    def _close_prediction_bar(self) -> None:
        if self.prediction_bar is not None:
            self.prediction_bar.close()
            self.prediction_bar = None

    def _close(self) -> None:
        self._close_prediction_bar()
        if self.training_bar is not None:
            self.training_bar.close()
            self.training_bar = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "training_bar": None, "prediction_bar": None}


def format_logs(logs: Mapping[str, Any], state: TrainerState, max_str_len: int = 100) -> str:
    """One line for a person: where the training is, then each value, `step 20/900  loss 0.4132`."""
    known = 0 < state.max_steps < _UNCOUNTABLE_STEPS
    where = f"step {state.global_step}/{state.max_steps}" if known else f"step {state.global_step}"
    plain = _redact(describe(logs))
    shown = [f"{key} {_format(value, max_str_len)}" for key, value in plain.items() if not _is_aside(key)]
    return "  ".join([where, *shown])


def _is_aside(key: str) -> bool:
    """Whether a value is for trackers only: it would make lines longer than a terminal is wide."""
    is_speed = key.startswith(("eval_", "test_")) and key.endswith(_SPEEDS)
    return is_speed or key in ("total_flos", "train_steps_per_second")


def _format(value: Any, max_str_len: int) -> str:
    text = _rounded(value) if isinstance(value, float) else str(value)
    return text if len(text) <= max_str_len else f"{text[:max_str_len]}... ({len(text)} characters)"


def _rounded(value: float) -> str:
    """Four digits, and a power of ten only where the whole number would be hard to read."""
    text = f"{value:.4g}"
    return f"{value:,.0f}" if "e+" in text and abs(value) < 1e9 else text


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def say(line: str) -> None:
    """A line for the person at the terminal that is neither a log of the training nor a warning."""
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
    with tqdm.external_write_mode(sys.stderr) if tqdm and _is_terminal() else nullcontext():
        show(line, sys.stderr)


def show(line: str, stream: TextIO | None) -> None:
    """Print a line. A stream that is gone, or that cannot spell it, is no reason to end a training."""
    if stream is None:
        return
    try:
        print(line, file=stream, flush=hasattr(stream, "flush"))
    except UnicodeEncodeError:
        show(line.encode("ascii", "backslashreplace").decode(), stream)
    except (OSError, ValueError):  # a closed pipe, a lost terminal; a closed file
        pass


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or one that can only write; it is closed
        return False
