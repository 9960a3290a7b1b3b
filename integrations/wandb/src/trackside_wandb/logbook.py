"""The file in which an offline run waits to be uploaded: a log in the format of LevelDB, of protobuf records."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAGIC = b":W&B"
START = 7
BLOCK = 32 * 1024
HEADER = struct.Struct("<IHB")
END, FULL, FIRST, _, LAST = range(5)


def frames(content: bytes) -> Iterator[bytes]:
    """The records of a file, without the last one if that is torn.

    The format: https://github.com/google/leveldb/blob/main/doc/log_format.md, after a header of 7 bytes.
    """
    offset = START if content.startswith(MAGIC) else len(content)
    parts: list[bytes] = []
    while offset + HEADER.size <= len(content):
        room = BLOCK - offset % BLOCK
        if room < HEADER.size:
            offset += room
            continue
        _, length, kind = HEADER.unpack_from(content, offset)
        body = content[offset + HEADER.size : offset + HEADER.size + length]
        offset += HEADER.size + length
        if kind == END or len(body) < length:
            return
        if kind in (FULL, FIRST):
            parts.clear()
        parts.append(body)
        if kind in (FULL, LAST):
            yield b"".join(parts)


def latest_value(folder: str, run_id: str, key: str) -> Any:
    """The value under a key in the latest row that has one, of the offline runs of an id below a folder."""
    found = None
    for file in sorted(Path(folder).glob(f"*wandb/offline-run-*/run-{run_id}.wandb")):
        for frame in frames(file.read_bytes()):
            if key.encode() in frame:
                found = _row(frame).get(key, found)
    return found


def _row(frame: bytes) -> dict[str, Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    items = Record.FromString(frame).history.item
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
