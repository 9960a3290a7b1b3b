"""Reads the files that offline runs leave, by their framing and not by the SDK's own reader."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trackside_wandb.logbook import frames


@dataclass
class OfflineRun:
    """What one file holds. Keys of nested values are joined by slashes."""

    folder: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    artifacts: list[Any] = field(default_factory=list)
    run: Any = None
    environment: str = ""
    exit_code: int | None = None

    def points(self, key: str) -> list[tuple[int, float]]:
        return [(row["train/global_step"], row[key]) for row in self.rows if key in row]

    def file(self, name: str) -> str:
        return (self.folder / "files" / name).read_text("utf-8")


def finished_runs(below: Path, seconds: float = 10) -> list[OfflineRun]:
    """All runs, once their files are complete: `finish` returns a moment before that."""
    deadline = time.monotonic() + seconds
    runs = read_runs(below)
    while any(run.exit_code is None for run in runs) and time.monotonic() < deadline:
        time.sleep(0.02)
        runs = read_runs(below)
    return runs


def read_runs(below: Path) -> list[OfflineRun]:
    return [read_run(path) for path in sorted(below.glob("**/offline-run-*/run-*.wandb"))]


def read_run(path: Path) -> OfflineRun:
    from wandb.proto.wandb_internal_pb2 import Record

    found = OfflineRun(path.parent)
    for frame in frames(path.read_bytes()):
        record = Record.FromString(frame)
        kind = record.WhichOneof("record_type")
        if kind == "history":
            found.rows.append(values(record.history.item))
        elif kind == "run":
            found.run = record.run
            found.config |= values(record.run.config.update)
        elif kind == "config":
            found.config |= values(record.config.update)
        elif kind == "summary":
            found.summary |= values(record.summary.update)
        elif kind == "metric":
            found.metrics[record.metric.name or record.metric.glob_name] = record.metric.step_metric
        elif kind == "artifact":
            found.artifacts.append(record.artifact)
        elif kind == "environment":
            found.environment += str(record.environment)
        elif kind == "exit":
            found.exit_code = record.exit.exit_code
    return found


def values(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
