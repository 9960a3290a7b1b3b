"""The journal of a run: one JSON object a line, handed to the operating system before the log call returns.

The first line describes the file: `{"format": "trackside-journal", "version": 1, "run": {...}}`. Each further line is a
record (see `trackside.records.Record`) or says which records a tracker is not to get (`{"kind": "skip", ...}`). nan and
the infinities, for which JSON has no numbers, are written as the words "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from trackside import Artifact, Run
from trackside.records import Record

logger = logging.getLogger(__name__)

FORMAT, VERSION = "trackside-journal", 1
NAME = "journal.jsonl"

# Records that wait in memory while the disk refuses them.
MOST_UNPROTECTED = 100_000

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_HEADER = b'{"format":"'
_SKIP = b'{"kind":"skip"'


class JournalError(ValueError):
    """A file that is no journal, or none that this version can read."""


class Journal:
    """Appends lines to the journal of a run; what was appended survives the death of the process.

    Where the disk refuses a line, it and the next ones wait in memory, and go to the disk as soon as that takes them.
    """

    def __init__(self, path: Path, run: Run) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.unprotected: deque[bytes] = deque(maxlen=MOST_UNPROTECTED)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self.end = os.lseek(self._file, 0, os.SEEK_END)
        if self.end == 0:
            self.append(encode({"format": FORMAT, "version": VERSION, "run": dataclasses.asdict(run)}))
        elif os.pread(self._file, 1, self.end - 1) != b"\n":
            self.append(b"\n")  # what a crash tore off stays a line of its own, which readers leave out

    def append(self, line: bytes) -> None:
        if self.unprotected:
            self.unprotected.append(line)
            self._catch_up()
        elif not self._write(line):
            self.unprotected.append(line)
            logger.warning("%s cannot be written; records wait in memory and would be lost in a crash.", self.path)

    def _catch_up(self) -> None:
        while self.unprotected and self._write(self.unprotected[0]):
            self.unprotected.popleft()

    def _write(self, line: bytes) -> bool:
        try:
            written = os.write(self._file, line)
        except OSError:
            return False
        if written == len(line):
            self.end += written
            return True
        os.ftruncate(self._file, self.end)  # half a line on a full disk
        return False

    def close(self) -> None:
        os.close(self._file)


def encode(entry: Mapping[str, Any]) -> bytes:
    """A line of plain data, ending in a newline."""
    return orjson.dumps(_in_words(entry), option=orjson.OPT_APPEND_NEWLINE)


def _in_words(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): _in_words(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_in_words(item) for item in value]
    return value


def encode_record(record: Record) -> bytes:
    """The line of a record; what it has not is left out."""
    entry = record._asdict()
    entry["artifact"] = record.artifact and record.artifact._asdict()
    return encode({key: value for key, value in entry.items() if value is not None or key == "epoch"})


def decode_record(entry: Mapping[str, Any]) -> Record:
    """The record that a line holds."""
    values = entry.get("values", {})
    if any(isinstance(value, str) for value in values.values()):
        values = {key: _WORDS.get(value, value) if isinstance(value, str) else value for key, value in values.items()}
    artifact = Artifact(**entry["artifact"]) if entry.get("artifact") else None
    return Record(entry["kind"], entry["step"], entry["epoch"], entry["time"], values, artifact, entry.get("status"))


def read_run(path: Path) -> Run:
    """The run that a journal is of.

    Raises:
        JournalError: the file is no journal, or of a version that this one does not know.
    """
    try:
        with open(path, "rb") as file:
            header = orjson.loads(file.readline())
        is_journal = header["format"] == FORMAT
    except (ValueError, KeyError, TypeError):
        is_journal = False
    if not is_journal:
        raise JournalError(f"{path} is no journal of a run.")
    if header["version"] > VERSION:
        raise JournalError(
            f"{path} was written by a newer version (format {header['version']}, known is {VERSION}); "
            "upgrade trackside-spool."
        )
    known = {spec.name for spec in dataclasses.fields(Run)}
    return Run(**{key: value for key, value in header["run"].items() if key in known})


class Reader:
    """Reads the records of a journal in order, also while it grows, from where it stopped the last time.

    Attributes:
        number: of the next record.
        offset: where it begins, in bytes.
        torn: lines that a crash has torn, which are left out.
    """

    def __init__(self, path: Path, number: int = 0, offset: int = 0) -> None:
        self._path = path
        self.number, self.offset, self.torn = number, offset, 0

    def read(self, most: int, before: int | None = None) -> list[tuple[int, Record]]:
        """The next records with their numbers, at most `most`, and none whose number is `before` or greater."""
        found: list[tuple[int, Record]] = []
        with open(self._path, "rb") as file:
            file.seek(self.offset)
            while len(found) < most and self.number != before:
                line = file.readline()
                if not line.endswith(b"\n"):  # the end, or a line that is being written
                    break
                self.offset += len(line)
                record = self._record(line)
                if record is not None:
                    found.append((self.number, record))
                    self.number += 1
        return found

    def _record(self, line: bytes) -> Record | None:
        if line.startswith((_SKIP, _HEADER)) or line == b"\n":
            return None
        try:
            return decode_record(orjson.loads(line))
        except (ValueError, KeyError, TypeError):
            self.torn += 1
            return None


def count_records(path: Path) -> int:
    """How many records a journal holds."""
    reader = Reader(path)
    while reader.read(10_000):
        pass
    return reader.number


def skipped(path: Path) -> dict[str, set[int]]:
    """The numbers of the records that a tracker is not to get, by the tracker's key."""
    found: dict[str, set[int]] = {}
    with open(path, "rb") as file:
        for line in file:
            if line.startswith(_SKIP) and line.endswith(b"\n"):
                entry = orjson.loads(line)
                found.setdefault(entry["tracker"], set()).update(range(entry["first"], entry["end"]))
    return found
