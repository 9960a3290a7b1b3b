"""Calls of the SDK that print nothing, and that raise what it only prints."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

LEVELS = ("print", "info", "warning", "error")

# Of the SDK's own threads this one writes what is logged, and speaks of what it cannot.
WRITER = "SwanLab·Specter"
OF_THE_USER = "Error when parsing metric"  # no value of ours is one that it cannot read

# This one uploads it, and speaks of each retry, and of what it gives up, such as what the server refuses for good.
UPLOADER = "SwanLab·Transport"
GIVEN_UP = re.compile(r"skipping|exited unexpectedly|-> 4(?!08|29)\d\d")

_errors: ContextVar[list[str] | None] = ContextVar("errors", default=None)
_losses: list[str] = []


@contextmanager
def listening() -> Iterator[list[str]]:
    """The errors that the SDK prints within the `with` block, where it prints nothing."""
    from swanlab.sdk.internal.pkg import console

    errors: list[str] = []
    before, was_quiet = _errors.set(errors), console.c.quiet
    console.c.quiet = True  # what moves on the terminal, too
    try:
        yield errors
    finally:
        console.c.quiet = was_quiet
        _errors.reset(before)


def quietly(call: Callable[[], Any]) -> Any:
    """What `call` returns, without the SDK's words.

    Raises:
        RuntimeError: the SDK has printed an error instead of raising it.
    """
    with listening() as errors:
        value = call()
    if errors:
        raise RuntimeError("; ".join(errors))
    return value


def check_losses() -> None:
    """Raise for what the SDK could not write or upload of the run, however often it is asked."""
    if _losses:
        raise RuntimeError("; ".join(_losses))


def forget_losses() -> None:
    """They are those of a run before, of which a process has one at a time."""
    _losses.clear()


def hold_console() -> None:
    """Let the SDK print what calls of the user bring about, and nothing else."""
    from swanlab.sdk.internal.pkg import console

    for level in LEVELS:
        say = getattr(console, level)
        if not hasattr(say, "__wrapped__"):
            setattr(console, level, _held(say))


def _held(say: Callable[..., None]) -> Callable[..., None]:
    level = say.__name__

    @wraps(say)
    def say_or_keep(*words: Any, **options: Any) -> None:
        thread, errors = threading.current_thread().name, _errors.get()
        text = " ".join(map(str, words or options.get("console_args", ())))
        if thread == WRITER:
            if level == "error" and not text.startswith(OF_THE_USER):
                _losses.append(text)
            elif level != "info":
                say(*words, **options)
        elif thread.startswith("SwanLab"):
            if thread == UPLOADER and GIVEN_UP.search(text):
                _losses.append(text)
        elif errors is None:
            say(*words, **options)
        elif level == "error":
            errors.append(text)

    return say_or_keep


@contextmanager
def keeping_excepthook() -> Iterator[None]:
    """A run of the SDK puts a hook in the place of ours when it starts, and another one when it ends."""
    hook = sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = hook
