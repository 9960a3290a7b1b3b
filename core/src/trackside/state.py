"""The state of a training and the flags that steer it, as users of `transformers.Trainer` know them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import os
import re
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trackside.values import Redaction, describe, redact

logger = logging.getLogger(__name__)

STATE_NAME = "trainer_state.json"

Exportable = TypeVar("Exportable", bound="ExportableState")


class ExportableState:
    """Something whose state goes into each checkpoint and comes back on resume."""

    def state(self) -> dict[str, Any]:
        """`{"args": constructor arguments, "attributes": what is set afterwards}`, plain data only."""
        raise NotImplementedError(f"{type(self).__name__} must say its state in a method `state()`.")

    @classmethod
    def from_state(cls: type[Exportable], state: dict[str, Any]) -> Exportable:
        instance = cls(**state["args"])
        for name, value in state["attributes"].items():
            setattr(instance, name, value)
        return instance


@dataclass
class TrainerControl(ExportableState):
    """What callbacks ask of the loop.

    A request stays until the loop has served it or the next step (for `should_epoch_stop`: epoch, for
    `should_training_stop`: training) begins.
    """

    should_training_stop: bool = False
    should_epoch_stop: bool = False
    should_save: bool = False
    should_evaluate: bool = False
    should_log: bool = False

    def state(self) -> dict[str, Any]:
        return {"args": dataclasses.asdict(self), "attributes": {}}


@dataclass
class TrainerState:
    """What a training has done so far; saved with each checkpoint and given to each callback.

    A step is an optimizer step, whatever the number of batches accumulated for it. The file format is that of
    `transformers`; both libraries read what the other wrote.
    """

    epoch: float | None = 0
    global_step: int = 0
    max_steps: int = 0
    logging_steps: int = 500
    eval_steps: int = 500
    save_steps: int = 500
    train_batch_size: int | None = None
    num_train_epochs: int = 0
    num_input_tokens_seen: int = 0
    total_flos: float = 0
    log_history: list[dict[str, Any]] = field(default_factory=list)
    best_metric: float | None = None
    best_global_step: int | None = None
    best_model_checkpoint: str | None = None
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True
    is_hyper_param_search: bool = False
    trial_name: str | None = None
    trial_params: dict[str, Any] | None = None
    stateful_callbacks: Any = None
    """The states of the callbacks by class name; may be given as the callbacks themselves."""

    def __post_init__(self) -> None:
        self._history = _HistoryLines()
        if not isinstance(self.stateful_callbacks, dict):
            self.stateful_callbacks = export_states(self.stateful_callbacks or ())

    def compute_steps(self, args: Any, max_steps: int) -> None:
        """Take over `args.{logging,eval,save}_steps`; a ratio below 1 becomes that part of `max_steps`, rounded up."""
        for name in ("logging_steps", "eval_steps", "save_steps"):
            steps = getattr(args, name)
            if steps is not None:
                setattr(self, name, math.ceil(max_steps * steps) if steps < 1 else steps)

    def save_to_json(self, json_path: str | os.PathLike[str]) -> None:
        """Write the state as standard JSON: whole or not at all, and without encoding old log entries again.

        JSON has no nan and no infinity. An infinity is written `1e999`, which every reader takes for one, a nan
        `"NaN"`. In the logs and the trial's parameters secrets are hidden, since a checkpoint is handed on.
        """
        names = sorted(spec.name for spec in dataclasses.fields(self))
        lines = [f'  "{name}": {self._encoded(name)}' for name in names]
        _write_atomically(os.fspath(json_path), "{\n" + ",\n".join(lines) + "\n}\n")

    def _encoded(self, name: str) -> str:
        value = getattr(self, name)
        if name == "log_history":
            return self._history.encode(value)
        plain = describe(value)
        return _encode(redact(plain) if name in ("trial_name", "trial_params") else plain)

    @classmethod
    def load_from_json(cls, json_path: str | os.PathLike[str]) -> TrainerState:
        """Read a state that this library or `transformers` wrote, of whatever version.

        Unknown fields are left out, missing ones keep their defaults. A best checkpoint that is gone is looked for
        beside the checkpoint that is read, then forgotten with a warning.

        Raises:
            ValueError: the file is no state, or is cut off.
        """
        path = os.fspath(json_path)
        try:
            with open(path, encoding="utf-8") as file:
                values = _decode(file.read())
        except ValueError as error:
            raise ValueError(
                f"{path} is no readable trainer state ({error}); resume from another checkpoint."
            ) from error
        if not isinstance(values, dict):
            raise ValueError(f"{path} holds a {type(values).__name__}, not a trainer state.")
        known = {spec.name for spec in dataclasses.fields(cls)}
        state = cls(**{name: value for name, value in values.items() if name in known})
        state.log_history = state.log_history or []
        state.best_model_checkpoint = _find_best(state.best_model_checkpoint, path)
        return state


def export_states(objects: Any) -> dict[str, Any]:
    """The states of all exportable objects by class name; a list of states where a class comes several times."""
    states: dict[str, list[Any]] = {}
    for item in objects:
        if not isinstance(item, ExportableState) and not hasattr(item, "state"):
            raise TypeError(f"Only an ExportableState can be saved with a training, not a {type(item).__name__}.")
        states.setdefault(type(item).__name__, []).append(item.state())
    return {name: found if len(found) > 1 else found[0] for name, found in states.items()}


class _HistoryLines:
    """The log history as JSON lines. An entry is encoded when it is first seen, and again only if it was changed."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.lines: list[str] = []
        self._redact = Redaction()

    def encode(self, history: list[dict[str, Any]]) -> str:
        known = self._unchanged(history)
        del self.entries[known:], self.lines[known:]
        for entry in history[known:]:
            plain = describe(entry)
            self.entries.append(plain)
            self.lines.append("    " + _encode(self._redact(plain)))
        return "[\n" + ",\n".join(self.lines) + "\n  ]" if self.lines else "[]"

    def _unchanged(self, history: list[dict[str, Any]]) -> int:
        known = len(self.entries)
        if _equal(history[:known], self.entries):
            return known
        pairs = zip(history, self.entries, strict=False)
        return next((i for i, (entry, seen) in enumerate(pairs) if not _equal(entry, seen)), min(known, len(history)))


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:  # arrays refuse to be compared as a whole
        return False


_STRING_OR_NON_FINITE = r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN'
_STANDARD = {"NaN": '"NaN"', "Infinity": "1e999", "-Infinity": "-1e999"}


def _encode(plain: Any) -> str:
    try:
        return json.dumps(plain, allow_nan=False)
    except ValueError:
        return re.sub(_STRING_OR_NON_FINITE, lambda match: _STANDARD.get(match[0], match[0]), json.dumps(plain))


def _decode(text: str) -> Any:
    return _with_nan(json.loads(text)) if '"NaN"' in text else json.loads(text)


def _with_nan(value: Any) -> Any:
    if value == "NaN":
        return math.nan
    if isinstance(value, list):
        return [_with_nan(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_nan(item) for key, item in value.items()}
    return value


def _write_atomically(path: str, text: str) -> None:
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(partial)
        raise


def _find_best(recorded: str | None, state_path: str) -> str | None:
    if recorded is None or os.path.isdir(recorded):
        return recorded
    checkpoints = os.path.dirname(os.path.dirname(os.path.abspath(state_path)))
    moved = os.path.join(checkpoints, os.path.basename(recorded))
    if os.path.isdir(moved):
        return moved
    logger.warning(
        "The best checkpoint %s of %s is gone; the best model so far cannot be loaded.", recorded, state_path
    )
    return None
