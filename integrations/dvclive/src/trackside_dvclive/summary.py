"""The summary of a run: the latest value under each key, as a tree that `metrics.json` holds."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

MARK = "trackside"


def put_all(summary: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Put values under `a/b` as `{"a": {"b": value}}`; what would lie upon another, or DVCLive's step, gets a `_`."""
    for key, value in values.items():
        *folders, name = key.split("/")
        branch = summary
        for folder in folders:
            while not isinstance(branch.setdefault(folder, {}), dict):
                folder += "_"
            branch = branch[folder]
        while isinstance(branch.get(name), dict) or (branch is summary and name == "step"):
            name += "_"
        branch[name] = plain(value)


def plain(value: Any) -> Any:
    """What JSON can hold: what is not finite becomes the word that DVCLive has for it."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def write(summary: Mapping[str, Any], path: str) -> None:
    """Write a summary, which no reader finds half written, nor a run that goes on after it was killed."""
    text = json.dumps(summary, indent=4, default=lambda value: value.item())  # of a user's own numpy numbers
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(f"{text}\n")
    os.replace(f"{path}.new", path)


def known_of(folder: str) -> dict[str, Any]:
    """What the summary in a folder says of its run: `run`, `status` and `step`; nothing if it is none of ours."""
    try:
        with open(os.path.join(folder, "metrics.json"), encoding="utf-8") as file:
            summary = json.load(file)
        return {**summary[MARK], "step": summary.get("step", 0)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
