"""What an offline run has written, read by the format of its file rather than by the SDK's reader."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAGIC = b":SWL"
START = 7
BLOCK = 32 * 1024
HEADER = struct.Struct("<IHB")
FULL, FIRST, _, LAST = range(1, 5)


class OfflineRun:
    """One folder of a run."""

    def __init__(self, folder: Path) -> None:
        from swanlab.proto.swanlab.record.v1.record_pb2 import Record

        self.folder = folder
        (file,) = folder.glob("run-*.swanlab")
        self.records = [Record.FromString(frame) for frame in frames(file.read_bytes())]

    def of(self, kind: str) -> list[Any]:
        return [getattr(record, kind) for record in self.records if record.WhichOneof("record_type") == kind]

    @property
    def points(self) -> list[tuple[str, int, float]]:
        return [(one.key, one.step, one.value.number) for one in self.of("scalar")]

    @property
    def times(self) -> dict[tuple[str, int], float]:
        return {(one.key, one.step): one.timestamp.ToNanoseconds() / 1e9 for one in self.of("scalar")}

    @property
    def texts(self) -> list[tuple[str, int, str]]:
        found = [(one.key, one.step, item.filename) for one in self.of("media") for item in one.value.items]
        return [(key, step, Path(self.folder, "media", "text", name).read_text("utf-8")) for key, step, name in found]

    @property
    def config(self) -> dict[str, Any]:
        import yaml

        content = yaml.safe_load(Path(self.folder, "files", "config.yaml").read_text("utf-8"))
        return {name: entry["value"] for name, entry in (content or {}).items()}

    @property
    def saved(self) -> dict[str, bytes]:
        """The content of each file that is to be uploaded with the run, by its name there."""
        customs = [one for one in self.of("save") if one.target_path]
        return {one.name: Path(one.source_path).read_bytes() for one in customs}

    @property
    def state(self) -> str:
        from swanlab.proto.swanlab.run.v1.run_pb2 import RunState

        ends = self.of("finish")
        return RunState.Name(ends[0].state).removeprefix("RUN_STATE_").lower() if ends else "running"


def runs_below(folder: Path) -> list[OfflineRun]:
    return [OfflineRun(file.parent) for file in sorted(folder.rglob("run-*.swanlab"))]


def frames(content: bytes) -> Iterator[bytes]:
    """The records of a file: a log as LevelDB has it, after a header of 7 bytes.

    The format: https://github.com/google/leveldb/blob/main/doc/log_format.md
    """
    assert content[: len(MAGIC)] in (MAGIC, b""), "no run of SwanLab"
    offset, parts = START, []
    while offset + HEADER.size <= len(content):
        room = BLOCK - offset % BLOCK
        if room < HEADER.size:
            offset += room
            continue
        _, length, kind = HEADER.unpack_from(content, offset)
        offset += HEADER.size
        parts = [*([] if kind in (FULL, FIRST) else parts), content[offset : offset + length]]
        offset += length
        if kind in (FULL, LAST):
            yield b"".join(parts)
