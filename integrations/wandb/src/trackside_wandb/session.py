"""Opening a run: what wandb is told of it, and what it is kept from finding out, printing and waiting for."""

from __future__ import annotations

import os
import re
import shlex
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

from trackside import Run
from trackside.values import describe, redact
from trackside.watch import aside
from trackside_wandb.account import has_key

SECONDS = 20
SECONDS_TO_ANSWER = 10


def open_run(run: Run, base_url: str | None, **arguments: Any) -> Any:
    """A run of its own, whatever else is open in this process.

    Raises:
        OSError: the server cannot be reached.
        RuntimeError: there is no key for it; wandb would ask for one at the terminal.
    """
    import wandb

    if arguments["mode"] == "disabled":  # needs no service
        return wandb.init(reinit="create_new", **arguments)
    os.makedirs(arguments["dir"], exist_ok=True)
    _leave_service_of_parent()
    with aside(), quiet:
        given = {**_unless_set(run), **_git(run), **({"base_url": base_url} if base_url else {})}
        known = wandb.setup().settings
        mode, server = arguments["mode"] or known.mode, base_url or known.base_url
        if mode in ("online", "run", "shared"):
            _check_key(server)
            if not (known.http_proxy or known.https_proxy):
                _reach(server)
        return wandb.init(reinit="create_new", settings=wandb.Settings(**given), **arguments)


class _Quiet:
    """What wandb says when it starts and ends is told by others, unless the user has asked for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0

    def __enter__(self) -> None:
        import wandb
        from wandb.errors import term

        with self._lock:
            if self._depth == 0:
                term._silent = True
                self._usual = wandb.setup().settings.silent  # reads the settings, if nobody has
                term._silent = self._usual or "WANDB_SILENT" not in os.environ
            self._depth += 1

    def __exit__(self, *error: object) -> None:
        from wandb.errors import term

        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                term._silent = self._usual


quiet = _Quiet()


def _unless_set(run: Run) -> dict[str, Any]:
    """Settings that are ours unless a variable of wandb's own says otherwise."""
    ours = {
        "silent": True,
        "console": "off",
        "init_timeout": SECONDS,
        "finish_timeout": SECONDS,
        "finish_timeout_raises": True,
        **_program(run),
    }
    return {name: value for name, value in ours.items() if _variable(name) not in os.environ}


def _program(run: Run) -> dict[str, Any]:
    """What trains, which may be another process than this one; wandb would send this one's arguments, as they are."""
    command = shlex.split(run.source.get("command", ""))
    is_this = command == redact(describe(sys.argv))
    is_secret = command != sys.argv if is_this else len(sys.argv) > 1
    return {"x_disable_meta": is_secret, **({} if is_this or not command else {"program": command[0]})}


def _variable(setting: str) -> str:
    return "WANDB_" + re.sub("^x_", "_", setting).upper()


def _git(run: Run) -> dict[str, str]:
    """The commit, and the address of the repository without credentials: wandb leaves the user's part in it."""
    commit = run.source.get("git_commit")
    if commit is None or "WANDB_GIT_REMOTE_URL" in os.environ:
        return {}
    command = ["git", "config", "--get", "remote.origin.url"]
    try:
        remote = subprocess.run(command, capture_output=True, text=True, timeout=2).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        remote = ""
    return {"git_commit": commit, "git_remote_url": redact(remote)}


def _leave_service_of_parent() -> None:
    """A process that the parent has started for wandb ends with the parent; this one starts its own."""
    started_by = re.match(r"\d+-(\d+)-", os.environ.get("WANDB_SERVICE", ""))
    if started_by is not None and int(started_by[1]) == os.getppid():
        del os.environ["WANDB_SERVICE"]


def _check_key(server: str) -> None:
    if not has_key(server):
        raise RuntimeError(
            f"there is no key for {server}; type: wandb login, or set WANDB_API_KEY, or WANDB_MODE=offline"
        )


def _reach(server: str) -> None:
    """Ask for a sign of life: a start that wandb gives up leaves a folder behind, and an id that is in use."""
    question = urllib.request.Request(f"{server.rstrip('/')}/graphql", b'{"query": "{ __typename }"}')
    question.add_header("Content-Type", "application/json")
    try:
        urllib.request.urlopen(question, timeout=SECONDS_TO_ANSWER).close()
    except urllib.error.HTTPError as error:
        if error.code == 429 or error.code >= 500:
            raise
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ssl.SSLError):  # wandb may know a certificate that Python does not
            raise
