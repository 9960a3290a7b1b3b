"""A run of the service as the contract looks at it."""

from __future__ import annotations

from azure_service import StoredRun

from trackside_testkit import Reported

STATUS = {"Completed": "finished", "Failed": "failed", "Canceled": "killed", "Running": "running"}


def reported(run: StoredRun) -> Reported:
    files: dict[str, list[str]] = {}
    for path in run.files:
        name, _, file = path.partition("/")
        files.setdefault(name, []).append(file)
    return Reported(
        points=Reported.by_key(run.numbers),
        params={row["name"]: row["value"] for row in run.table("trackside/params")},
        texts=Reported.by_key((row["name"], row["step"], row["text"]) for row in run.table("trackside/texts")),
        artifacts=files,
        status=STATUS[run.status],
    )
