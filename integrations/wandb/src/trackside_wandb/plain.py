"""Names, values and files as wandb takes them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any
from zlib import crc32

from trackside.options import FALSE
from trackside.values import encodable

LONGEST_FILE_NAME = 100
CLEAN_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]*")
UNCLEAN = re.compile(r"[^A-Za-z0-9_. -]")


def param_name(key: str) -> str:
    """The name of a parameter; wandb strips dashes from both ends, which could make two names one."""
    bare = key.strip("-")
    return key if bare == key else f"{bare}_{_checksum(key)}"


def plain(value: Any) -> Any:
    """A value of which JSON keeps everything: nan and the infinities as text, which wandb would make null."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return encodable(value)
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def file_name(name: str) -> str:
    """A path that every file system takes and wandb does not take for a pattern."""
    return "/".join(map(_part, name.split("/")))


def _part(name: str) -> str:
    if CLEAN_FILE_NAME.fullmatch(name) and len(name) <= LONGEST_FILE_NAME:
        return name
    return f"{UNCLEAN.sub('_', name)[: LONGEST_FILE_NAME - 9].lstrip('.')}_{_checksum(name)}"


def _checksum(text: str) -> str:
    return f"{crc32(text.encode('utf-8', 'replace')):08x}"


def one_of(*words: str) -> Callable[[str], str]:
    """Converts a word of the environment to one of `words`; each spelling of false means the first of them."""

    def convert(text: str) -> str:
        word = text.strip().lower()
        if word in FALSE:
            return words[0]
        if word not in words:
            raise ValueError(f"it takes one of {', '.join(words)}")
        return word

    return convert
