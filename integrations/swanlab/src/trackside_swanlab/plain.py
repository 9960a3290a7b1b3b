"""Keys and values as SwanLab keeps them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from zlib import crc32

from trackside.options import FALSE
from trackside.values import encodable

# No control characters, and not what no UTF-8 holds: the lone surrogates that Python puts for undecodable bytes.
KEY_CHARACTERS = r"\x20-\x7e\x80-\ud7ff\ue000-\U0010ffff"
EDGES = " \t\n\r./"
OF_THE_SYSTEM = "__swanlab__"
LARGEST_INT = 2**63 - 1


def metric_key(key: str) -> str:
    """SwanLab drops its own names, and cuts what stands at the edges, so that names may fall together."""
    stripped = key.strip(EDGES)
    if key == stripped and not key.startswith(OF_THE_SYSTEM):
        return key
    return f"{stripped.removeprefix(OF_THE_SYSTEM).strip(EDGES)}_{crc32(key.encode()):08x}"


def plain(value: Any) -> Any:
    """A parameter: SwanLab would write both infinities as `Inf`, and None as `{}`."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {encodable(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return encodable(value)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return float(value) if isinstance(value, int) and abs(value) > LARGEST_INT else value


def unless_false(text: str) -> bool:
    """Whether a variable says anything but no: transformers has it switch on by any word."""
    return text.strip().lower() not in (*FALSE, "none")


def one_of(*words: str) -> Callable[[str], str]:
    """Refuses words of the environment that are none of these."""

    def convert(text: str) -> str:
        if text not in words:
            raise ValueError(f"it takes one of {', '.join(words)}")
        return text

    return convert
