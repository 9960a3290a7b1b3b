"""A Neptune of this process: its client, which refuses what the real one refuses, and the server behind it.

What is online reaches the server at `wait` and `stop`, as with a slow connection; until then only the client has it.
"""

from __future__ import annotations

import atexit
import logging
import sys
import uuid
import warnings
from datetime import datetime
from typing import Any

from neptune import server
from neptune.exceptions import (
    InactiveRunException,
    MetadataInconsistency,
    MissingFieldException,
    NeptuneOfflineModeFetchException,
    NeptuneRunResumeAndCustomIdCollision,
)
from neptune.fields import NAMESPACE, Field, verify_type
from neptune.types import FileSet

logger = logging.getLogger("neptune")
logger.addHandler(logging.StreamHandler(sys.stdout))
logger.setLevel(logging.INFO)
logger.propagate = False


class Run:
    def __init__(
        self,
        with_id=None,
        *,
        project=None,
        api_token=None,
        custom_run_id=None,
        mode=None,
        name=None,
        description=None,
        tags=None,
        source_files=None,
        capture_stdout=None,
        capture_stderr=None,
        capture_hardware_metrics=None,
        fail_on_exception=True,
        monitoring_namespace=None,
        flush_period=5,
        proxies=None,
        capture_traceback=True,
        git_ref=None,
        dependencies=None,
        async_lag_callback=None,
        async_lag_threshold=1800.0,
        async_no_progress_callback=None,
        async_no_progress_threshold=300.0,
        **kwargs,
    ):
        if kwargs:
            raise TypeError(f"Run() got an unexpected keyword argument '{next(iter(kwargs))}'")
        for key, text in {"with_id": with_id, "custom_run_id": custom_run_id, "mode": mode, "name": name}.items():
            verify_type(key, text, (str, type(None)))
        if with_id and custom_run_id:
            raise NeptuneRunResumeAndCustomIdCollision
        self._mode = mode or "async"
        if self._mode not in ("async", "sync", "offline", "debug"):
            raise ValueError(f"'{mode}' is not a valid Mode")
        self.arguments = {
            "capture_stdout": capture_stdout,
            "capture_stderr": capture_stderr,
            "capture_traceback": capture_traceback,
            "capture_hardware_metrics": capture_hardware_metrics,
            "fail_on_exception": fail_on_exception,
            "source_files": source_files,
            "git_ref": git_ref,
            "tags": tags,
        }
        self._state = "started"
        self._is_online = self._mode in ("async", "sync")
        self._stored = self._find(with_id, project, api_token, custom_run_id)
        self._fields: dict[tuple[str, ...], Field] = {path: field.seen() for path, field in self._stored.fields.items()}
        if name is not None:
            self["sys/name"] = name
        if with_id is None:
            self["sys/failed"] = False
        atexit.register(self._shutdown_hook)
        logger.info("Neptune initialized. Open in the app: %s", self._stored.url)

    def _find(self, with_id, project, api_token, custom_run_id):
        if self._is_online:
            return server.connect(with_id, project, api_token, custom_run_id)
        stored = server.Stored(f"offline/{uuid.uuid4()}")
        if self._mode == "offline":
            server.OFFLINE.append(stored)
        return stored

    # ---- fields -------------------------------------------------------------------------------------------------

    def __getitem__(self, path):
        self._raise_if_stopped()
        return Handler(self, tuple(filter(None, str(path).split("/"))))

    def __setitem__(self, path, value):
        self[path].assign(value)

    def exists(self, path):
        verify_type("path", path, str)
        return self._get(tuple(filter(None, path.split("/")))) is not None

    def get_attribute(self, path):
        return self._get(tuple(filter(None, path.split("/"))))

    def pop(self, path, *, wait=False):
        self._raise_if_stopped()
        steps = tuple(filter(None, path.split("/")))
        found = self._get(steps)
        if found is None:
            raise MetadataInconsistency(f"Cannot delete {path}. Attribute not found.")
        for key in [key for key in self._fields if key[: len(steps)] == steps]:
            del self._fields[key]
        self._keep()

    def _get(self, path):
        """A field, `NAMESPACE`, or None."""
        for end in range(1, len(path)):
            if path[:end] in self._fields:
                place, leaf = "/".join(path), "/".join(path[:end])
                raise MetadataInconsistency(
                    f"Cannot access path '{place}': '{leaf}' is already defined as an attribute"
                )
        if path in self._fields:
            return self._fields[path]
        is_namespace = not path or any(key[: len(path)] == path for key in self._fields)
        return NAMESPACE if is_namespace else None

    def _keep(self):
        """What is offline is in a file at once."""
        if not self._is_online:
            self._stored.fields = self._fields

    # ---- life ---------------------------------------------------------------------------------------------------

    def get_url(self):
        return self._stored.url

    def get_state(self):
        return self._state

    def wait(self, *, disk_only=False):
        if self._state == "stopped":
            raise ValueError("I/O operation on closed file.")
        if self._is_online and not disk_only:
            server.receive(self._stored, self._fields)

    def stop(self, *, seconds=None):
        verify_type("seconds", seconds, (float, int, type(None)))
        if self._state == "started":
            self.wait(disk_only=server.is_down())
            self._state = "stopped"

    def _shutdown_hook(self):
        self.stop()

    def _raise_if_stopped(self):
        if self._state == "stopped":
            raise InactiveRunException(self._stored.id)


init_run = Run


class Handler:
    def __init__(self, run, path):
        self._run = run
        self._path = path

    def _field(self, kind):
        found = self._run._get(self._path)
        if found is NAMESPACE:
            raise AttributeError("the object has no attribute 'keys'")
        if found is None:
            found = self._run._fields[self._path] = Field(kind)
        return found

    def assign(self, value, *, wait=False):
        kind = Field.kind_of(value)
        if kind is None:
            warnings.warn(f"a type that is not directly supported by Neptune ({type(value)})", stacklevel=2)
            return
        self._field(kind).assign(value)
        self._run._keep()

    def extend(self, values, *, steps=None, timestamps=None, wait=False, **kwargs):
        if kwargs:
            raise TypeError(f"unexpected arguments {kwargs}")
        kind = "StringSeries" if isinstance(values[0], str) else "FloatSeries"
        self._field(kind).extend(values, steps, timestamps)
        self._run._keep()

    def upload(self, value, *, wait=False):
        verify_type("value", value, str)
        self._field("File").assign(value)
        self._run._keep()

    def fetch_values(self, *, include_timestamp=True, progress_bar=None):
        """As a mapping of columns, with times of a local clock."""
        if self._run._mode == "offline":
            raise NeptuneOfflineModeFetchException
        found = self._run._get(self._path)
        if found is NAMESPACE or not found.kind.endswith("Series"):
            raise AttributeError("fetch_values")
        steps, values, times = zip(*self._run._stored.fields[self._path].rows, strict=True)
        return {"step": steps, "value": values, "timestamp": [datetime.fromtimestamp(time) for time in times]}

    def clear(self, *, wait=False):
        self._run._get(self._path).clear()

    def fetch(self) -> Any:
        if self._run._mode == "offline":
            raise NeptuneOfflineModeFetchException
        if self._path == ("sys", "id"):
            return self._run._stored.id
        found = self._run._get(self._path)
        if found is None:
            raise MissingFieldException("/".join(self._path))
        return server.atoms(self._run._stored, self._path) if found is NAMESPACE else found.value


__all__ = ["FileSet", "Run", "init_run"]
