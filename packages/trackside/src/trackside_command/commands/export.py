"""`trackside export`: the points of runs as one table, for other programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from trackside_command.console import FOLDER, refusals_as_errors
from trackside_command.histories import find, tell_troubles
from trackside_command.tables import FORMATS, Points

SUFFIXES = {f".{name}": name for name in FORMATS}


@click.command("export")
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--format", "wanted", type=click.Choice(list(FORMATS)), help="By default what FILE is called, or csv.")
@click.option(
    "--output",
    "-o",
    "file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write into this file instead of standard output.",
)
def command(folder: Path, wanted: str | None, file: Path | None) -> None:
    """Write the points of the runs at or below DIR as one table: a row for each log, a column for each metric."""
    name = wanted or (SUFFIXES.get(file.suffix) if file else None) or "csv"
    if name == "parquet" and file is None and sys.stdout.isatty():
        raise click.UsageError("Parquet is not for terminals; type --output FILE.")
    with refusals_as_errors():
        found = find(folder)
        points = Points(found.histories)
        with _sink(file) as sink:
            FORMATS[name](points, sink)
    tell_troubles(found)


@contextmanager
def _sink(file: Path | None) -> Iterator[BinaryIO]:
    """Where the table goes; a file is there whole or not at all."""
    if file is None:
        yield sys.stdout.buffer
        return
    partial = file.with_name(f"{file.name}.partial")
    try:
        with open(partial, "wb") as sink:
            yield sink
        os.replace(partial, file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
