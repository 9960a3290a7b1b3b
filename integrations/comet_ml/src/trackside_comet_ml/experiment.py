"""An experiment of Comet's: which one runs, how it is opened, and what goes wrong with it."""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

from trackside import Point, Status
from trackside.deadline import within
from trackside_comet_ml import plain
from trackside_comet_ml.quiet import import_quietly, unasked

ENDED = {"failed": "The training has failed.", "killed": "The training was killed."}
START_SECONDS, FLUSH_SECONDS, UPLOAD_SECONDS, END_SECONDS = 30, 30, 3600, 60
POLL_SECONDS = 0.02
EMPTY_ARCHIVE = 22  # bytes of a zip file without entries
SENDERS = ("comet_ml.streamer", "comet_ml.comet")  # in newer versions, in older ones


class Experiment:
    """An open experiment, whose calls raise what goes wrong. One that is disabled takes everything and keeps nothing.

    Attributes:
        sdk: the SDK's own object.
        is_online: whether it speaks to a server, or writes an archive.
        lost: what was said of something that was logged and is lost.
    """

    def __init__(self, sdk: Any) -> None:
        self.sdk = sdk
        self.key = str(sdk.get_key())
        self.is_online = sdk.url is not None
        self.lost = ""
        _losses.tell(self)

    @contextmanager
    def at(self, step: int | None = None) -> Iterator[Any]:
        """The SDK's object, to log with at a step; from then on a user's own calls belong to it as well.

        Raises:
            RuntimeError: somebody else has ended it; what comes now would be lost without a word.
            Exception: what comet_ml has logged as an error within the `with` block.
        """
        if not (self.sdk.alive or self.sdk.disabled):
            raise RuntimeError(f"the experiment {self.key} was ended by somebody else")
        if step is not None:
            self.sdk.curr_step = step
        with _errors() as logged:
            yield self.sdk
        if logged:
            raise _cause(logged)

    def log(self, points: Sequence[Point]) -> None:
        """Metrics under the loop's own times, which `log_metric` does not take."""
        from comet_ml.messages import MetricMessage

        with self.at() as sdk:
            for point in () if sdk.disabled else points:
                sdk.curr_step, sdk.curr_epoch = point.step, point.epoch
                for key, number in point.values.items():
                    message = MetricMessage(timestamp=round(point.time * 1000))
                    message.set_metric(key, plain.number(number), step=point.step, epoch=point.epoch)
                    sdk.streamer.put_message_in_q(message)

    def wait_for_files(self) -> None:
        """Wait until the files that were logged are uploaded, or, before what was logged after them, copied.

        Raises:
            ConnectionError: the server cannot be reached.
            RuntimeError: it has refused one.
        """
        streamer = self.sdk.streamer
        if self.sdk.disabled:
            return
        if not self.is_online:
            while streamer.is_alive() and not streamer.messages.empty():
                time.sleep(POLL_SECONDS)
            return
        is_sent = within(UPLOAD_SECONDS, self.sdk.flush)
        if not (is_sent and self._is_connected()):
            raise ConnectionError("Comet has not got all files")
        if streamer.has_upload_failed():
            raise RuntimeError("Comet has refused a file")

    def is_safe(self) -> bool:
        """Whether all that was logged is at the server. An archive is none before the experiment has ended."""
        return self.is_online and not self.sdk.disabled and not self.lost and self._is_flushed()

    def end(self, status: Status) -> None:
        """End it, once the server can be reached.

        Raises:
            ConnectionError: it cannot.
            RuntimeError: something that was logged is lost.
        """
        if not (self.sdk.ended or self.sdk.disabled):
            self._mark(status)
            if not self.is_online:
                self.sdk.end()
            elif self._is_flushed():
                within(END_SECONDS, self.sdk.end)
            else:
                raise ConnectionError("Comet cannot be reached, and has not got everything")
            _remove_files(self.sdk)
        lost = self.lost or getattr(self.sdk, "customer_error_message", None)
        if lost not in (None, *ENDED.values()):
            raise RuntimeError(f"Comet has not taken everything: {lost}")

    def _mark(self, status: Status) -> None:
        with self.at() as sdk:
            sdk.log_other("trackside.status", status)
        if status in ENDED and not getattr(self.sdk, "customer_error_message", None):
            self.sdk._report_experiment_error(ENDED[status], has_crashed=True)

    def _is_flushed(self) -> bool:
        """Whether nothing waits for the server."""
        try:
            return self._is_connected() and within(FLUSH_SECONDS, self.sdk.flush) and self._is_connected()
        except TimeoutError:
            return False

    def _is_connected(self) -> bool:
        return bool(self.sdk.streamer.has_connection_to_server())


