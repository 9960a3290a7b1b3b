"""Runs of wandb in the form of the contract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trackside_testkit import Reported

STATUS = {None: "running", 0: "finished", 1: "failed", 255: "killed"}
STEP = "train/global_step"
OURS = (STEP, "trackside/logged_at")


def reported(
    rows: Iterable[Mapping[str, Any]],
    config: Mapping[str, Any],
    summary: Mapping[str, Any],
    artifacts: Iterable[tuple[Iterable[str], list[str]]],
    exit_code: int | None,
) -> Reported:
    """A row of wandb's history holds several values; an artifact is known by that of its aliases that is its own."""
    values = [
        (key, row[STEP], value)
        for row in rows
        for key, value in row.items()
        if not key.startswith("_") and key not in OURS
    ]
    return Reported(
        points=Reported.by_key(row for row in values if not isinstance(row[2], str)),
        params=config,
        texts=Reported.by_key(row for row in values if isinstance(row[2], str)),
        summary=summary,
        artifacts={_own(aliases): files for aliases, files in artifacts},
        status=STATUS[exit_code],
    )


def _own(aliases: Iterable[str]) -> str:
    (own,) = (alias for alias in aliases if alias != "latest" and not alias.startswith("epoch_"))
    return own.replace("checkpoint_global_step_", "checkpoint-")
