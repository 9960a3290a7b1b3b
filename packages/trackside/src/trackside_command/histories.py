"""The runs below a folder as they stand now, read from their journals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click

from trackside.flow import improves
from trackside.records import Record
from trackside.values import flatten, scalar
from trackside_command.console import REFUSALS, sentence_of
from trackside_spool.folder import RunFolder
from trackside_spool.journal import Notes, Reader, read_run
from trackside_spool.replay import Debt, runs_below

BATCH = 10_000

LOWER_IS_BETTER = ("loss", "perplexity", "error", "mae", "mse", "rmse", "wer", "cer")
HIGHER_IS_BETTER = ("accuracy", "f1", "precision", "recall", "auc", "bleu", "score", "reward", "map")


class Value(NamedTuple):
    """What a metric was at a step."""

    step: int
    number: float


@dataclass
class Curve:
    """The values of one metric, in order; `greater_is_better` is None where nobody knows."""

    greater_is_better: bool | None = None
    values: list[Value] = field(default_factory=list)

    @property
    def last(self) -> Value:
        return self.values[-1]

    @property
    def best(self) -> Value | None:
        """The first of the best values; nan is none, and without a direction there is none."""
        best: Value | None = None
        if self.greater_is_better is not None:
            for value in self.values:
                if improves(value.number, best and best.number, self.greater_is_better):
                    best = value
        return best


@dataclass
class Standing:
    """How far a run has come, and with what: `curves` by the names that the loop gave."""

    status: str
    step: int
    epoch: float | None
    seconds: float
    curves: dict[str, Curve]
    debts: list[Debt]


class History:
    """The run that a journal holds; what a resume has made void is left out.

    Attributes:
        params: flat, as they were set last.
        count: how many records there are, void ones included, once all were read.
        torn: lines that a crash has torn, likewise.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.count, self.torn = folder, 0, 0
        self.run, self._notes = read_run(folder.journal), Notes.of(folder.journal)
        self._resumed = max((first for first, _ in self._notes.resumed), default=0)
        self.params: dict[str, Any] = {**flatten(self.run.params), **self._notes.params}

    def records(self) -> Iterator[Record]:
        """Its records in order. An end that was followed by a resume was none."""
        reader = Reader(self.folder.journal)
        while entries := reader.read(BATCH):
            for number, record in entries:
                was_no_end = record.status is not None and number < self._resumed
                if not was_no_end and not self._notes.is_void(number, record):
                    yield record
        self.count, self.torn = reader.number, reader.torn

    def points(self) -> Iterator[Record]:
        """Those of its records that hold values."""
        return (record for record in self.records() if record.values)

    def read(self) -> Standing:
        """Read all of it."""
        status: str | None = None
        last: Record | None = None
        curves: dict[str, Curve] = {}
        for record in self.records():
            status, last = record.status or status, record
            for name, value in record.values.items():
                if name != "epoch" and (number := scalar(value)) is not None:
                    curve = curves.setdefault(name, Curve(greater_is_better(name, self.params)))
                    curve.values.append(Value(record.step, number))
        return Standing(
            status=status or ("running" if self.folder.is_live else "killed"),
            step=last.step if last else self.run.step,
            epoch=last.epoch if last else None,
            seconds=last.time - self.run.time if last else 0.0,
            curves=curves,
            debts=[
                Debt(self.folder.path, self.run, tracker, tracker.owed(self.count))
                for tracker in self.folder.trackers()
            ],
        )


class Found(NamedTuple):
    """The runs below a folder, and a sentence for each journal that cannot be read."""

    histories: list[History]
    troubles: list[str]

    def add(self, folder: RunFolder) -> None:
        try:
            self.histories.append(History(folder))
        except REFUSALS as error:
            self.troubles.append(sentence_of(error))


def find(below: Path) -> Found:
    """The runs at or below a folder, in the order in which they were started.

    Raises:
        FileNotFoundError: there is none.
    """
    found = Found([], [])
    for folder in runs_below(below):
        found.add(folder)
    found.histories.sort(key=lambda history: history.run.time)
    return found


def tell_troubles(found: Found) -> None:
    """Say on standard error what could not be read; exit code 1 if a whole journal could not."""
    for history in found.histories:
        if history.torn:
            click.echo(f"{history.folder.journal}: {history.torn} torn lines are left out.", err=True)
    for trouble in found.troubles:
        click.echo(f"Error: {trouble}", err=True)
    if found.troubles:
        raise SystemExit(1)


def greater_is_better(name: str, params: Mapping[str, Any]) -> bool | None:
    """Which values of a metric are good: as the run was told, or as its name says; None where nobody knows."""
    told = params.get("greater_is_better")
    if isinstance(told, bool) and _short(name) == _short(str(params.get("metric_for_best_model"))):
        return told
    word = re.split(r"[_/]", name.lower())[-1]
    return False if word in LOWER_IS_BETTER else True if word in HIGHER_IS_BETTER else None


def _short(name: str) -> str:
    return name.removeprefix("eval_")
