"""The journal of a run: one JSON object a line, handed to the operating system before the log call returns.

The first line describes the file: `{"format": "trackside-journal", "version": 1, "run": {...}}`. Each further line is a
record (see `trackside.records.Record`), or a note: which records a tracker is not to get (`{"kind": "skip", ...}`), or
at which step the run was resumed, and with which other params (`{"kind": "resumed", ...}`). nan and the infinities, for
which JSON has no numbers, are written as the words "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import os
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from trackside import Artifact, Run
from trackside.records import Record
from trackside.values import flatten

logger = logging.getLogger(__name__)

FORMAT, VERSION = "trackside-journal", 1
NAME = "journal.jsonl"

# Bytes that wait in memory while the disk refuses them.
MOST_WAITING = 64 << 20

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_HEADER = b'{"format":"'
_SKIP = b'{"kind":"skip"'
_RESUMED = b'{"kind":"resumed"'
_FINISHED = b'{"kind":"finished"'


class JournalError(ValueError):
    """A file that is no journal, or none that this version can read."""


class Journal:
    """Appends lines to the journal of a run; what was appended survives the death of the process.

    Where the disk refuses a line, it and the next ones wait in memory, from where readers in this process have them,
    and go to the disk as soon as that takes them. What there is no memory for either is lost, and counted.

    Attributes:
        end: where the next line begins, in bytes.
        unprotected: the lines that wait in memory, each with where it begins.
        lost: how many lines are neither on the disk nor in memory.
    """

    def __init__(self, path: Path, run: Run) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.lost = path, 0
        self.unprotected: deque[tuple[int, bytes]] = deque()
        self._file = _held_open(self, path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.end = self._on_disk = os.lseek(self._file, 0, os.SEEK_END)
        if self.end == 0:
            self.append(encode({"format": FORMAT, "version": VERSION, "run": dataclasses.asdict(run)}))
        elif os.pread(self._file, 1, self.end - 1) != b"\n":
            self.append(b"\n")  # what a crash tore off stays a line of its own, which readers leave out

    def append(self, line: bytes) -> bool:
        """Append a line; false if there is no room for it anywhere."""
        if self.unprotected:
            self._catch_up()
        if not self.unprotected and self._write(line):
            self.end += len(line)
            return True
        if not self.unprotected:
            logger.warning("%s cannot be written; records wait in memory and would be lost in a crash.", self.path)
        if self.end - self._on_disk > MOST_WAITING:
            self.lost += 1
            return False
        self.unprotected.append((self.end, line))
        self.end += len(line)
        return True

    def restore(self) -> None:
        """Be at its path again, with all that it holds, if it was deleted there."""
        if self.path.exists():
            return
        with open(self.path, "xb") as copy:
            while piece := os.pread(self._file, 1 << 20, copy.tell()):
                copy.write(piece)
        again = os.open(self.path, os.O_RDWR | os.O_APPEND)
        os.dup2(again, self._file, inheritable=False)
        os.close(again)

    def waiting(self, offset: int) -> Iterator[bytes]:
        """The lines that wait in memory for the disk, if they are what follows at `offset`."""
        for begin, line in tuple(self.unprotected):
            if begin == offset:
                offset += len(line)
                yield line

    def _catch_up(self) -> None:
        while self.unprotected and self._write(self.unprotected[0][1]):
            self.unprotected.popleft()

    def _write(self, line: bytes) -> bool:
        try:
            written = os.write(self._file, line)
        except OSError:
            return False
        if written == len(line):
            self._on_disk += written
            return True
        os.ftruncate(self._file, self._on_disk)  # half a line on a full disk
        return False


def _held_open(owner: object, path: Path, flags: int) -> int:
    """A file that is open as long as its owner lives, whatever becomes of its name."""
    file = os.open(path, flags, 0o644)
    weakref.finalize(owner, os.close, file).atexit = False  # at the exit of the program runs are still to be closed
    return file


def encode(entry: Mapping[str, Any]) -> bytes:
    """A line of plain data, ending in a newline."""
    plain = _in_words(entry)
    try:
        return orjson.dumps(plain, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # an int of more than 64 bits, or the undecodable bytes of a file name
        return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace") + b"\n"


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
    known = {spec.name for spec in dataclasses.fields(Run)}
    try:
        with open(path, "rb") as file:
            header = orjson.loads(file.readline())
        version = int(header["version"]) if header["format"] == FORMAT else 0
        if 0 < version <= VERSION:
            return Run(**{key: value for key, value in header["run"].items() if key in known})
    except (ValueError, KeyError, TypeError, AttributeError):
        version = 0
    if version > VERSION:
        raise JournalError(
            f"{path} was written by a newer version (format {version}, known is {VERSION}); upgrade trackside-spool."
        )
    raise JournalError(f"{path} is no journal of a run.")


class Reader:
    """Reads the records of a journal in order, also while it grows, from where it stopped the last time.

    Attributes:
        number: of the next record.
        offset: where it begins, in bytes.
        torn: lines that a crash has torn, which are left out.
    """

    def __init__(self, path: Path, number: int = 0, offset: int = 0, journal: Journal | None = None) -> None:
        self.number, self.offset, self.torn = number, offset, 0
        self._file, self._journal = _held_open(self, path, os.O_RDONLY), journal

    def read(self, most: int, before: int | None = None) -> list[tuple[int, Record]]:
        """The next records with their numbers, at most `most`, and none whose number is `before` or greater."""
        found: list[tuple[int, Record]] = []
        for line in self._lines():
            if len(found) == most or self.number == before:
                break
            self.offset += len(line)
            record = self._record(line)
            if record is not None:
                found.append((self.number, record))
                self.number += 1
        return found

    def _lines(self) -> Iterator[bytes]:
        """The lines from `offset` on: those on the disk, then those that wait for it."""
        with open(self._file, "rb", closefd=False) as file:
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):  # one that is being written
                    return
                yield line
        if self._journal is not None:
            yield from self._journal.waiting(self.offset)

    def _record(self, line: bytes) -> Record | None:
        if line.startswith((_SKIP, _RESUMED, _HEADER)) or line == b"\n":
            return None
        try:
            return decode_record(orjson.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            self.torn += 1
            return None


def count_records(path: Path) -> int:
    """How many records a journal holds."""
    reader = Reader(path)
    while reader.read(10_000):
        pass
    return reader.number


def step_of_end(path: Path) -> int | None:
    """The step at which a training has come to its end; None if it has not, or was resumed since."""
    step = None
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        for line in file:
            if line.startswith(_RESUMED):
                step = None
            elif line.startswith(_FINISHED):
                with contextlib.suppress(ValueError, KeyError):  # torn
                    entry = orjson.loads(line)
                    step = entry["step"] if entry["status"] == "finished" else None
    return step


@dataclass
class Notes:
    """What the lines of a journal that are no records say.

    Attributes:
        skipped: the numbers of the records that a tracker is not to get, by the tracker's key.
        resumed: the number of the first record after each resume, and the step at which that went on.
        params: those that a resume has changed, as they are now, flat.
    """

    skipped: dict[str, set[int]] = field(default_factory=dict)
    resumed: list[tuple[int, int]] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> Notes:
        notes = cls()
        with open(path, "rb") as file:
            for line in file:
                if line.startswith((_SKIP, _RESUMED)):
                    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # torn
                        notes.take(orjson.loads(line))
        return notes

    def take(self, entry: Mapping[str, Any]) -> None:
        if entry["kind"] == "skip":
            self.skipped.setdefault(entry["tracker"], set()).update(range(entry["first"], entry["end"]))
        else:
            self.resumed.append((entry["first"], entry["step"]))
            self.params.update({name: after for name, (_, after) in entry.get("params", {}).items()})

    def changed(self, before: Run, now: Run) -> dict[str, tuple[Any, Any]]:
        """The params that are others now than they were at the beginning or the last resume, as old and new."""
        old, new = ({**_plain(before), **self.params}, _plain(now))
        names = sorted(old.keys() | new.keys())
        return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}

    def is_for(self, key: str, number: int, record: Record) -> bool:
        """Whether a tracker is to get a record: it was told of it, and no resume has made it void."""
        return not self.is_void(number, record) and number not in self.skipped.get(key, ())

    def is_void(self, number: int, record: Record) -> bool:
        """Whether the run was resumed at an earlier step since."""
        return any(number < first and record.step > step for first, step in self.resumed)

    def step_after(self, number: int) -> int:
        """The step to which the run was set back after the records before `number`; 0 if it was not."""
        return min((step for first, step in self.resumed if first >= number), default=0)


def _plain(run: Run) -> dict[str, Any]:
    """The params of a run as a journal gives them back."""
    params: dict[str, Any] = json.loads(encode(flatten(run.params)))
    return params
