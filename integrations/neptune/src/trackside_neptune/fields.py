"""The fields of a run: where they are, and what they take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from trackside import Point
from trackside.values import encodable

LONGEST_TEXT = 16384
LONGEST_TEXT_OF_A_SERIES = 1000
INT32 = range(-(2**31), 2**31)
GAP, HALF = 0.001, 0.5
NOTHING = (-1, -math.inf)
NON_FINITE = "non_finite/"
EPOCH = ("train/epoch", "epoch")  # one value, not a series, as with the callback of transformers


class Row(NamedTuple):
    """A value of a series, at a step, in Unix seconds."""

    value: float | str
    step: float
    time: float

    @property
    def moment(self) -> tuple[float, float]:
        return self.step, self.time


class Fields:
    """The fields of a run below a namespace.

    A field can have none below it, and keeps its type. Where a path cannot be used for that reason, one beside it is:
    `f1_` beside the namespace `f1/...`, and `f1.cat` beside the field `f1`.

    Args:
        run: the client's run.
        namespace: in which all of them are.
        last: step and time of the last point that a continued run has.
        is_set_back: whether it was further already, so that later points are to be replaced.
    """

    def __init__(self, run: Any, namespace: str, last: tuple[int, float] = NOTHING, is_set_back: bool = False) -> None:
        self._run = run
        self._namespace = namespace
        self._paths: dict[str, str] = {}
        self._end = last[0] + HALF
        self._is_set_back = is_set_back
        self._steps = Steps(Row("", *last), self._end)

    def path(self, name: str) -> str:
        return "/".join(filter(None, (*self._namespace.split("/"), name)))

    def assign(self, name: str, value: Any) -> None:
        self._write(name, lambda path: self._run[path].assign(value))

    def replace(self, name: str, value: Any) -> None:
        """Assign a value of another type, perhaps, which the field that is there would turn into its own."""

        def write(path: str) -> None:
            known = self._run.get_attribute(path)
            if known is not None and not isinstance(known, Mapping):  # a namespace is one
                self._run.pop(path)
            self._run[path].assign(value)

        self._write(name, write)

    def upload(self, name: str, file: str) -> None:
        self._write(name, lambda path: self._run[path].upload(file))

    def extend(self, name: str, rows: Sequence[Row]) -> None:
        """Add rows to a series; those that it holds already are left out."""
        placed = list(self._steps.place(name, rows))
        if placed:
            values, times = [row.value for row, _ in placed], [row.time for row, _ in placed]
            steps = [step for _, step in placed]

            def write(path: str) -> None:
                if name not in self._paths:
                    self._set_back(path)
                self._run[path].extend(values, steps=steps, timestamps=times)

            self._write(name, write)
            self._steps.note(name, *placed[-1])

    def _set_back(self, path: str) -> None:
        """Take out of a series what was logged after the step from which the run goes on."""
        if not self._is_set_back or not self._run.exists(path):
            return
        series = self._run[path]
        frame = series.fetch_values(progress_bar=False)
        rows = list(zip(frame["step"], frame["value"], frame["timestamp"], strict=True))
        kept = [row for row in rows if row[0] < self._end]
        if len(kept) < len(rows):
            series.clear()
            if kept:
                steps, values, moments = map(list, zip(*kept, strict=True))
                # Of the local time, as `fetch_values` made them; pandas' own method would take it for UTC.
                series.extend(values, steps=steps, timestamps=[datetime.timestamp(moment) for moment in moments])

    def _write(self, name: str, write: Callable[[str], None]) -> None:
        """Write to the path of a name, or to the first one beside it that takes this."""
        from neptune.exceptions import MetadataInconsistency

        refusal: Exception | None = None
        for path in [self._paths[name]] if name in self._paths else self._candidates(name):
            try:
                write(path)
            except (MetadataInconsistency, AttributeError, TypeError, ValueError) as error:  # noqa: PERF203
                refusal = refusal or error
            else:
                self._paths[name] = path
                return
        if refusal is not None:
            raise refusal

    def _candidates(self, name: str) -> Iterator[str]:
        """The path of a name, and those beside it: `a/b/c`, `a/b/c_`, `a/b.c`, `a.b.c`; none that another name has."""
        taken, steps = set(self._paths.values()), name.split("/")
        joined = ["/".join([*steps[:first], ".".join(steps[first:])]) for first in range(len(steps) - 2, -1, -1)]
        for beside in (name, f"{name}_", *joined):
            while (path := self.path(beside)) in taken:
                beside += "_"
            yield path


class Steps:
    """The steps of series, each of which Neptune wants to be greater than the one before.

    A second value at a step goes a thousandth behind the first. What lies before the last one is there already: it is
    sent again, or the run is a continued one, which has all up to its last point.
    """

    def __init__(self, last: Row, at: float) -> None:
        self._held = last, at
        self._last_of: dict[str, tuple[Row, float]] = {}

    def place(self, name: str, rows: Sequence[Row]) -> Iterator[tuple[Row, float]]:
        """The rows that are new to a series, each with the step that it has there."""
        last, at = self._last_of.get(name, self._held)
        for row in rows:
            is_held = row.moment <= self._held[0].moment
            if not is_held and row.moment >= last.moment and row != last:
                last, at = row, float(row.step) if row.step > at else round(at + GAP, 3)
                yield last, at

    def note(self, name: str, last: Row, at: float) -> None:
        """Note the last row that a series has taken."""
        self._last_of[name] = last, at


def split(points: Iterable[Point]) -> tuple[dict[str, list[Row]], dict[str, float]]:
    """The series of some points, with what is not finite as texts in series of their own; and the latest epoch."""
    series: dict[str, list[Row]] = {}
    epochs: dict[str, float] = {}
    for point in points:
        for key, number in point.values.items():
            if not math.isfinite(number):
                series.setdefault(NON_FINITE + key, []).append(Row(str(number), point.step, point.time))
            elif key in EPOCH:
                epochs[key] = float(number)
            else:
                series.setdefault(key, []).append(Row(float(number), point.step, point.time))
    return series, epochs


def plain(value: Any) -> bool | int | float | str:
    """A parameter as Neptune stores one: its integers have 32 bits, its floats are finite."""
    if isinstance(value, bool) or (isinstance(value, int) and value in INT32):
        return value
    if isinstance(value, (int, float)) and math.isfinite(value) and float(value) == value:
        return float(value)
    return encodable(str(value))
