"""MLflow's client, made to answer within seconds and to say nothing."""

from __future__ import annotations

import os
import shlex
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from trackside import Run
from trackside.mapping import chunks, cut
from trackside.values import encodable, redact

LONGEST_NAME = 250
LONGEST_TAG = 5000  # what every server takes; newer ones take 8000
LONG_PARAM = 500  # characters, of which one may take 12 bytes in a request
LOCK_SECONDS = 60


class Client:
    """An `MlflowClient` of which each call is made quickly and quietly.

    Attributes:
        tracking_uri: of its store.
        place: the same, spelled so that it leads there from any working directory.
    """

    def __init__(self, tracking_uri: str | None) -> None:
        import mlflow

        uri = self.tracking_uri = tracking_uri or mlflow.get_tracking_uri()
        try:
            with _quickly(), _alone_with(uri):
                self._client = mlflow.MlflowClient(uri)
                self.place = _from_anywhere(uri)
        except ImportError as error:
            raise RuntimeError(
                f"{redact(uri)} needs all of mlflow, and only a part of it is installed ({error}); "
                "type: pip install mlflow, or give tracking_uri the address of a server"
            ) from error

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        bounds = _few_retries if name in ("log_text", "log_artifact") else _quickly  # an upload may take its time

        def call(*args: Any, **kwargs: Any) -> Any:
            with bounds():
                return method(*args, **kwargs)

        return call

    def experiment_named(self, name: str) -> str:
        """The id of an experiment, which is made if there is none; another process may do so at the same time."""
        found = self.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(self.create_experiment(name))
        except Exception as error:
            if code_of(error) != "RESOURCE_ALREADY_EXISTS":
                raise
            return str(self.get_experiment_by_name(name).experiment_id)

    def new_run(self, experiment_id: str, run: Run, tags: Mapping[str, str]) -> Any:
        """A new run, which says of itself what one of the fluent API does: user, script and commit."""
        from mlflow.tracking.context.registry import resolve_tags

        name, start = cut(encodable(run.name), LONGEST_NAME), round(run.time * 1000)
        texts = {key: cut(encodable(text), LONGEST_TAG) for key, text in resolve_tags(tags).items()}
        return self.create_run(experiment_id, start_time=start, tags=texts, run_name=name)

    def find_run(self, run_id: str) -> Any:
        """A run, or None if there is none of that id, or it was deleted."""
        try:
            run = self.get_run(run_id)
        except Exception as error:
            if code_of(error) != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return run if run.info.lifecycle_stage == "active" else None

    def log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Params in requests that do not grow beyond the million bytes that a server takes."""
        from mlflow.entities import Param

        long = {key: text for key, text in params.items() if len(text) > LONG_PARAM}
        short = {key: text for key, text in params.items() if key not in long}
        for batch in filter(None, (short, *chunks(long, 1))):
            sent = [Param(key, text) for key, text in batch.items()]
            self.log_batch(run_id, params=sent, synchronous=True)

    def shown_by(self, run: Any) -> str | None:
        """What shows a run to a person: an address, or a command."""
        uri, info = self.tracking_uri, run.info
        if uri.startswith(("http://", "https://")):
            return f"{redact(uri).rstrip('/')}/#/experiments/{info.experiment_id}/runs/{info.run_id}"
        if uri.startswith("databricks"):
            return None
        return f"mlflow ui --backend-store-uri {shlex.quote(redact(uri))}"


def code_of(error: Exception) -> str | None:
    """What kind of error MLflow says that it is."""
    return getattr(error, "error_code", None)


def import_quietly() -> None:
    """Import mlflow without its telemetry, unless the user asks for that or has imported it himself."""
    if "mlflow" in sys.modules or "MLFLOW_DISABLE_TELEMETRY" in os.environ:
        import mlflow
    else:
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        try:
            import mlflow  # noqa: F401
        finally:
            del os.environ["MLFLOW_DISABLE_TELEMETRY"]


# ---- patience -------------------------------------------------------------------------------------------------------


class _Defaults:
    """Defaults of mlflow's settings that hold while calls of ours are under way, in any thread.

    mlflow looks at its settings at each request. The environment is left alone: a user's variable wins over a default,
    and other threads may be reading it.
    """

    def __init__(self, **values: Any) -> None:
        self._values = values
        self._usual: dict[Any, Any] = {}
        self._lock = threading.Lock()
        self._calls = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            self._calls += 1
            if self._calls == 1:
                self._set()
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                if self._calls == 0:
                    self._reset()

    def _set(self) -> None:
        from mlflow import environment_variables

        for name, value in self._values.items():
            if (setting := getattr(environment_variables, name, None)) is not None:
                self._usual[setting] = setting.default
                setting.default = value

    def _reset(self) -> None:
        for setting, default in self._usual.items():
            setting.default = default
        self._usual.clear()


# As they are, a server that is not there takes 7 retries and 4 minutes, one that does not answer 16 minutes.
_few_retries = _Defaults(MLFLOW_HTTP_REQUEST_MAX_RETRIES=2, MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT=True)
_short_timeout = _Defaults(MLFLOW_HTTP_REQUEST_TIMEOUT=10)


@contextmanager
def _quickly() -> Iterator[None]:
    with _few_retries(), _short_timeout():
        yield


# ---- SQLite ---------------------------------------------------------------------------------------------------------


@contextmanager
def _alone_with(uri: str) -> Iterator[None]:
    """One process at a time with a local SQLite file: mlflow's first look at a new one makes its tables, unlocked."""
    path = _sqlite_file(uri)
    if path is None:
        yield
        return
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA schema_version")  # raises for a file that is none; mlflow tries for 100 seconds
    lock = f"{path}.lock"
    with closing(sqlite3.connect(lock, timeout=LOCK_SECONDS, isolation_level=None)) as connection:
        with suppress(sqlite3.OperationalError):  # one that is done has removed it
            connection.execute("BEGIN EXCLUSIVE")
        yield
    with suppress(OSError):  # where open files cannot be removed, or it is gone
        os.remove(lock)


def _from_anywhere(uri: str) -> str:
    path = _sqlite_file(uri)
    if path is not None:
        return uri.replace(path, os.path.abspath(path), 1)
    return os.path.abspath(uri) if os.path.isdir(uri) else uri


def _sqlite_file(uri: str) -> str | None:
    if not uri.startswith("sqlite:"):
        return None
    from sqlalchemy.engine import make_url

    path = make_url(uri).database
    return None if path == ":memory:" else path
