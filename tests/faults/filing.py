"""A tracker for tests: a file, to which its reporter appends a line for each call."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trackside import Artifact, Point, Reporter, Run, Status, env


class FilingReporter(Reporter):
    """Says what it does on standard output, and takes half a second for the operation that is `slow`.

    As long as there is a file `away` it cannot be reached; an operation that a file `refused` names it refuses.
    """

    name = "filing"
    reopenable = True
    slow: str | None = env(None)

    def start(self, run: Run) -> str:
        self.run = self
        self._file("start", run.tracker_id)
        return run.tracker_id or run.id

    def log_points(self, points: Sequence[Point]) -> None:
        self._file("log_points", [[point.step, dict(point.values)] for point in points])

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        self._file("log_text", [key, text])

    def log_params(self, params: Mapping[str, Any]) -> None:
        self._file("log_params", dict(params))

    def log_artifact(self, artifact: Artifact) -> None:
        self._file("log_artifact", artifact.name)

    def flush(self) -> None:
        """Each line is in the file already."""

    def finish(self, status: Status) -> None:
        self._file("finish", status)

    def _file(self, operation: str, content: Any) -> None:
        sys.stdout.write(f"{operation}\n")
        sys.stdout.flush()
        if operation == self.slow:
            time.sleep(0.5)
        if Path("away").exists():
            raise ConnectionRefusedError("nobody there")
        if Path("refused").exists() and Path("refused").read_text() == operation:
            raise ValueError("not allowed")
        with open("filed.jsonl", "a") as file:
            file.write(json.dumps([operation, content]) + "\n")


def filed(operation: str) -> list[Any]:
    """What each call of an operation has brought."""
    path = Path("filed.jsonl")
    lines = path.read_text().splitlines() if path.exists() else []
    return [content for name, content in map(json.loads, lines) if name == operation]


def filed_losses() -> list[tuple[int, float]]:
    """The steps and losses that were brought."""
    points = [point for batch in filed("log_points") for point in batch]
    return [(step, values["train/loss"]) for step, values in points if "train/loss" in values]
