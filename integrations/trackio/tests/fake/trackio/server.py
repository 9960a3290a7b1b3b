from __future__ import annotations

from typing import Any

from trackio.memory import DATABASES, Database


def get_runs_for_project(project: str, databases: dict[str, Database] = DATABASES) -> list[dict[str, Any]]:
    database = databases.get(project, Database())
    first = [database.of(run_id)[0] for run_id in database.ids()]
    return [{"id": row["run_id"], "name": row["run_name"], "created_at": row["timestamp"]} for row in first]


def get_run_summary(
    project: str, run: str | None = None, run_id: str | None = None, databases: dict[str, Database] = DATABASES
) -> dict[str, Any]:
    database = databases[project]
    steps = [row["step"] for row in database.of(run_id)]
    return {"run_id": run_id, "config": database.configs.get(run_id), "last_step": max(steps, default=None)}
