"""The points of runs as a table, and the formats in which it can be written."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

from trackside.registry import NotInstalledError
from trackside.values import scalar
from trackside_command.histories import History
from trackside_spool.journal import encode

KEYS = {"run": str, "run_id": str, "step": int, "epoch": float, "time": float}
ROWS_AT_ONCE = 10_000
LARGEST_INTEGER = 2**63 - 1

Row = dict[str, Any]


class Points:
    """A row for each log of some runs: the columns of `KEYS`, and one for each value that any of them has.

    A value that is called like one of the keys gets `_` appended; `epoch` is the loop's own.
    """

    def __init__(self, histories: Sequence[History]) -> None:
        self._histories = histories
        self._kinds: dict[str, set[type]] = {}
        for row in self.rows():
            for name, value in row.items():
                self._kinds.setdefault(name, set()).add(type(value) if _is_small(value) else float)

    @property
    def columns(self) -> list[str]:
        return [*KEYS, *(name for name in self._kinds if name not in KEYS)]

    def rows(self) -> Iterator[Row]:
        """Read anew from the journals each time, so that a long run need not fit into memory."""
        for history in self._histories:
            about = {"run": history.run.name, "run_id": history.run.id}
            for record in history.points():
                values = {_column(name): value for name, value in record.values.items() if name != "epoch"}
                if values:
                    yield {**about, "step": record.step, "epoch": record.epoch, "time": record.time, **values}

    def kind_of(self, name: str) -> type:
        """What a column holds: bool, int, float, or str for all else."""
        if name in KEYS:
            return KEYS[name]
        kinds = self._kinds[name] - {type(None)}
        if len(kinds) == 1 and kinds <= {bool, int}:
            return kinds.pop()
        return float if kinds and kinds <= {bool, int, float} else str


def write_csv(points: Points, sink: BinaryIO) -> None:
    """RFC 4180 in UTF-8, a header first; what a row does not have is empty, what is no number or text is JSON."""
    text = io.TextIOWrapper(sink, "utf-8", errors="backslashreplace", newline="", write_through=True)
    try:
        table = csv.DictWriter(text, points.columns, restval="")
        table.writeheader()
        for row in points.rows():
            table.writerow({name: _cell(value) for name, value in row.items()})
    finally:
        text.detach()


def write_json(points: Points, sink: BinaryIO) -> None:
    """An array of objects, a line each; nan and the infinities are words, as in a journal."""
    begin = b"["
    for row in points.rows():
        sink.write(begin + b"\n" + encode(row).rstrip())
        begin = b","
    sink.write(b"\n]\n" if begin == b"," else b"[]\n")


def write_parquet(points: Points, sink: BinaryIO) -> None:
    """Columns of one type each; what a row does not have is null.

    Raises:
        NotInstalledError: pyarrow is missing.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise NotInstalledError(f'parquet needs pyarrow ({error}); type: pip install "trackside[parquet]"') from error
    types = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    kinds = {name: points.kind_of(name) for name in points.columns}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in kinds.items()])
    rows = points.rows()
    with parquet.ParquetWriter(sink, schema) as writer:
        while batch := list(islice(rows, ROWS_AT_ONCE)):
            columns = {name: [_of_kind(kind, row.get(name)) for row in batch] for name, kind in kinds.items()}
            writer.write_table(pyarrow.table(columns, schema=schema))


FORMATS: dict[str, Callable[[Points, BinaryIO], None]] = {
    "csv": write_csv,
    "parquet": write_parquet,
    "json": write_json,
}


def _column(name: str) -> str:
    return f"{name}_" if name in KEYS else name


def _is_small(value: Any) -> bool:
    return not isinstance(value, int) or abs(value) <= LARGEST_INTEGER


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, (str, int, float, type(None))) else json.dumps(value)


def _of_kind(kind: type, value: Any) -> Any:
    if value is None:
        return None
    if kind is str:
        return str(_cell(value))
    number = scalar(value)
    return None if number is None else kind(number)
