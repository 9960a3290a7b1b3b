"""Names and values as wandb takes them."""

from __future__ import annotations

import math
from typing import Any
from zlib import crc32

TRUE = ("1", "true", "yes", "on", "y", "t")
FALSE = ("0", "false", "no", "off", "n", "f", "")


def param_name(key: str) -> str:
    """The name of a parameter; wandb takes dashes off both ends, by which two names could become one."""
    bare = key.strip("-")
    return key if bare == key else f"{bare}_{crc32(key.encode('utf-8', 'replace')):08x}"


def param_value(value: Any) -> Any:
    """A parameter of which JSON keeps everything: nan and the infinities as text, which wandb would make null."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [param_value(item) for item in value]
    if isinstance(value, str):
        return encodable(value)
    return {key: param_value(item) for key, item in value.items()} if isinstance(value, dict) else value


def encodable(text: str) -> str:
    """A text without the lone surrogates that Python puts for the undecodable bytes of a file name."""
    return text.encode("utf-8", "replace").decode("utf-8")


def names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def one_of(*words: str) -> Any:
    """Converts a word of the environment to one of `words`; each spelling of false means the first of them."""

    def convert(text: str) -> str:
        word = text.strip().lower()
        if word in FALSE:
            return words[0]
        if word not in words:
            raise ValueError(f"it takes one of {', '.join(words)}")
        return word

    return convert
