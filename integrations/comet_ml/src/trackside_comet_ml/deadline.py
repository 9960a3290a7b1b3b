"""A deadline for calls that have none of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as TooLate
from contextlib import suppress
from typing import TypeVar

Value = TypeVar("Value")


def within(
    seconds: float, call: Callable[[], Value], when_late: Callable[[Value], object] = lambda value: None
) -> Value:
    """What `call` returns or raises in a thread of its own, if it does so in time.

    A call that takes longer goes on, and what it returns in the end is given to `when_late`.

    Raises:
        TimeoutError: there is no answer yet.
    """
    outcome: Future[Value] = Future()
    thread = threading.Thread(target=_answer, args=(outcome, call, when_late), name="trackside-comet_ml", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread starts any more once the interpreter is shutting down
        return call()
    try:
        return outcome.result(seconds)
    except TooLate:
        if not outcome.cancel():  # it has an answer: just now, or a timeout of its own
            return outcome.result()
        raise TimeoutError(f"no answer within {seconds:g} seconds") from None


def _answer(outcome: Future[Value], call: Callable[[], Value], when_late: Callable[[Value], object]) -> None:
    try:
        value = call()
    except BaseException as error:
        with suppress(InvalidStateError):
            outcome.set_exception(error)
        return
    try:
        outcome.set_result(value)
    except InvalidStateError:
        when_late(value)
