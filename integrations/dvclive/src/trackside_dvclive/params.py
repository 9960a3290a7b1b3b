"""What `params.yaml` says of a run beside its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackside import Run
from trackside.values import flatten

CHANGED = "trackside/changed_params"


def origin(run: Run, folder: str | None) -> dict[str, Any]:
    """Where a run comes from, which trial it is, and how large its model."""
    about = {"run": run.id, **run.source}
    if run.tracker_id not in (None, folder):
        about["continues"] = str(run.tracker_id)
    params: dict[str, Any] = {f"trackside/{name}": text for name, text in about.items()}
    if run.trial_name is not None:
        params["trial/name"] = run.trial_name
        params |= {f"trial/{name}": value for name, value in flatten(run.trial_params or {}).items()}
    return params if run.num_parameters is None else {**params, "model/num_parameters": run.num_parameters}


def with_changes(params: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as YAML can hold them, and those that were others before, as old and new."""
    new = {name: encodable(value) for name, value in params.items()}
    changed = {
        name: [before[name], new[name]] for name in new.keys() & before.keys() if repr(before[name]) != repr(new[name])
    }
    return {**new, CHANGED: {**before.get(CHANGED, {}), **changed}} if changed else new


def encodable(value: Any) -> Any:
    """Plain data without the lone surrogates that Python puts for the undecodable bytes of a file name."""
    if isinstance(value, Mapping):
        return {encodable(name): encodable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encodable(item) for item in value]
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value
