"""Keys and values as Trackio keeps them: in rows of JSON, which a dashboard reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime, timezone
from hashlib import sha256
from typing import Any

from trackside.values import encodable

# What no UTF-8 holds: the lone surrogates that Python puts for the undecodable bytes of a file name.
NO_SURROGATES = r"\x00-\ud7ff\ue000-\U0010ffff"

RESERVED = {"project", "run", "timestamp", "step", "time", "metrics"}
LARGEST_INT = 2**63 - 1


def metric_key(key: str) -> str:
    """Columns of a row have names of their own; Trackio moves a metric out of their way like this."""
    return f"__{key}" if key in RESERVED or key.startswith("__") else key


def config_key(key: str) -> str:
    """Dashboards hide what begins with an underscore."""
    return f".{key}" if key.startswith(("_", ".")) else key


def plain(value: Any) -> Any:
    """A value that JSON can hold, with Trackio's words for what is not finite; an int beyond 64 bits is a float."""
    if isinstance(value, Mapping):
        return {encodable(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, int) and abs(value) > LARGEST_INT:
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def utc(seconds: float) -> str:
    """A time as Trackio writes it."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def digest(*content: Any) -> str:
    """32 hexadecimal digits that are the same for the same plain content."""
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
