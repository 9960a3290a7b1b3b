"""Where ClearML is told of its server, as its SDK reads it."""

from __future__ import annotations

import os

from trackside.options import FALSE

_FILE = "~/clearml.conf"
_TELLING = ("CLEARML_API_ACCESS_KEY", "CLEARML_AUTH_TOKEN", "CLEARML_TASK_ID")  # the last is set by an agent


def is_configured() -> bool:
    """Whether there is a file or a variable that says which server to use, and as whom."""
    file = os.environ.get("CLEARML_CONFIG_FILE") or _FILE
    return any(map(os.environ.get, _TELLING)) or os.path.isfile(os.path.expanduser(file))


def switch(text: str) -> bool:
    """Whether a variable of ClearML's is on; a version of the server's interface (2.30) counts as well."""
    return text.strip().lower() not in FALSE
