from __future__ import annotations

from trackio.memory import DATABASES, Database

FAILURES: list[Exception] = []
"""What the next calls raise, first to last."""


class SQLiteStorage:
    @staticmethod
    def validate_project_name(project: str) -> None:
        if project.startswith("registry-"):
            raise ValueError(f"Project name {project!r} is not allowed")

    @staticmethod
    def bulk_log(
        project: str,
        run: str,
        metrics_list: list[dict],
        steps: list[int] | None = None,
        timestamps: list[str] | None = None,
        config: dict | None = None,
        log_ids: list[str] | None = None,
        space_id: str | None = None,
        run_id: str | None = None,
    ) -> None:
        if FAILURES:
            raise FAILURES.pop(0)
        database = DATABASES.setdefault(project, Database())
        for metrics, step, timestamp, log_id in zip(metrics_list, steps, timestamps, log_ids, strict=True):
            row = {"metrics": metrics, "step": step, "timestamp": timestamp, "log_id": log_id}
            database.add(run_id, run, row, config)
