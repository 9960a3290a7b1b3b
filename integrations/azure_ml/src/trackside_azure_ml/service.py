"""Requests to Azure ML: each within a deadline, with an answer, and with one sentence if it fails."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable
from typing import TypeVar

from trackside.deadline import within

Value = TypeVar("Value")


class ServiceError(RuntimeError):
    """What the SDK has raised, in one line; its cause is the SDK's own error, of many."""


def ask(seconds: float, request: Callable[[], Value]) -> Value:
    """What a request returns, if it does so in time: left alone, the SDK tries for minutes, at times for ever.

    Raises:
        TimeoutError: there is no answer yet. The request goes on, so it has to be one that may be made twice.
        ServiceError: the SDK has raised an error of its own.
    """
    try:
        return within(seconds, request)
    except (OSError, ServiceError):
        raise
    except Exception as error:
        raise ServiceError(_sentence(error)) from error


def _sentence(error: Exception) -> str:
    said = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
    return " ".join(str(said).split())


def under_a_free_name(name: str, upload: Callable[[str], Value]) -> Value:
    """Upload under a name or, as the files of a run are never replaced, with the time behind it if there is one."""
    try:
        return upload(name)
    except Exception as error:
        if "already exists" not in str(error):
            raise
    stem, extension = posixpath.splitext(name)
    return upload(f"{stem}-{time.time_ns() // 1_000_000}{extension}")
