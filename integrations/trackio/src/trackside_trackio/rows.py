"""The rows of one run: numbers and texts at their steps, and the config, which trackio keeps with a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trackside import Point, Run
from trackside_trackio.plain import config_key, digest, metric_key, plain, utc
from trackside_trackio.store import Known, Store

STATUS = "trackside/status"
CHANGED = "trackside/changed_params"


class Rows:
    """Writes a run to a store. A row is known by what it says, so that one that is sent again is not added again."""

    def __init__(self, run: Any, store: Store, about: Run, known: Known | None) -> None:
        self._run, self._store, self._about = run, store, about
        self._before: Mapping[str, Any] = known.config if known else {}
        self.last_step = max(about.step, known.last_step or 0 if known else 0)

    @property
    def status_before(self) -> Any:
        """How the run had ended when it was opened again."""
        return self._before.get(STATUS)

    def add(self, points: Sequence[Point]) -> None:
        self._put(self._row(point.values, point.step, point.time) for point in points)

    def add_value(self, key: str, value: Any, step: int, time: float) -> None:
        self._put([self._row({key: value}, step, time)])

    def add_params(self, params: Mapping[str, Any]) -> None:
        """What a resumed run has otherwise than before is noted, old and new."""
        new = {config_key(key): plain(value) for key, value in params.items()}
        before = {key: plain(self._before[key]) for key in new.keys() & self._before.keys()}
        changed = {key: [value, new[key]] for key, value in before.items() if value != new[key]}
        noted = {CHANGED: {**self._before.get(CHANGED, {}), **changed}} if changed else {}
        self.configure({**new, **noted})

    def configure(self, values: Mapping[str, Any]) -> None:
        """Add to the config, which goes with a row of its own, the first one of a run."""
        self._run.config.update({key: plain(value) for key, value in values.items()})
        row = self._row({}, self._about.step, self._about.time)
        self._put([{**row, "config": plain(self._run.config), "log_id": digest(self._run.id)}])

    def _row(self, values: Mapping[str, Any], step: int, time: float) -> dict[str, Any]:
        metrics = {metric_key(key): plain(value) for key, value in values.items()}
        run = {"project": self._run.project, "run": self._run.name, "run_id": self._run.id, "config": None}
        log_id = digest(self._run.id, int(step), time, metrics)
        return {**run, "metrics": metrics, "step": int(step), "timestamp": utc(time), "log_id": log_id}

    def _put(self, rows: Iterable[dict[str, Any]]) -> None:
        rows = list(rows)
        self._store.put(rows)
        self.last_step = max(self.last_step, *(row["step"] for row in rows))
        # A call of the user's without a step goes on from here.
        self._run._next_step = max(self._run._next_step, self.last_step + 1)
