"""Texts and parameters as Comet takes them."""

from __future__ import annotations

import json
from typing import Any

from trackside.values import encodable

LARGEST_INT = 2**63 - 1


def number(value: int | float) -> int | float:
    """A number of at most 64 bits."""
    return value if abs(value) <= LARGEST_INT or isinstance(value, float) else float(value)


def param(value: Any) -> bool | int | float | str | None:
    """A parameter: numbers as they are, up to 64 bits; lists as JSON."""
    if isinstance(value, int) and abs(value) > LARGEST_INT:
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return encodable(value if isinstance(value, str) else json.dumps(value))


def text_of(model: Any) -> str | None:
    """What a model says of its layers; None if it says nothing."""
    try:
        text = str(model)
    except Exception:  # a model that cannot be printed is trained nevertheless
        return None
    return None if model is None or text == object.__repr__(model) else encodable(text)
