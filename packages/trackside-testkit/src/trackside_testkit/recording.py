"""A reporter whose tracker is a list."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from trackside import Artifact, Point, Reporter, Run, Status


class RecordingReporter(Reporter):
    """Keeps what it is told, so that a test can look at what a training reports.

        reporter = RecordingReporter()
        train(callbacks=[reporter])
        assert reporter.points["train/loss"] == [(1, 0.5), (2, 0.25)]

    It has all the operations that a tracker can have. A copy of it, or one that went through a pickle, starts with
    nothing; two of them report to two places.

    Attributes:
        calls: all it was told, in order, as pairs of an operation's name and its arguments.
        ids: its own ids of the runs that were started or continued, one for each `start`.
    """

    name = "recording"
    reopenable = True
    handles = ("calls", "ids", "_failing")

    calls: list[tuple[str, tuple[Any, ...]]]
    ids: list[str]
    _failing: dict[str, tuple[Exception, bool]]

    def __new__(cls, *args: Any, **options: Any) -> RecordingReporter:
        reporter = super().__new__(cls)
        reporter.calls, reporter.ids, reporter._failing = [], [], {}
        return reporter

    def fail(self, operation: str, error: Exception | None = None, *, once: bool = False) -> None:
        """Let an operation fail from now on, or only the next time. What fails is kept in `calls` as well."""
        self._failing[operation] = (error or RuntimeError(f"{operation} fails, as it was told to"), once)

    # ---- what it was told -------------------------------------------------------------------------------------

    def told(self, operation: str) -> list[tuple[Any, ...]]:
        """The arguments of each call of one operation."""
        return [arguments for name, arguments in self.calls if name == operation]

    @property
    def runs(self) -> list[Run]:
        """The runs as they were started or continued."""
        return [run for (run,) in self.told("start")]

    @property
    def points(self) -> dict[str, list[tuple[int, int | float]]]:
        """The steps and values of each key."""
        points = defaultdict(list)
        for (batch,) in self.told("log_points"):
            for point in batch:
                for key, value in point.values.items():
                    points[key].append((point.step, value))
        return dict(points)

    @property
    def params(self) -> dict[str, Any]:
        return {key: value for (params,) in self.told("log_params") for key, value in params.items()}

    @property
    def texts(self) -> dict[str, list[tuple[int, str]]]:
        """The steps and texts of each key."""
        texts = defaultdict(list)
        for key, text, step, _ in self.told("log_text"):
            texts[key].append((step, text))
        return dict(texts)

    @property
    def summary(self) -> dict[str, int | float]:
        return {key: value for (values,) in self.told("log_summary") for key, value in values.items()}

    @property
    def artifacts(self) -> list[Artifact]:
        return [artifact for (artifact,) in self.told("log_artifact")]

    @property
    def statuses(self) -> list[Status]:
        """How each run has ended that was closed."""
        return [status for (status,) in self.told("finish")]

    # ---- operations -------------------------------------------------------------------------------------------

    def start(self, run: Run) -> str:
        self._keep("start", run)
        self.run = run
        self.ids.append(run.tracker_id or uuid.uuid4().hex)
        return self.ids[-1]

    def log_points(self, points: Sequence[Point]) -> None:
        self._keep("log_points", points)

    def log_params(self, params: Mapping[str, Any]) -> None:
        self._keep("log_params", params)

    def log_summary(self, values: Mapping[str, int | float]) -> None:
        self._keep("log_summary", values)

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        self._keep("log_text", key, text, step, time)

    def log_file(self, name: str, text: str) -> None:
        self._keep("log_file", name, text)

    def log_artifact(self, artifact: Artifact) -> None:
        self._keep("log_artifact", artifact)

    def flush(self) -> None:
        self._keep("flush")

    def attach(self) -> None:
        self._keep("attach")

    def detach(self) -> None:
        self._keep("detach")

    def finish(self, status: Status) -> None:
        self._keep("finish", status)

    def is_duplicate_of(self, other: Reporter) -> bool:
        return self is other

    def _keep(self, operation: str, *arguments: Any) -> None:
        self.calls.append((operation, arguments))
        if operation in self._failing:
            error, once = self._failing[operation]
            if once:
                del self._failing[operation]
            raise error
