"""What the fake keeps, by project."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

INTEGERS = range(-(2**63), 2**64)  # what orjson can write


@dataclass
class Database:
    rows: list[dict[str, Any]] = field(default_factory=list)
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    artifacts: list[tuple[str, tuple[str, ...], Any]] = field(default_factory=list)
    alerts: list[tuple[str, str, str, int | None]] = field(default_factory=list)

    def add(self, run_id: str, name: str, row: dict[str, Any], config: dict[str, Any] | None) -> None:
        if type(row["step"]) is not int:
            raise TypeError(f"a step of {row['step']!r} would be stored as something else")
        log_id = row.get("log_id")
        if log_id is None or all(other.get("log_id") != log_id for other in self.rows):
            metrics = json.loads(encode(row["metrics"]))
            self.rows.append({**row, "metrics": metrics, "run_id": run_id, "run_name": name})
        if config:
            self.configs[run_id] = json.loads(encode(config))

    def of(self, run_id: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["run_id"] == run_id]

    def ids(self) -> list[str]:
        return list(dict.fromkeys(row["run_id"] for row in self.rows))


DATABASES: dict[str, Database] = {}


def encode(value: Any) -> bytes:
    """As orjson does it: no number beyond 64 bits, no lone surrogate, no key but a text, nothing but plain data."""
    _check(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")


def _check(value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError("Dict key must be str")
            _check(item)
    elif isinstance(value, list):
        for item in value:
            _check(item)
    elif type(value) is int and value not in INTEGERS:
        raise TypeError("Integer exceeds 64-bit range")
