"""Texts as MLflow takes them, and as the environment has them."""

from __future__ import annotations

import json
from typing import Any


def encodable(value: Any) -> str:
    """The text of a value, without the lone surrogates that Python puts for the undecodable bytes of a file name."""
    return str(value).encode("utf-8", "replace").decode("utf-8")


def json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError('it takes a JSON object, {"name": "value"}')
    return value
