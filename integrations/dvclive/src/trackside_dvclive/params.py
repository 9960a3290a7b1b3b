"""What `params.yaml` says of a run beside its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackside import values

CHANGED = "trackside/changed_params"


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
    return values.encodable(value) if isinstance(value, str) else value
