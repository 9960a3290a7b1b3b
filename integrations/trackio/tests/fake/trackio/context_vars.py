from __future__ import annotations

from contextvars import ContextVar
from typing import Any

current_run: ContextVar[Any] = ContextVar("current_run", default=None)
current_project: ContextVar[str | None] = ContextVar("current_project", default=None)
