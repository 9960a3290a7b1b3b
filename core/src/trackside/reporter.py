"""The reporter: events of a training loop in, calls of a tracker out."""

from __future__ import annotations

import errno
import logging
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar, Literal, NamedTuple

from trackside.callbacks import TrainerCallback
from trackside.console import say
from trackside.delivery import FAILED, reason_of, said_by
from trackside.mapping import KeyStyle
from trackside.options import env, options_of
from trackside.recorder import ByIdentity, Ending, Recorder, Session
from trackside.records import (
    STATE_KEY,
    Artifact,
    Limits,
    Point,
    Run,
    Status,
    argument,
    carried_by,
    new_id,
)
from trackside.state import TrainerControl, TrainerState
from trackside.values import describe, redact
from trackside.watch import mind_the_end

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
        scope: which ranks report: the first of the "world", the first of each "node", or "every" one.
        reopenable: whether a closed run can be continued by its id.
        live: whether it measures or reports the present moment, so that it cannot be replayed.
        handles: attributes given by the user that do not travel in a pickle.
    """

    name: ClassVar[str]
    sdk: ClassVar[str | None] = None
    limits: ClassVar[Limits] = Limits()
    scope: ClassVar[Literal["world", "node", "every"]] = "world"
    reopenable: ClassVar[bool] = False
    live: ClassVar[bool] = False
    handles: ClassVar[tuple[str, ...]] = ()

    resume: str = env(None, "auto")
    """"auto" continues the run that the loop's state carries, "new" never does, anything else is the id to continue."""
    key_style: KeyStyle = env(None, "grouped")
    """"grouped" (`eval_loss` becomes `eval/loss`, `loss` becomes `train/loss`), "raw", or a function of the name."""

    run: Any = None
    """The SDK's own run object; None before the start and on ranks that do not report."""
    tracker_id: str | None = None
    """The tracker's own id of the run that is reported."""
    adopted: bool = False
    """Set by `start` if the run is one that the user opened: it is logged to and never finished."""
    required: bool = True
    """Whether a refusal to start ends the program; false for those that "all" has chosen."""

    _session: Session | None = None
    _given: frozenset[str] | None = None

    def __init__(self, **options: Any) -> None:
        known = options_of(type(self))
        for name, value in options.items():
            if name not in known:
                from trackside.spelling import closest

                meant = closest(name, known)
                hint = f", perhaps {meant!r}" if meant else ""
                takes = ", ".join(sorted(known))
                raise TypeError(f"{type(self).__name__} has no option {name!r}{hint}; it takes {takes}.")
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

    def log_file(self, name: str, text: str) -> None:
        """Keep a text that the tracker has taken a part of, as a file of the run: `params/<key>.txt`."""

    def log_artifact(self, artifact: Artifact) -> None:
        """Send a file or a folder."""

    def flush(self) -> Any:
        """Return when all that was sent survives the death of this process; a position of the tracker's, if any.

        `NotImplemented` says that it does not, for now or before `finish`.
        """

    def measured(self) -> Mapping[str, int | float]:
        """What a live reporter has measured of a training that ends: values of the whole run, for all its reporters."""
        return {}

    def attach(self) -> None:
        """Make the run what a user's own code finds (`wandb.run`), if nothing is there yet."""

    def detach(self) -> None:
        """Undo what `attach` did."""

    def where(self) -> str | None:
        """What shows the run to a person: an address or a command. None if the tracker says so itself."""

    def import_sdk(self) -> None:
        """Import the SDK; called before `start`, for one reporter at a time."""
        if self.sdk is not None:
            import_module(self.sdk)

    def place(self) -> Mapping[str, Any]:
        """Options that say where the run is kept, if the SDK knows that by other means: a replay is made with them."""
        return {}

    def configured(self) -> Configured:
        """Whether it can start: told without importing the SDK, without a network, without asking."""
        return Configured()

    # ---- what a user may override -----------------------------------------------------------------------------

    def setup(self, args: Any, state: TrainerState, model: Any, **kwargs: Any) -> None:
        """Called before each start; may set options of this reporter."""

    # ---- events -----------------------------------------------------------------------------------------------

    def on_init_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        lineup = _lineups.get(control) or Lineup()
        lineup.add(self)
        _lineups.set(control, lineup)

    def on_train_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        if self._is_inherited:  # a training in a forked child is a run of its own
            self._session = None
        if self._is_reporting_process(state):
            session = self._join_training(args, state, model)
            session.has_begun = session.recorder.is_training = True
            self._open(session, args, state, model, **kwargs)
            if session.is_open:
                session.carry_id()
            lineup = _lineups.get(control) or Lineup()
            lineup.add(self)
            lineup.wait_if_complete(state)

    def on_epoch_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._session is not None:
            self._wait_for_start(self._session)

    def on_log(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        if logs is not None and (session := self._session_of(args, state, model)):
            session.recorder.tell(session, "log", state, logs)

    def on_evaluate(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        if metrics is not None and (session := self._session_of(args, state, model)):
            session.recorder.tell(session, "evaluate", state, metrics)
            self._settle(session, control)

    def on_predict(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        if metrics is not None and (session := self._session_of(args, state, model)):
            session.recorder.tell(session, "predict", state, metrics)
            self._settle(session, control)

    def on_save(
        self, args: Any, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        name = f"checkpoint-{state.global_step}"
        path = os.path.abspath(os.path.join(str(argument(args, "output_dir") or "."), name))
        if os.path.isdir(path) and (session := self._session_of(args, state, model)):
            artifact = Artifact(path, name, step=state.global_step)
            session.recorder.tell(session, "artifact", state, artifact)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._end("finished", state)
        self._wait_for_ends(control)

    def on_exception(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        exception: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        self._end(status_of(exception), state, exception)
        self._wait_for_ends(control)

    # ---- the life of a run ------------------------------------------------------------------------------------

    def _is_reporting_process(self, state: TrainerState) -> bool:
        """Whether this process is one that reports; a child never reports a run that another process has started."""
        if is_disabled() or self._is_inherited:
            return False
        if self.scope == "every":
            return True
        return state.is_world_process_zero if self.scope == "world" else state.is_local_process_zero

    @property
    def _is_inherited(self) -> bool:
        return self._session is not None and self._session.recorder.is_inherited

    def _join_training(self, args: Any, state: TrainerState, model: Any) -> Session:
        """The session of the run that begins now: a new run, or the one that an evaluation before it has opened."""
        session, recorder = self._session, Recorder.find(state)
        if recorder is None and session is not None and not session.recorder.is_training and not carried_by(state):
            recorder = session.recorder
            recorder.belong_to(state)
        if session is not None and session.recorder is recorder and not session.has_begun:
            return session
        if session is not None:
            self.close("failed" if session.is_unfinished else None)
            if session.recorder is recorder:  # begun again with the same state: what that carries is of the run before
                state.stateful_callbacks.pop(STATE_KEY, None)
                recorder = None
        self._close_former()
        return self._join(args, state, model, recorder)

    def _close_former(self) -> None:
        """Close what earlier trainings have left open by reporters of this kind: each may have made one of its own."""
        for other in list(_open_reporters.values()):
            if type(other) is type(self) and other._session is not None and other._session.has_ended:
                other.close()

    def _join(self, args: Any, state: TrainerState, model: Any, recorder: Recorder | None) -> Session:
        if self._given is None:
            self._given = frozenset(vars(self))
        if recorder is None:
            recorder = Recorder.make(Run.gather(args, state, model))
            recorder.belong_to(state)
        self._session = session = recorder.join(self)
        if recorder.has_duplicate(self):
            session.phase = "silent"
            logger.warning("%s would report this run to one place twice; the second reporter is silent.", self.name)
        return session

    def _session_of(self, args: Any, state: TrainerState, model: Any) -> Session | None:
        """The open session of what happens now, if it is reported; any event may be the first of a run, and open it."""
        session = self._session
        if session is not None and session.is_attached and session.recorder.is_of(state):  # nearly always
            return session
        recorder = Recorder.find(state)
        if session is not None and session.is_open and session.recorder is recorder:
            self._wait_for_start(session)
            self._attach(session)
            return session if session.is_open else None
        if not self._is_reporting_process(state):
            return None
        if session is None or (session.recorder is not recorder and (recorder is not None or session.has_ended)):
            self.close("failed" if session is not None and session.is_unfinished else None)
            session = self._join(args, state, model, recorder)
        self._open(session, args, state, model)
        self._wait_for_start(session)
        return session if session.is_open else None

    def _open(self, session: Session, args: Any, state: TrainerState, model: Any, **kwargs: Any) -> None:
        if session.is_open or session.phase == "silent":
            return
        is_reopened = session.phase == "closed"
        if is_reopened and not self.reopenable:
            self.warn_once("closed", "%s has closed this run; what comes now is not reported to it.", self.name)
            return
        self.setup(args, state, model, **kwargs)
        _open_reporters[id(self)] = self
        mind_the_end(close_unfinished)
        session.phase, session.is_reopened = "starting", is_reopened
        try:
            session.recorder.open(session, self._run_to_start(session, state), is_reopened)
        except Exception as error:
            self._refused(session, error)
        except BaseException:  # interrupted: there is nothing to close
            session.phase = "waiting"
            raise

    def _wait_for_start(self, session: Session) -> None:
        """Let a run that is starting come to be open; raises if its tracker refuses, and the user has named that."""
        if session.phase != "starting":
            return
        try:
            has_started = session.recorder.wait_for_start(session)
        except Exception as error:
            self._refused(session, error)
            return
        session.phase = "open"
        session.carry_id()
        if not session.is_reopened:
            if has_started:
                self.say_where(session)
            else:
                say(f"{self.name} has not started yet; what it is to get is kept until then.")
        self._attach(session)

    def _attach(self, session: Session) -> None:
        """Attach the run in this thread, now or, if it has yet to start elsewhere, with a later event."""
        if session.phase == "open" and not session.is_attached and (self.run is not None or not self.has("attach")):
            session.is_attached = True
            session.delivery.call("attach")

    def _run_to_start(self, session: Session, state: TrainerState) -> Run:
        """The run as this tracker is told of it: continued by the id that was kept, carried or asked for, or new."""
        run = replace(session.recorder.run, step=state.global_step)
        if self.tracker_id is not None:
            return replace(run, tracker_id=self.tracker_id)
        if self.resume not in ("auto", "new"):
            return replace(run, tracker_id=self.resume)
        carried = session.carried_id
        if carried is None:
            return run
        return replace(run, id=new_id()) if self.resume == "new" else replace(run, tracker_id=str(carried))

    def _refused(self, session: Session, error: Exception) -> None:
        session.phase = "silent"
        _open_reporters.pop(id(self), None)
        said, reason = describe(error), reason_of(error)
        if session.is_reopened:  # the training has ended well
            session.phase = "closed"
            message = "%s cannot continue the run (%s); what comes now is not reported to it."
            self.warn_once("continue", message, self.name, reason)
        elif self.is_passing(error):
            logger.warning("%s cannot be reached (%s); training goes on without it.", self.name, reason)
        elif not self.required:
            logger.warning("%s cannot start (%s) and is left out.", self.name, reason)
        else:
            trouble = "is installed but broken" if isinstance(error, ImportError) else "cannot start"
            raise StartError(
                f"{self.name} {trouble} ({reason}); mend that, or leave {self.name!r} out of report_to."
            ) from (error if redact(said) == said else None)  # the traceback would show it as it is

    def leave(self, exception: BaseException) -> None:
        """Close the run if its training has not come to its end, which `exception` has left."""
        session = self._session
        if session is None or not session.is_unfinished:
            return
        if (state := session.recorder.state) is not None:
            self._end(status_of(exception), state, exception)
        self._close(status_of(exception))

    def _end(self, status: Status, state: TrainerState, exception: BaseException | None = None) -> None:
        session = self._session
        if session is None or session.has_ended or not self._is_reporting_process(state):
            return
        session.has_ended = True
        if session.is_open:
            reason = "" if exception is None else said_by(exception)
            ending = Ending(status, reason, session.recorder.measured())
            session.recorder.tell(session, "finished", state, ending)
        if self.reopenable or status != "finished":
            self._close(status)
        else:
            session.is_ending = session.is_open

    def measured_of(self, recorder: Recorder) -> Mapping[str, int | float]:
        """What it has measured of a recorder's run, if it is live and the run is open here."""
        session = self._session
        if not self.live or session is None or session.recorder is not recorder or not session.is_open:
            return {}
        values = session.delivery.call("measured")
        return {} if values is FAILED else values

    def _settle(self, session: Session, control: TrainerControl) -> None:
        """What follows the end of a training has opened a closed run for itself only, or is delivered at once."""
        if session.has_ended and self.reopenable:
            self._close(None)
            self._wait_for_ends(control)
        elif session.has_ended:
            session.recorder.drain(session)

    def close(self, status: Status | None = None) -> None:
        """Close the run, if one is open, as finished or as it was closed before: for a program that wants it done."""
        self._close(status)
        self.wait_for_end()

    def _close(self, status: Status | None) -> None:
        session = self._session
        if session is None or not session.is_open:
            return
        session.phase, session.has_ended, session.is_attached = "closed", True, False
        session.status = status or session.status
        session.is_ending = not self._is_inherited
        if session.is_ending:
            if self.run is not None:
                session.delivery.call("detach")
            session.recorder.close(session, session.status)

    def wait_for_end(self) -> None:
        """Wait, as long as it may take, until the tracker has what a training that has ended has left to be done."""
        session = self._session
        if session is None:
            return
        try:
            if session.is_ending:
                (session.recorder.drain if session.is_open else session.recorder.wait_for_close)(session)
        finally:  # a signal that ends the program meanwhile waits on
            session.is_ending = False
            if not session.is_open:
                _open_reporters.pop(id(self), None)

    def _wait_for_ends(self, control: TrainerControl) -> None:
        """Wait for this run to be closed here, or, as the last reporter of a loop, everywhere."""
        lineup = _lineups.get(control)
        if lineup is None:
            self.wait_for_end()
        elif self._session is not None:
            lineup.wait_if_ended(self._session.recorder)

    # ---- what a person sees, and what an integration may ask ------------------------------------------------------

    def sent(self) -> str:
        """One line for a person: how much of the latest run was sent, and what shows it."""
        session = self._session
        if session is None:
            return f"{self.name}: nothing"
        delivery = session.delivery
        sent = f"{delivery.sent:,} values of {delivery.metrics} metrics"
        if delivery.is_elsewhere:
            sent = f"{delivery.sent:,} values" if delivery.sent else "sent by another process"
        return f"{self.name}: {sent}{self._as_hint(session)}"

    def say_where(self, session: Session) -> None:
        """Say on the terminal that a run is reported, and what shows it."""
        say(f"Reporting to {self.name}{self._as_hint(session)}")

    def _as_hint(self, session: Session) -> str:
        hint = session.delivery.where()
        return f"; see the run with: {hint}" if hint else ""

    def warn_once(self, about: Any, message: str, *values: Any) -> None:
        """Log a warning, if there was none about this in this run."""
        if self._session is not None:
            self._session.delivery.warn_once(about, message, *values)

    @classmethod
    def has(cls, operation: str) -> bool:
        """Whether the tracker has one of the optional operations."""
        return getattr(cls, operation) is not getattr(Reporter, operation)

    @property
    def takes_artifacts(self) -> bool:
        """Whether files are to be sent: where the tracker can, unless an option of an integration says otherwise."""
        return self.has("log_artifact")

    def is_passing(self, error: Exception) -> bool:
        """Whether what an operation has raised is a trouble of the moment, so that trying again may help."""
        status = getattr(getattr(error, "response", None), "status_code", getattr(error, "code", None))
        if isinstance(status, int):  # of requests and httpx, or of urllib
            return status == 429 or status >= 500
        if type(error).__module__ == "http.client":  # an answer that broke off
            return True
        return isinstance(error, OSError) and error.filename is None and error.errno not in _OF_DISKS  # of a network

    # ---- copies -----------------------------------------------------------------------------------------------

    def is_duplicate_of(self, other: Reporter) -> bool:
        """Whether the other reports to the same place, so that one of the two is enough."""
        return type(self) is type(other) and self._as_given() == other._as_given()

    def _as_given(self) -> dict[str, Any]:
        """What the user set, without what a run has added."""
        names = vars(self).keys() if self._given is None else self._given
        return {name: value for name, value in vars(self).items() if name in names}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self._as_given().items() if name not in self.handles}


class Lineup:
    """The reporters of one loop, which start and end side by side: the last of them that is told waits for all."""

    def __init__(self) -> None:
        self._members: list[weakref.ref[Reporter]] = []

    def add(self, reporter: Reporter) -> None:
        if reporter not in self._reporters():
            self._members.append(weakref.ref(reporter))

    def wait_if_complete(self, state: TrainerState) -> None:
        """Wait for all to have started, unless one of them has yet to be told that the training of `state` begins."""
        reporters = [one for one in self._reporters() if one._is_reporting_process(state)]
        sessions = [one._session for one in reporters]
        if all(one is not None and one.has_begun and one.recorder is Recorder.find(state) for one in sessions):
            for reporter, session in zip(reporters, sessions, strict=True):
                if session is not None:
                    reporter._wait_for_start(session)

    def wait_if_ended(self, recorder: Recorder) -> None:
        """Wait for a run to be closed everywhere, unless one of those that began it has yet to be told of its end."""
        began = [one for one in self._reporters() if one._session is not None and one._session.recorder is recorder]
        if not any(one._session is not None and one._session.has_yet_to_end for one in began):
            for reporter in began:
                reporter.wait_for_end()

    def _reporters(self) -> list[Reporter]:
        return [reporter for reference in self._members if (reporter := reference()) is not None]


_lineups: ByIdentity[Lineup] = ByIdentity()


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


def close_unfinished(exception: BaseException | None) -> None:
    """Close the runs of trainings that have not come to their end, and were left by `exception`.

    Where the program ends (None), all runs are closed: one is finished if its training was, else it has failed.
    """
    reporters = list(_open_reporters.values())
    for reporter in reporters:
        if exception is not None:
            reporter.leave(exception)
        elif reporter._session is not None:
            reporter._close("failed" if reporter._session.is_unfinished else None)
    for reporter in reporters:
        reporter.wait_for_end()
