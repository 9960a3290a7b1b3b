"""Tables as DVCLive keeps them: for each key a file of tab-separated values, with a line for each value."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

METRICS, TEXTS = "plots/metrics", "texts"
MOST_OPEN_FILES = 200
LONGEST_NAME = 240  # of 255 bytes, which file systems allow
SUFFIX = ".tsv"
TIME = "timestamp"
ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


class Row(NamedTuple):
    key: str
    step: int
    time: float
    value: int | float | str


class Tables:
    """Appends rows to the tables in a folder. They are in the files when `add` returns."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._open: dict[str, Table] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """All rows or none of them, so that a call that has failed can be made again."""
        of_key: dict[str, list[Row]] = {}
        for row in rows:
            of_key.setdefault(row.key, []).append(row)
        before: list[tuple[str, int]] = []
        try:
            for key, its_rows in of_key.items():
                table = self._table(key)
                before.append((table.path, table.length))
                table.append(its_rows)
        except BaseException:
            for path, length in before:
                os.truncate(path, length)
            raise

    def position(self) -> dict[str, int]:
        """How long each file is."""
        return {os.path.relpath(path, self.folder): os.path.getsize(path) for path in self._files()}

    def cut_back(self, position: Mapping[str, int]) -> None:
        """Remove what was added after `position`, so that it can be added again; tables of the user's own stay."""
        for path in list(self._files()):
            length = position.get(os.path.relpath(path, self.folder))
            if length is not None:
                os.truncate(path, min(length, os.path.getsize(path)))
            elif _columns(path)[0] == TIME:
                os.remove(path)

    def cut_after(self, step: int) -> None:
        """Remove the rows of later steps."""
        for path in list(self._files()):
            columns = _columns(path)
            if "step" not in columns:
                continue
            with open(path, encoding="utf-8", newline="\n") as file:
                head, *lines = file
            kept = [line for line in lines if _step_of(line, columns.index("step")) <= step]
            if not kept:
                os.remove(path)
            elif len(kept) < len(lines):
                with open(f"{path}.new", "w", encoding="utf-8", newline="") as file:
                    file.writelines([head, *kept])
                os.replace(f"{path}.new", path)

    def close(self) -> None:
        for table in self._open.values():
            table.close()
        self._open.clear()

    def _table(self, key: str) -> Table:
        table = self._open.get(key)
        if table is None:
            if len(self._open) == MOST_OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()
            table = self._open[key] = Table(path_of(self.folder, key), key.rpartition("/")[2])
        return table

    def _files(self) -> Iterator[str]:
        for folder, _, names in os.walk(self.folder):
            yield from (os.path.join(folder, name) for name in names if name.endswith(SUFFIX))


class Table:
    """One file, in the columns that it has already, or else: time in milliseconds, step, value."""

    def __init__(self, path: str, column: str) -> None:
        self.path = path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - open until close()
        self._header = "\t".join([TIME, "step", column]) + os.linesep
        self._has_time = self.length == 0 or _columns(path)[0] == TIME

    @property
    def length(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def append(self, rows: Iterable[Row]) -> None:
        header = "" if self.length else self._header
        data = memoryview((header + "".join(map(self._line, rows))).encode())
        while data:
            data = data[self._file.write(data) :]

    def close(self) -> None:
        self._file.close()

    def _line(self, row: Row) -> str:
        time = f"{round(row.time * 1000)}\t" if self._has_time else ""
        return f"{time}{row.step}\t{_cell(row.value)}{os.linesep}"


def path_of(folder: str, key: str) -> str:
    """The file of a key, which no other key has; one that would be taken for a folder gives way."""
    return os.path.join(folder, *map(_file_name, key.replace(f"{SUFFIX}/", "_tsv/").split("/"))) + SUFFIX


def _file_name(name: str) -> str:
    """A name of characters as one of bytes."""
    encoded = name.encode()
    if len(encoded) <= LONGEST_NAME:
        return name
    return f"{encoded[: LONGEST_NAME - 9].decode('utf-8', 'ignore')}_{crc32(encoded):08x}"


def _columns(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return file.readline().rstrip("\n").split("\t")


def _step_of(line: str, at: int) -> int:
    try:
        return int(line.split("\t")[at])
    except (ValueError, IndexError):  # a further line of a text that the user has logged himself
        return 0


def _cell(value: int | float | str) -> str:
    """Numbers as Python has them; a text in one line, as PostgreSQL copies it.

    https://www.postgresql.org/docs/current/sql-copy.html
    """
    return value.translate(ESCAPES) if isinstance(value, str) else repr(value)
