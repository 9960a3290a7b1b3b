"""The server: the runs that it holds, what it refuses, and whether it answers."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

from neptune.exceptions import NeptuneConnectionLostException, ProjectNotFound, RunNotFound, Unauthorized
from neptune.fields import ATOMS, Field

TOKEN = "a token of Neptune"
PROJECT = "team/digits"


class Stored:
    def __init__(self, id: str, custom_id: str | None = None) -> None:  # noqa: A002
        self.id = id
        self.custom_id = custom_id
        self.url = id if id.startswith("offline/") else f"https://app.neptune.ai/{PROJECT}/e/{id}"
        self.fields: dict[tuple[str, ...], Field] = {}
        self.files: dict[str, set[str]] = {}
        self.refused: list[tuple[str, float]] = []


RUNS: list[Stored] = []
OFFLINE: list[Stored] = []
numbers = itertools.count(1)
answers = threading.Event()
answers.set()
refuses_connections = threading.Event()


def is_down() -> bool:
    return refuses_connections.is_set() or not answers.is_set()


def connect(with_id: str | None, project: str | None, api_token: str | None, custom_run_id: str | None) -> Stored:
    answers.wait()
    if refuses_connections.is_set():
        raise NeptuneConnectionLostException
    if api_token != TOKEN:
        raise Unauthorized
    if project != PROJECT:
        raise ProjectNotFound(project)
    for run in RUNS:
        if run.id == with_id or (custom_run_id and run.custom_id == custom_run_id):
            return run
    if with_id is not None:
        raise RunNotFound(with_id)
    RUNS.append(Stored(f"DIG-{next(numbers)}", custom_run_id))
    return RUNS[-1]


def receive(stored: Stored, fields: dict[tuple[str, ...], Field]) -> None:
    """Take over what a client has: of series what is new, and of files what is on the client's disk now."""
    answers.wait()
    for path in stored.fields.keys() - fields.keys():
        del stored.fields[path]
    for path, field in fields.items():
        place = "/".join(path)
        known = stored.fields.setdefault(path, Field(field.kind))
        known.kind, known.value = field.kind, field.value
        if field.is_cleared:
            known.rows, field.is_cleared = [], False
        rows = field.rows[field.received :]
        field.received = len(field.rows)
        for row in rows:
            if known.rows and row[0] <= known.rows[-1][0]:
                stored.refused.append((place, row[0]))
            else:
                known.rows.append(row)
        if field.kind in ("File", "FileSet") and (sources := field.value) != field.uploaded:
            field.uploaded = sources
            stored.files[place] = set(files_of([sources] if isinstance(sources, str) else sources))


def files_of(sources: list[str]) -> list[str]:
    """The files that are there, relative to the folder that was given."""
    found = [source for source in sources if os.path.isfile(source)]
    for source in sources:
        for folder, _, names in os.walk(source):
            found += [os.path.relpath(os.path.join(folder, name), source) for name in names]
    return found


def atoms(stored: Stored, namespace: tuple[str, ...]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, field in stored.fields.items():
        if path[: len(namespace)] == namespace and field.kind in ATOMS:
            branch = tree
            for step in path[len(namespace) : -1]:
                branch = branch.setdefault(step, {})
            branch[path[-1]] = field.value
    return tree
