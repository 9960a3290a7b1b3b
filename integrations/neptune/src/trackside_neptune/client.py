"""Neptune's client, made to answer in time, to send nothing unasked, and to say little."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from typing import Any

from trackside.deadline import later

TROUBLES = {"NeptuneConnectionLostException", "CannotResolveHostname", "InternalServerError"}


def import_quietly() -> None:
    """Import neptune. If nobody has before us, its log goes where all logs go, warnings only, and each of them once."""
    if "neptune" in sys.modules:
        return
    import neptune  # noqa: F401

    logger = logging.getLogger("neptune")
    logger.handlers.clear()
    logger.propagate = True
    logger.setLevel(logging.WARNING)
    logger.addFilter(_Once())
    warnings.filterwarnings("ignore", message=r"Info \(NVML\)")  # a machine without a GPU is no news


def init_run(data_directory: str, **arguments: Any) -> Any:
    """`neptune.init_run`, with its files in `data_directory`; raises a sentence where Neptune raises a page.

    Raises:
        LookupError: there is no run `with_id`.
        ConnectionError: the server cannot be reached.
    """
    import neptune

    with _data_directory(data_directory), in_a_sentence():
        run = neptune.init_run(**arguments)
    # Before ours is asked, it would stop the run without its status, and wait for a server as long as it takes.
    atexit.unregister(run._shutdown_hook)
    if arguments["mode"] == "offline" and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=partial(_flush, run))
    return run


def _flush(run: Any) -> None:
    """A forked child closes its copies of the client's files, and so would write once more what waits to be written."""
    if run.get_state() == "started":
        run.wait(disk_only=True)


def is_trouble(error: BaseException) -> bool:
    """Whether it is an exception of Neptune's for a server that does not answer."""
    return not TROUBLES.isdisjoint(_names(error))


class Patience:
    """Waits a while for a call that may last for ever; it goes on, and the next try waits for the same one."""

    def __init__(self) -> None:
        self._call: Future[Any] | None = None

    @property
    def is_waiting(self) -> bool:
        return self._call is not None

    def __call__(self, action: Callable[[], Any], seconds: float) -> Any:
        """What `action` returns or raises; a TimeoutError if it takes longer."""
        call = self._call = self._call or later(action)
        wait([call], seconds)
        if not call.done():
            raise TimeoutError(f"Neptune has not answered within {seconds:g} seconds")
        self._call = None
        return call.result()


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """Neptune's exceptions as others that say the same, in one line."""
    try:
        yield
    except Exception as error:
        names = _names(error)
        if "NeptuneException" not in names:
            raise
        kind = ConnectionError if is_trouble(error) else RuntimeError
        if "MetadataContainerNotFound" in names:
            raise LookupError(_sentence(error)) from error
        raise kind(f"{type(error).__name__}: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    """The first paragraph of a message, without the colours and the box around its title."""
    text = re.sub(r"\x1b\[\d*m", "", str(error))
    text = re.sub(r"(?m)^\s*-{4}.*$", "", text)
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text)]
    return next(filter(None, paragraphs), "it gives no reason").rstrip(".")


_environment = threading.Lock()


@contextmanager
def _data_directory(path: str) -> Iterator[None]:
    """Let a run that starts now keep its files there, which Neptune reads from the environment only."""
    with _environment:
        before = os.environ.get("NEPTUNE_DATA_DIRECTORY")
        os.environ["NEPTUNE_DATA_DIRECTORY"] = path
        try:
            yield
        finally:
            if before is None:
                del os.environ["NEPTUNE_DATA_DIRECTORY"]
            else:
                os.environ["NEPTUNE_DATA_DIRECTORY"] = before


class _Once(logging.Filter):
    """Lets messages that begin alike pass once: a server that refuses points says so of each."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        beginning = re.sub(r"\d+", "", record.getMessage())[:100]
        is_new = beginning not in self._passed
        self._passed.add(beginning)
        return is_new
