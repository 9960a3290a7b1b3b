"""From the loop's names and values to those that a tracker takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal

from trackside.records import Limits, Point

KeyStyle = Literal["grouped", "raw"] | Callable[[str], str]

_HASH = 8


def grouped(name: str) -> str:
    """The one rule for names: `eval_loss` is `eval/loss`, `test_acc` is `test/acc`, all else goes below `train/`."""
    for group in ("eval", "test"):
        if name.startswith(f"{group}_"):
            return f"{group}/{name[len(group) + 1 :]}"
    return f"train/{name}"


_STYLES: dict[str, Callable[[str], str]] = {"grouped": grouped, "raw": str}


class Keys:
    """A tracker's keys for the loop's names; names that differ stay different, however much had to be cleaned."""

    def __init__(self, limits: Limits, style: KeyStyle = "raw") -> None:
        self._style: Callable[[str], str] = _STYLES[style] if isinstance(style, str) else style
        self._forbidden = re.compile(f"[^{limits.key}]") if limits.key else None
        self._length, self._is_path = limits.key_length, limits.key_is_path
        self._of_name: dict[str, str] = {}
        self._taken: set[str] = set()

    def __call__(self, name: str) -> str:
        key = self._of_name.get(name)
        if key is None:
            key = self._of_name[name] = self._make(name)
            self._taken.add(key)
        return key

    def __len__(self) -> int:
        return len(self._of_name)

    def _make(self, name: str) -> str:
        wanted = self._style(name)
        key = self._forbidden.sub("_", wanted) if self._forbidden else wanted
        if self._is_path and not _leads_downwards(key):
            return self._with_hash(key.replace("/", "_").lstrip("."), wanted)
        is_too_long = self._length is not None and len(key) > self._length
        return self._with_hash(key, wanted) if is_too_long or not key or key in self._taken else key

    def _with_hash(self, key: str, wanted: str) -> str:
        from zlib import crc32

        kept = key if self._length is None else key[: self._length - _HASH - 1]
        digest = crc32(wanted.encode("utf-8", "replace"))
        while (hashed := f"{kept}_{digest:0{_HASH}x}") in self._taken:
            digest = crc32(hashed.encode(), digest)
        return hashed


def _leads_downwards(path: str) -> bool:
    """Whether a path is relative, as short as it can be, and stays below where it begins."""
    return not path.startswith("..") and all(step not in ("", ".", "..") for step in path.split("/"))


def cut(text: str, length: int | None) -> str:
    """`text`, or as much of it as fits with a visible note of how long it was."""
    if length is None or len(text) <= length:
        return text
    note = f"... ({len(text)} characters)"
    return text[: max(0, length - len(note))] + note


def batches(points: Iterable[Point], size: int | None) -> Iterator[list[Point]]:
    """Points in batches of at most `size` values in all; a point with more of them is split."""
    batch: list[Point] = []
    room = size or 0
    for point in points:
        for part in _parts(point, size):
            if size and len(part.values) > room and batch:
                yield batch
                batch, room = [], size
            batch.append(part)
            room -= len(part.values)
    if batch:
        yield batch


def _parts(point: Point, size: int | None) -> Iterator[Point]:
    if size is None or len(point.values) <= size:
        yield point
        return
    for values in chunks(point.values, size):
        yield Point(values, point.step, point.epoch, point.time)


def chunks(values: Mapping[str, Any], size: int | None) -> Iterator[dict[str, Any]]:
    """A mapping in pieces of at most `size` entries; an empty one gives none."""
    items = iter(values.items())
    while piece := dict(islice(items, size)):
        yield piece
