# ruff: noqa: T201 - as the real one does
"""A Trackio without files or a network, which refuses what the real one refuses, and keeps the rest in memory."""

from __future__ import annotations

import re
import threading
from enum import Enum
from pathlib import Path
from typing import Any

from trackio import context_vars
from trackio.memory import DATABASES, Database, encode

config: dict[str, Any] = {}
PUBLISHED: list[dict[str, Any]] = []
"""The projects that were copied to a static Space."""

NAME = re.compile(r"[A-Za-z0-9._-]+")


class AlertLevel(str, Enum):
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


class Markdown:
    TYPE = "trackio.markdown"


class Artifact:
    def __init__(self, name: str, type: str, description: str | None = None, metadata: dict | None = None):  # noqa: A002
        if not NAME.fullmatch(name):
            raise ValueError(f"Artifact name {name!r} must match {NAME.pattern}")
        encode(metadata)
        self.name, self.type, self.metadata = name, type, metadata
        self.files: dict[str, bytes] = {}
        self.is_logged = False

    def add_file(self, local_path: str | Path, name: str | None = None) -> None:
        path = name or Path(local_path).name
        if path.startswith("/") or "\\" in path or {"", ".", ".."} & set(path.split("/")):
            raise ValueError(f"Invalid artifact path {path!r}")
        self.files[path] = Path(local_path).read_bytes()


class Run:
    def __init__(
        self,
        url: str | None,
        project: str,
        client: Any | None,
        name: str | None = None,
        run_id: str | None = None,
        group: str | None = None,
        config: dict | None = None,
        space_id: str | None = None,
        bucket_id: str | None = None,
        server_base_url: str | None = None,
        write_token: str | None = None,
        existing_runs: list[str] | None = None,
        initial_last_step: int | None = None,
        auto_log_gpu: bool = False,
        auto_log_cpu: bool = False,
    ):
        print("* Trackio opens a run")
        for text in (project, name, run_id, group):
            encode(text)
        if any(key.startswith("_") for key in config or {}):
            raise ValueError("Config keys starting with '_' are reserved")
        self.url, self.project, self.name, self.id, self.group = url, project, name, run_id or f"id-of-{name}", group
        self._space_id, self._bucket_id = space_id, bucket_id
        self._server_base_url, self._write_token = server_base_url, write_token
        self.measures = {"gpu": auto_log_gpu, "cpu": auto_log_cpu}
        self.config = {**(config or {}), "_Username": self._get_username()}
        self._next_step = 0 if initial_last_step is None else initial_last_step + 1
        self.alerts: list[tuple[str, str, int | None]] = []
        self.is_finished = False
        self._queued_logs: list[dict[str, Any]] = []
        self._client_lock = threading.Lock()

    def _get_username(self) -> str | None:
        raise AssertionError("the Hub was asked for the name of the user")

    def log(self, metrics: dict, step: int | None = None) -> None:
        step = self._next_step if step is None else step
        self._next_step = max(self._next_step, step + 1)
        row = {"step": step, "metrics": metrics, "timestamp": "now"}
        self._database.add(self.id, self.name, row, self.config)

    def log_artifact(
        self,
        artifact_or_path: Artifact | str | Path,
        name: str | None = None,
        type: str | None = None,  # noqa: A002
        aliases: list[str] | None = None,
    ) -> Artifact:
        if not isinstance(artifact_or_path, Artifact) or name is not None or type is not None:
            raise ValueError("name/type can only be passed when logging a path")
        if artifact_or_path.is_logged:
            raise RuntimeError("Artifact has already been logged or fetched")
        if any(not NAME.fullmatch(alias) or re.fullmatch(r"v\d+", alias) for alias in aliases or ()):
            raise ValueError(f"Alias of {aliases!r} is reserved, or no name")
        artifact_or_path.is_logged = True
        self._database.artifacts.append((self.id, tuple(aliases or ()), artifact_or_path))
        return artifact_or_path

    def alert(
        self, title: str, text: str | None = None, level: AlertLevel = AlertLevel.WARN, step: int | None = None
    ) -> None:
        print(f"[TRACKIO {level.value}] {title}")
        self._database.alerts.append((self.id, title, level.value, step))

    def finish(self) -> None:
        print("* Run finished. Uploading logs to Trackio (please wait...)")
        self.is_finished = True

    @property
    def _database(self) -> Database:
        from trackio.remote_client import SERVERS

        address = self._space_id or self._server_base_url
        databases = DATABASES if address is None else SERVERS[address].databases
        return databases.setdefault(self.project, Database())


def cpu_available() -> bool:
    return True


def log(metrics: dict, step: int | None = None) -> None:
    run = context_vars.current_run.get()
    if run is None:
        raise RuntimeError("Call trackio.init() before trackio.log().")
    run.log(metrics, step)


def freeze(space_id: str, project: str, new_space_id: str | None = None, private: bool | None = None) -> str:
    if private is True:
        raise ValueError("private=True is not supported for frozen static Trackio Spaces.")
    print("* Reading project data from bucket")
    PUBLISHED.append({"from": space_id, "project": project, "to": new_space_id})
    return str(new_space_id)


def sync(
    project: str,
    space_id: str | None = None,
    private: bool | None = None,
    force: bool = False,
    sdk: str = "gradio",
    bucket_id: str | None = None,
) -> str:
    if sdk == "static" and private is True:
        raise ValueError("private=True is not supported for static Trackio Spaces.")
    print("* Project data uploaded to bucket")
    PUBLISHED.append({"from": None, "project": project, "to": space_id, "bucket": bucket_id})
    return f"me/{space_id}"


def open_for(project: str, name: str, **options: Any) -> Run:
    """What `trackio.init` leaves in the thread of a user."""
    run = _UsersRun(None, project, None, name=name, **options)
    context_vars.current_run.set(run)
    context_vars.current_project.set(project)
    return run


class _UsersRun(Run):
    def _get_username(self) -> str:
        return "me"
