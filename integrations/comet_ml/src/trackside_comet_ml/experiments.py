"""comet_ml without what it does of its own accord: printing, collecting, patching, and swallowing its errors."""

from __future__ import annotations

import inspect
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# What an import of ours switches off, unless the user has said what he wants.
AT_IMPORT = {
    "COMET_DISABLE_AUTO_LOGGING": "1",  # patches of frameworks, which have to be imported after it
    "COMET_ERROR_TRACKING_ENABLE": "false",  # errors of the program, sent to Comet's makers
    "COMET_LOGGING_CONSOLE": "CRITICAL",
}

# What an experiment of ours does not collect, unless Comet's own setting says so. Code, patches, remotes, output and
# command lines may hold secrets, and details of the machine are asked of a cloud's metadata server.
UNASKED = {
    "auto_log_co2": "comet.auto_log.co2",
    "auto_metric_logging": "comet.auto_log.metrics",
    "auto_output_logging": "comet.auto_log.output_logger",
    "auto_param_logging": "comet.auto_log.parameters",
    "log_code": "comet.auto_log.code",
    "log_env_details": "comet.auto_log.env_details",
    "log_git_metadata": "comet.auto_log.git_metadata",
    "log_git_patch": "comet.auto_log.git_patch",
    "parse_args": "comet.auto_log.cli_arguments",
}

POLL_SECONDS = 0.02

CONFIG_FILES = ("./.comet.config", "~/.comet.config", ".env")


def import_quietly() -> Any:
    """comet_ml; if we are the first to import it, without its patches, its output and its hooks."""
    if "comet_ml" in sys.modules:
        import comet_ml

        return comet_ml
    ours = {name: value for name, value in AT_IMPORT.items() if name not in os.environ}
    logging.getLogger("comet_ml").setLevel(logging.CRITICAL)
    os.environ.update(ours)
    try:
        import comet_ml
    finally:
        for name in ours:
            os.environ.pop(name, None)
    if "COMET_LOGGING_CONSOLE" in ours:
        logging.getLogger("comet_ml").setLevel(logging.ERROR)
    _remove_exception_hook()
    return comet_ml


def _remove_exception_hook() -> None:
    """Comet's hook sends the text of an uncaught exception, with all secrets in it, to the experiment that is open."""
    if sys.excepthook.__module__ == "comet_ml.exceptionhook":
        sys.excepthook = inspect.getclosurevars(sys.excepthook).nonlocals["old_exception_hook"]


def knows_api_key() -> bool:
    """Whether comet_ml will find an API key, as far as that can be told without importing it."""
    if "comet_ml" in sys.modules:
        comet_ml = import_quietly()
        return comet_ml.get_api_key(None, comet_ml.get_config()) is not None
    if os.environ.get("COMET_API_KEY"):
        return True
    configured = Path(os.environ.get("COMET_CONFIG") or CONFIG_FILES[0])
    places = [configured, configured / ".comet.config", *(Path(file).expanduser() for file in CONFIG_FILES)]
    return any("api_key" in place.read_text("utf-8", "replace").lower() for place in places if place.is_file())


# ---- experiments ----------------------------------------------------------------------------------------------------


def open_experiment(settings: Mapping[str, Any], **options: Any) -> Any:
    """An experiment that is logged to; whichever was running before goes on running.

    Args:
        settings: arguments of `comet_ml.ExperimentConfig`.
        options: arguments of `comet_ml.start`.

    Raises:
        Exception: what has kept Comet from opening it, which comet_ml itself only logs.
    """
    comet_ml = import_quietly()
    from comet_ml.config import set_global_experiment

    config = comet_ml.ExperimentConfig(**_unasked(comet_ml.get_config()), **settings)
    running = comet_ml.get_global_experiment()
    set_global_experiment(None)  # a new experiment ends the one that is there
    try:
        with _errors() as logged:
            experiment = comet_ml.start(**options, experiment_config=config)
    except Exception as error:
        raise _public(error) from None
    finally:
        set_global_experiment(running)
    if not (experiment.alive or experiment.disabled):
        forget(experiment)
        raise _cause(logged)
    experiment.is_reported = True
    return experiment


def _unasked(config: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {name: False for name, key in UNASKED.items() if config[key] is None}
    if "COMET_DISPLAY_SUMMARY_LEVEL" not in os.environ:
        settings["display_summary_level"] = 0
    return settings


def forget(experiment: Any) -> None:
    """Remove the files that an experiment has made for itself."""
    shutil.rmtree(experiment.tmpdir, ignore_errors=True)


def is_online(experiment: Any) -> bool:
    return experiment.url is not None


def wait_for_files(experiment: Any) -> None:
    """Wait until the files that were logged are uploaded, or, before whatever was logged after them, copied.

    Raises:
        ConnectionError: they were not.
    """
    if is_online(experiment):
        if not experiment.flush() or not experiment.streamer.has_connection_to_server():
            raise ConnectionError("Comet has not got all files")
    else:
        while experiment.streamer.is_alive() and not experiment.streamer.messages.empty():
            time.sleep(POLL_SECONDS)


def experiment_of_user() -> Any:
    """The experiment that the user has running. Where nobody has imported comet_ml there is none."""
    running = getattr(sys.modules.get("comet_ml"), "get_global_experiment", lambda: None)()
    return running if running is not None and running.alive and not hasattr(running, "is_reported") else None


def make_running(experiment: Any) -> None:
    """Let `comet_ml.get_running_experiment()` be an experiment, unless there is another one that runs."""
    import comet_ml
    from comet_ml.config import set_global_experiment

    running = comet_ml.get_global_experiment()
    if running is None or running.ended:
        set_global_experiment(experiment)


def make_not_running(experiment: Any) -> None:
    """Undo `make_running`."""
    import comet_ml
    from comet_ml.config import set_global_experiment

    if comet_ml.get_global_experiment() is experiment:
        set_global_experiment(None)


# ---- errors ---------------------------------------------------------------------------------------------------------


class _Errors(logging.Handler):
    """Keeps the errors that one thread logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []
        self._thread_of_interest = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread_of_interest:
            self.records.append(record)


@contextmanager
def _errors() -> Iterator[list[logging.LogRecord]]:
    handler = _Errors()
    logger = logging.getLogger("comet_ml")
    logger.addHandler(handler)
    try:
        yield handler.records
    finally:
        logger.removeHandler(handler)


@contextmanager
def raising() -> Iterator[None]:
    """Raise what comet_ml logs as an error in this thread: its calls raise nothing themselves."""
    with _errors() as logged:
        yield
    if logged:
        raise _cause(logged)


def _cause(logged: list[logging.LogRecord]) -> Exception:
    """The exception behind the first error that was logged."""
    if not logged:
        return RuntimeError("Comet does not take this experiment, and does not say why")
    error = logged[0].exc_info[1] if logged[0].exc_info else None
    text = str(logged[0].getMessage()).partition("\n")[0]
    return _public(error) if isinstance(error, Exception) else RuntimeError(text)


def _public(error: Exception) -> Exception:
    """An exception without the API key, which may stand in a file where nobody else knows it for a secret."""
    is_about_key = type(error).__name__ == "InvalidAPIKey"
    return RuntimeError("Comet does not know the API key, COMET_API_KEY") if is_about_key else error
