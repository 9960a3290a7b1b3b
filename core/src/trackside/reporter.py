"""The reporter: events of a training loop in, calls of a tracker out."""

from __future__ import annotations

import atexit
import errno
import logging
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

from trackside.callbacks import TrainerCallback
from trackside.console import say
from trackside.delivery import Delivery
from trackside.mapping import KeyStyle
from trackside.options import env, options_of
from trackside.recorder import Recorder, Seat
from trackside.records import (
    STATE_KEY,
    Artifact,
    Kind,
    Limits,
    Point,
    Record,
    Run,
    Status,
    argument,
    carried_by,
    new_id,
)
from trackside.state import TrainerControl, TrainerState
from trackside.values import describe, redact

logger = logging.getLogger(__name__)

_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOENT)


class StartError(RuntimeError):
    """A tracker that the user named refuses to start."""


class Configured(NamedTuple):
    """Whether a tracker can start without asking anybody anything, and if not, what is missing."""

    ok: bool = True
    why: str = ""

    def __bool__(self) -> bool:
        return self.ok


class Reporter(TrainerCallback, ABC):
    """Reports trainings to one tracker.

    An integration declares what its tracker is like and maps records to calls: `start`, `log_points` and `finish`, and
    of the other operations those that the tracker has. All else is owned here: which rank speaks, when a run starts and
    ends, resuming, gathering and redacting, naming keys, the tracker's limits, and that a failing tracker never ends a
    training. What `start` makes does not travel in a pickle or a copy, which start anew.

    Attributes:
        name: of the integration: its folder, its extra, its entry point.
        sdk: the module that must be importable, None if there is none.
        limits: what the tracker takes.
        key_style: "grouped" (`eval_loss` becomes `eval/loss`, `loss` becomes `train/loss`), "raw", or a function.
        scope: which ranks report: the first of the "world", the first of each "node", or "every" one.
        reopenable: whether a closed run can be continued by its id.
        live: whether it measures or reports the present moment, so that it cannot be replayed.
        handles: attributes given by the user that do not travel in a pickle.
    """

    name: ClassVar[str]
    sdk: ClassVar[str | None] = None
    limits: ClassVar[Limits] = Limits()
    key_style: KeyStyle = "grouped"
    scope: ClassVar[Literal["world", "node", "every"]] = "world"
    reopenable: ClassVar[bool] = False
    live: ClassVar[bool] = False
    handles: ClassVar[tuple[str, ...]] = ()

    resume: str = env(None, "auto")
    """"auto" continues the run that the loop's state carries, "new" never does, anything else is the id to continue."""

    run: Any = None
    """The SDK's own run object; None before the start and on ranks that do not report."""
    tracker_id: str | None = None
    """The tracker's own id of the run that is reported."""
    adopted: bool = False
    """Set by `start` if the run is one that the user opened: it is logged to and never finished."""
    required: bool = True
    """Whether a refusal to start ends the program; false for those that "all" has chosen."""

    _seat: Seat | None = None
    _given: frozenset[str] | None = None

    def __init__(self, **options: Any) -> None:
        known = options_of(type(self))
        for name, value in options.items():
            if name not in known:
                takes = ", ".join(sorted(known))
                raise TypeError(f"{type(self).__name__} has no option {name!r}; it takes {takes}.")
            setattr(self, name, value)

    # ---- what an integration maps -----------------------------------------------------------------------------

    @abstractmethod
    def start(self, run: Run) -> str | None:
        """Open the run, continue `run.tracker_id`, or adopt the user's; return the tracker's own id of it."""

    @abstractmethod
    def log_points(self, points: Sequence[Point]) -> None:
        """Send a batch of points, in order."""

    @abstractmethod
    def finish(self, status: Status) -> None:
        """Close the run with its status, by the tracker's nearest means."""

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Send parameters: flat, plain, with clean keys."""

    def log_summary(self, values: Mapping[str, int | float]) -> None:
        """Send what is one value for the whole run."""

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        """Send a text that belongs to a step."""

    def log_artifact(self, artifact: Artifact) -> None:
        """Send a file or a folder."""

    def flush(self) -> Any:
        """Return when all that was sent survives the death of this process; a position of the tracker's, if any."""

    def attach(self) -> None:
        """Make the run what a user's own code finds (`wandb.run`), if nothing is there yet."""

    def detach(self) -> None:
        """Undo what `attach` did."""

    def where(self) -> str | None:
        """What shows the run to a person: an address or a command. None if the tracker says so itself."""

    def configured(self) -> Configured:
        """Whether it can start: told without importing the SDK, without a network, without asking."""
        return Configured()

    # ---- what a user may override -----------------------------------------------------------------------------

    def setup(self, args: Any, state: TrainerState, model: Any, **kwargs: Any) -> None:
        """Called before each start; may set options of this reporter."""

    # ---- events -----------------------------------------------------------------------------------------------

    def on_train_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        if self._is_inherited:  # a training in a forked child is a run of its own
            self._seat = None
        if self._speaks(state):
            seat = self._take_seat_for_training(args, state, model)
            seat.has_begun = seat.recorder.is_training = True
            self._open(seat, args, state, model, **kwargs)
            if seat.is_open:
                self._carry_id(seat, state)

    def on_log(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        if logs is not None and self._reports(args, state, model):
            self._tell("log", state, values=logs)

    def on_evaluate(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        if metrics is not None and self._reports(args, state, model):
            self._tell("evaluate", state, values=metrics)
            self._close_again()

    def on_predict(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        if metrics is not None and self._reports(args, state, model):
            self._tell("predict", state, values=metrics)
            self._close_again()

    def on_save(
        self, args: Any, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        if self.has("log_artifact") and self._reports(args, state, model):
            name = f"checkpoint-{state.global_step}"
            path = os.path.join(str(argument(args, "output_dir") or "."), name)
            if os.path.isdir(path):
                self._tell("artifact", state, artifact=Artifact(path, name, step=state.global_step))

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._end("finished", state)

    def on_exception(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        exception: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        self._end(status_of(exception), state)

    # ---- the life of a run ------------------------------------------------------------------------------------

    def _speaks(self, state: TrainerState) -> bool:
        """Whether this process is one that reports; a child never reports a run that another process has started."""
        if is_disabled() or self._is_inherited:
            return False
        if self.scope == "every":
            return True
        return state.is_world_process_zero if self.scope == "world" else state.is_local_process_zero

    @property
    def _is_inherited(self) -> bool:
        return self._seat is not None and self._seat.recorder.is_inherited

    def _take_seat_for_training(self, args: Any, state: TrainerState, model: Any) -> Seat:
        """A seat at the run that begins now: a new run, or the one that an evaluation before it has opened."""
        seat, recorder = self._seat, Recorder.find(state)
        if recorder is None and seat is not None and not seat.recorder.is_training and not carried_by(state):
            recorder = seat.recorder
            recorder.belong_to(state)
        if seat is None:
            return self._take_seat(args, state, model, recorder)
        if seat.recorder is recorder and not seat.has_begun:
            return seat
        self.close("failed" if seat.is_unfinished else None)
        if seat.recorder is recorder:  # begun again with the same state: what that carries is of the run before
            state.stateful_callbacks.pop(STATE_KEY, None)
            recorder = None
        return self._take_seat(args, state, model, recorder)

    def _take_seat(self, args: Any, state: TrainerState, model: Any, recorder: Recorder | None) -> Seat:
        if self._given is None:
            self._given = frozenset(vars(self))
        if recorder is None:
            recorder = Recorder(Run.gather(args, state, model))
            recorder.belong_to(state)
        self._seat = seat = recorder.join(self)
        self.run = self.tracker_id = None
        self.adopted = False
        self._delivery = Delivery(self)
        self._warned: set[Any] = set()
        self._failures: Counter[str] = Counter()
        if recorder.has_twin(self):
            seat.is_silent = True
            logger.warning("%s would report this run to one place twice; the second reporter is silent.", self.name)
        return seat

    def _reports(self, args: Any, state: TrainerState, model: Any) -> bool:
        """Whether this reporter reports what happens now. The first event of a run, whichever it is, opens it."""
        if not self._speaks(state):
            return False
        seat, recorder = self._seat, Recorder.find(state)
        if seat is None or (recorder is not seat.recorder and (recorder is not None or seat.has_ended)):
            self.close("failed" if seat is not None and seat.is_unfinished else None)
            seat = self._take_seat(args, state, model, recorder)
        self._open(seat, args, state, model)
        return seat.is_open

    def _open(self, seat: Seat, args: Any, state: TrainerState, model: Any, **kwargs: Any) -> None:
        if seat.is_open or seat.is_silent:
            return
        if seat.was_closed and not self.reopenable:
            self._warn_once("closed", "%s has closed this run; what comes now is not reported to it.", self.name)
            return
        self.setup(args, state, model, **kwargs)
        run = self._run_to_start(seat, state)
        try:
            self.tracker_id = self.start(run)
        except Exception as error:
            seat.is_silent, self.run = True, None
            self._refused(error)
            return
        seat.is_open = True
        _open_reporters[id(self)] = self
        self._carry_id(seat, state)
        if not seat.was_closed:
            say(f"Reporting to {self.name}{self._as_hint()}")
            self._delivery.send_params(run)
        self._call("attach")

    def _run_to_start(self, seat: Seat, state: TrainerState) -> Run:
        """The run as this tracker is told of it: continued by the id that was kept, carried or asked for, or new."""
        run = replace(seat.recorder.run, step=state.global_step)
        if self.tracker_id is not None:
            return replace(run, tracker_id=self.tracker_id)
        if self.resume not in ("auto", "new"):
            return replace(run, tracker_id=self.resume)
        carried = carried_by(state).get("trackers", {}).get(seat.key)
        if carried is None:
            return run
        return replace(run, id=new_id()) if self.resume == "new" else replace(run, tracker_id=str(carried))

    def _carry_id(self, seat: Seat, state: TrainerState) -> None:
        run = seat.recorder.run
        trackers = dict(carried_by(state).get("trackers", {}))
        if self.tracker_id is not None:
            trackers[seat.key] = self.tracker_id
        state.stateful_callbacks[STATE_KEY] = {"run": run.id, "name": run.name, "trackers": trackers}

    def _refused(self, error: Exception) -> None:
        said, reason = describe(error), _reason(error)
        if isinstance(error, OSError) and error.filename is None and error.errno not in _OF_DISKS:  # of a network
            logger.warning("%s cannot be reached (%s); training goes on without it.", self.name, reason)
        elif not self.required:
            logger.warning("%s cannot start (%s) and is left out.", self.name, reason)
        else:
            trouble = "is installed but broken" if isinstance(error, ImportError) else "cannot start"
            raise StartError(
                f"{self.name} {trouble} ({reason}); mend that, or leave {self.name!r} out of report_to."
            ) from (error if redact(said) == said else None)  # the traceback would show it as it is

    def _end(self, status: Status, state: TrainerState) -> None:
        seat = self._seat
        if seat is None or seat.has_ended or not self._speaks(state):
            return
        seat.has_ended = True
        if seat.is_open:
            seat.recorder.tell(seat, "finished", state, status=status)
        if self.reopenable or status != "finished":
            self.close(status)
        elif seat.is_open:
            self._call("flush")

    def _close_again(self) -> None:
        """What follows the end of a training has opened a closed run for itself only."""
        if self._seat is not None and self._seat.has_ended and self.reopenable:
            self.close()

    def close(self, status: Status | None = None) -> None:
        """Close the run, if one is open, as finished or as it was closed before: for a program that wants it done."""
        seat = self._seat
        if seat is None or not seat.is_open:
            return
        status = seat.status = status or seat.status
        seat.is_open, seat.was_closed, seat.has_ended = False, True, True
        _open_reporters.pop(id(self), None)
        if self._is_inherited:
            return
        try:
            self._call("detach")
            self._call("flush")
        finally:  # also when it is interrupted, by somebody who has no patience with a slow flush
            if not self.adopted:
                self._call("finish", status)
            self.run = None
        if self._failures:
            failed = ", ".join(f"{operation} ({count})" for operation, count in self._failures.items())
            logger.warning("%s did not take everything; calls that failed: %s.", self.name, failed)
            self._failures.clear()

    def sent(self) -> str:
        """One line for a person: how much of the latest run was sent, and what shows it."""
        if self._seat is None:
            return f"{self.name}: nothing"
        return f"{self.name}: {self._delivery.sent:,} values of {self._delivery.metrics} metrics{self._as_hint()}"

    def _as_hint(self) -> str:
        hint = self._call("where")
        return "" if hint is None else f"; see the run with: {hint}"

    # ---- the door ---------------------------------------------------------------------------------------------

    def _tell(self, kind: Kind, state: TrainerState, **content: Any) -> None:
        if self._seat is not None:
            recorder = self._seat.recorder
            recorder.deliver(self, recorder.tell(self._seat, kind, state, **content))

    def deliver(self, records: Sequence[Record]) -> None:
        """Bring records of the run, in order, to the tracker."""
        self._delivery.deliver(records)

    def has(self, operation: str) -> bool:
        """Whether the tracker has one of the optional operations."""
        return getattr(type(self), operation) is not getattr(Reporter, operation)

    def _call(self, operation: str, *arguments: Any, failed: Any = None) -> Any:
        """The one door to the tracker: it may fail, which is counted and told once, and never harms the training.

        Returns what the operation returns, or `failed`.
        """
        try:
            return getattr(self, operation)(*arguments)
        except Exception as error:
            self._failures[operation] += 1
            about = operation, type(error)
            self._warn_once(about, "%s: %s failed (%s).", self.name, operation, _reason(error))
            return failed

    def _warn_once(self, about: Any, message: str, *values: Any) -> None:
        if about not in self._warned:
            self._warned.add(about)
            logger.warning(message, *values)

    # ---- copies -----------------------------------------------------------------------------------------------

    def is_twin(self, other: Reporter) -> bool:
        """Whether the other reports to the same place, so that one of the two is enough."""
        return type(self) is type(other) and self._as_given() == other._as_given()

    def _as_given(self) -> dict[str, Any]:
        """What the user set, without what a run has added."""
        names = vars(self).keys() if self._given is None else self._given
        return {name: value for name, value in vars(self).items() if name in names}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self._as_given().items() if name not in self.handles}


def _reason(error: Exception) -> str:
    """What an exception says, without its secrets, and even if it fails to say it."""
    return f"{type(error).__name__}: {redact(describe(error))}"


def status_of(exception: BaseException | None) -> Status:
    """What an exception that left a training means for its run."""
    if isinstance(exception, (KeyboardInterrupt, SystemExit, GeneratorExit)):
        return "killed"
    if any(kind.__name__ == "TrialPruned" for kind in type(exception).__mro__):
        return "pruned"
    return "failed"


def is_disabled() -> bool:
    """Whether `TRACKSIDE_DISABLED` switches all reporting off."""
    return os.environ.get("TRACKSIDE_DISABLED", "").strip().lower() in ("1", "true", "yes", "on")


# Held here, since a training often ends with the function that made its reporters, before the program does.
_open_reporters: dict[int, Reporter] = {}


@atexit.register
def _close_open_reporters() -> None:
    """A run that is open when the program ends is finished if its training was, else it has failed."""
    for reporter in list(_open_reporters.values()):
        if reporter._seat is not None:
            reporter.close("failed" if reporter._seat.is_unfinished else None)
