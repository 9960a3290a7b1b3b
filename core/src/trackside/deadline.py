"""Calls in threads of their own: with a deadline, and where no SDK can install signal handlers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from typing import TypeVar

Value = TypeVar("Value")


def later(call: Callable[[], Value]) -> Future[Value]:
    """What `call` is going to return or raise."""
    future: Future[Value] = Future()
    thread = threading.Thread(target=_answer, args=(future, call), name="trackside-call", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread starts any more once the interpreter is shutting down
        _answer(future, call)
    return future


def within(
    seconds: float, call: Callable[[], Value], when_late: Callable[[Value], object] = lambda value: None
) -> Value:
    """What `call` returns or raises, if it does so in time; what comes too late is given to `when_late`."""
    future = later(call)
    try:
        return future.result(seconds)
    except TooLate:
        if future.done():  # it has raised one of its own
            return future.result()
        future.add_done_callback(lambda late: late.exception() or when_late(late.result()))
        raise TimeoutError(f"no answer within {seconds:g} seconds") from None


def _answer(future: Future[Value], call: Callable[[], Value]) -> None:
    try:
        value = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(value)
