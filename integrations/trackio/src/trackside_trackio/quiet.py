"""Calls of trackio that print nothing: whether a run is reported, and where, is said by the reporter."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

Value = TypeVar("Value")

_is_quiet = ContextVar("is_quiet", default=False)


def quietly(call: Callable[[], Value]) -> Callable[[], Value]:
    """The same call, during which trackio prints nothing in its thread."""

    @wraps(call)
    def quiet_call() -> Value:
        before = _is_quiet.set(True)
        try:
            return call()
        finally:
            _is_quiet.reset(before)

    return quiet_call


def hold_prints() -> None:
    """Let the modules of trackio print in the calls of a user only."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "trackio":
            vars(module).setdefault("print", _print)


def _print(*values: Any, **options: Any) -> None:
    if not _is_quiet.get():
        builtins.print(*values, **options)  # noqa: T201 - a print of the user
