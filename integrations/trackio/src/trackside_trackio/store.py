"""Where the rows of runs are kept: in databases on this machine, or with a server, which may be that of a Space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

REQUEST_SECONDS = 20

Row = Mapping[str, Any]
"""project, run, run_id, metrics, step, timestamp, config and log_id. One whose log_id is known is not added again."""


class Store(Protocol):
    is_behind: bool
    """Whether it may hold more runs than it knows of."""

    def put(self, rows: Sequence[Row]) -> None:
        """Keep rows of one run; returns when they are safe."""

    def ask(self, what: str, **arguments: Any) -> Any:
        """What a function of `trackio.server` answers."""


class LocalStore:
    """The databases on this machine; on a network file system, the inbox from which dashboards fill them."""

    def __init__(self) -> None:
        from trackio import fragments, utils

        self._inbox = fragments.FragmentWriter() if utils.get_storage_mode() == "jsonl" else None
        self.is_behind = self._inbox is not None

    def put(self, rows: Sequence[Row]) -> None:
        from trackio.fragments import metric_record
        from trackio.sqlite_storage import SQLiteStorage

        if self._inbox is not None:
            self._inbox.write_local([metric_record(row) for row in rows])
            return
        SQLiteStorage.bulk_log(
            project=rows[0]["project"],
            run=rows[0]["run"],
            run_id=rows[0]["run_id"],
            metrics_list=[row["metrics"] for row in rows],
            steps=[row["step"] for row in rows],
            timestamps=[row["timestamp"] for row in rows],
            log_ids=[row["log_id"] for row in rows],
            config=rows[0]["config"],
        )

    def ask(self, what: str, **arguments: Any) -> Any:
        from trackio import server

        return getattr(server, what)(**arguments)


class RemoteStore:
    """A server of Trackio's, which takes rows as they come and gives them its own time.

    Raises:
        ConnectionError: it cannot be reached, or has a trouble of the moment.
        RuntimeError: it refuses; the message is its own.
    """

    is_behind = False

    def __init__(self, address: str, write_token: str | None = None, hf_token: str | None = None) -> None:
        from trackio.remote_client import RemoteClient

        self._address, self._hf_token = address, hf_token
        with self._troubles():
            self._client = RemoteClient(
                address,
                hf_token=hf_token,
                write_token=write_token,
                httpx_kwargs={"timeout": REQUEST_SECONDS},
                verbose=False,
            )
        self.put([])  # a token that is wrong is refused now

    def put(self, rows: Sequence[Row]) -> None:
        self.ask("bulk_log", logs=list(rows), hf_token=self._hf_token)

    def ask(self, what: str, **arguments: Any) -> Any:
        with self._troubles():
            return self._client.predict(api_name=f"/{what}", **arguments)

    @contextmanager
    def _troubles(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            answer = getattr(error, "response", None)
            if answer is not None:
                is_passing = answer.status_code == 429 or answer.status_code >= 500
                kind = ConnectionError if is_passing else RuntimeError
                raise kind(f"{self._address} answers {answer.status_code}: {_reason(answer)}") from error
            if any(base.__name__ == "TransportError" for base in type(error).__mro__):  # of httpx
                raise ConnectionError(f"{self._address} does not answer ({error})") from error
            raise


def _reason(answer: Any) -> str:
    try:
        return str(answer.json()["error"])
    except Exception:  # it is no answer of Trackio's
        return str(answer.reason_phrase)


class Known(NamedTuple):
    """A run that a store holds."""

    id: str
    name: str | None
    config: Mapping[str, Any]
    last_step: int | None


def find(store: Store, project: str, wanted: str) -> Known | None:
    """The run with this id, or else the latest one of this name."""
    runs = store.ask("get_runs_for_project", project=project)
    named = [run for run in runs if wanted in (run["id"], run["name"])]
    if not named:
        return Known(wanted, None, {}, None) if store.is_behind else None
    latest = max(named, key=lambda run: (run["id"] == wanted, run["created_at"] or ""))
    summary = store.ask("get_run_summary", project=project, run_id=latest["id"])
    return Known(latest["id"], latest["name"], summary["config"] or {}, summary["last_step"])
