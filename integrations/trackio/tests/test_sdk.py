"""The real Trackio, in its databases and with a server on loopback; read back with sqlite3, value by value."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from trackside_testkit import Reported, ReporterContract
from trackside_trackio import TrackioCallback

pytestmark = [pytest.mark.sdk, pytest.mark.filterwarnings("default")]


class Stored:
    """What the database of a project holds."""

    def __init__(self, folder: Path, project: str) -> None:
        self.file = folder / f"{project}.db"

    def query(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        if not self.file.exists():
            return []
        with closing(sqlite3.connect(self.file)) as connection:
            return connection.execute(query, values).fetchall()

    def runs(self) -> list[str]:
        return [run_id for (run_id,) in self.query("select run_id from metrics group by run_id order by min(id)")]

    def rows(self, run_id: str) -> list[tuple[int, str, dict[str, Any]]]:
        """Step, time and metrics of each row, as JSON says them."""
        query = "select step, timestamp, metrics from metrics where run_id = ? order by id"
        return [(step, time, strict(metrics)) for step, time, metrics in self.query(query, run_id)]

    def values(self, run_id: str) -> list[tuple[str, int, Any]]:
        return [(key, step, value) for step, _, metrics in self.rows(run_id) for key, value in metrics.items()]

    def config(self, run_id: str) -> dict[str, Any]:
        ((config,),) = self.query("select config from configs where run_id = ?", run_id)
        return strict(config)

    def alerts(self, run_id: str) -> list[tuple[str, str, int]]:
        return self.query("select title, level, step from alerts where run_id = ?", run_id)

    def artifacts(self, run_id: str) -> dict[str, dict[str, str]]:
        """The names of the files of each version and their digests, by its alias."""
        query = (
            "select alias, manifest from artifact_versions version join artifact_aliases alias "
            "on alias.artifact_version_id = version.id where producer_run_id = ? and alias != 'latest'"
        )
        found = self.query(query, run_id)
        return {alias: {file["path"]: file["digest"] for file in json.loads(files)} for alias, files in found}


def strict(text: str | bytes) -> Any:
    """JSON by its standard, which has no nan."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def number(value: Any) -> Any:
    return {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}.get(value, value)


class TestTrackio(ReporterContract):
    reporter_class = TrackioCallback

    @pytest.fixture(autouse=True)
    def _project(self, trackio_dir):
        self.project = uuid4().hex
        self.stored = Stored(trackio_dir, self.project)

    def make_reporter(self, **options):
        return TrackioCallback(log_artifacts=True, project=self.project, **options)

    def read(self):
        return [self.reported(run_id) for run_id in self.stored.runs()]

    def reported(self, run_id):
        values, config = self.stored.values(run_id), self.stored.config(run_id)
        points = [(key, step, number(value)) for key, step, value in values if not isinstance(value, dict)]
        texts = [(key, step, value["_value"]) for key, step, value in values if isinstance(value, dict)]
        return Reported(
            points=Reported.by_key(points),
            params=config,
            texts=Reported.by_key(texts),
            artifacts=self.stored.artifacts(run_id),
            status=config["trackside/status"],
        )