def open_experiment(settings: Mapping[str, Any], **options: Any) -> Experiment:
    """An experiment to log to; the one that is running goes on running.

    Args:
        settings: arguments of `comet_ml.ExperimentConfig`.
        options: arguments of `comet_ml.start`.

    Raises:
        TimeoutError: Comet does not answer.
        Exception: what has kept it from opening one, which comet_ml itself only logs.
    """
    return Experiment(within(START_SECONDS, lambda: _start(settings, options), when_late=lambda late: late.end()))


def _start(settings: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    comet_ml = import_quietly()
    from comet_ml.config import set_global_experiment

    config = comet_ml.ExperimentConfig(**unasked(comet_ml.get_config()), **settings)
    running = comet_ml.get_global_experiment()
    set_global_experiment(None)  # a new experiment ends the one that is there
    try:
        with _errors() as logged:
            sdk = comet_ml.start(**options, experiment_config=config)
    except Exception as error:
        raise _public(error) from None
    finally:
        set_global_experiment(running)
    if not (sdk.alive or sdk.disabled):
        _remove_files(sdk)
        raise _cause(logged)
    sdk.is_reported = True
    return sdk


def remove_empty_archives(folder: str, key: str) -> None:
    """Remove the empty archives that dead processes have left behind: `comet upload` would complain of them."""
    for path in Path(folder).glob(f"{key}*.zip"):
        if path.stat().st_size == EMPTY_ARCHIVE:
            path.unlink()


def _remove_files(sdk: Any) -> None:
    """Online, an experiment leaves the folder behind that it has made for itself."""
    shutil.rmtree(sdk.tmpdir, ignore_errors=True)


# ---- the running experiment, of which a process has one -------------------------------------------------------------


def users_experiment() -> Any:
    """The experiment that the user has running. Where nobody has imported comet_ml there is none."""
    running = getattr(sys.modules.get("comet_ml"), "get_global_experiment", lambda: None)()
    return running if running is not None and running.alive and not hasattr(running, "is_reported") else None


def make_running(sdk: Any) -> None:
    """Let `comet_ml.get_running_experiment()` be an experiment, unless there is another one that runs."""
    import comet_ml
    from comet_ml.config import set_global_experiment

    running = comet_ml.get_global_experiment()
    if running is None or running.ended:
        set_global_experiment(sdk)


def make_not_running(sdk: Any) -> None:
    """Undo `make_running`."""
    import comet_ml
    from comet_ml.config import set_global_experiment

    if comet_ml.get_global_experiment() is sdk:
        set_global_experiment(None)


# ---- errors, which comet_ml logs -------------------------------------------------------------------------------------


class _Errors(logging.Handler):
    """Keeps the errors that are logged in the thread that made it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.records.append(record)


class _Losses(logging.Handler):
    """Hears from the threads that send: what a server refuses, or answers with an error 500, comet_ml drops."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._experiments: WeakSet[Experiment] = WeakSet()

    def tell(self, experiment: Experiment) -> None:
        """From now on note in this experiment, as in all others, what is lost: the records do not say whose it is."""
        self._experiments.add(experiment)
        logging.getLogger("comet_ml").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.name.startswith(SENDERS):
            for experiment in list(self._experiments):
                experiment.lost = experiment.lost or _first_line(record)


_losses = _Losses()


@contextmanager
def _errors() -> Iterator[list[logging.LogRecord]]:
    """The errors that comet_ml logs in this thread within the `with` block."""
    handler = _Errors()
    logger = logging.getLogger("comet_ml")
    logger.addHandler(handler)
    try:
        yield handler.records
    finally:
        logger.removeHandler(handler)


def _cause(logged: list[logging.LogRecord]) -> Exception:
    """The exception behind the first error that was logged."""
    if not logged:
        return RuntimeError("Comet does not take this experiment, and does not say why")
    error = logged[0].exc_info[1] if logged[0].exc_info else None
    return _public(error) if isinstance(error, Exception) else RuntimeError(_first_line(logged[0]))


def _first_line(record: logging.LogRecord) -> str:
    return record.getMessage().partition("\n")[0]


def _public(error: Exception) -> Exception:
    """An exception without the API key, which may stand in a file where nobody else knows it for a secret."""
    is_about_key = type(error).__name__ == "InvalidAPIKey"
    return RuntimeError("Comet does not know the API key, COMET_API_KEY") if is_about_key else error
