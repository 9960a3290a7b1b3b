"""What the commands share: what they take, how they refuse, and how they show tables and JSON."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from trackside.registry import NotConfiguredError, NotInstalledError
from trackside_spool.folder import InUseError
from trackside_spool.journal import JournalError, encode

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
REFUSALS = (InUseError, JournalError, NotConfiguredError, NotInstalledError, OSError, TypeError, ValueError)

COLOURS = {"ok": "green", "yes": "green", "finished": "green", "running": "cyan", "pruned": "yellow"}
COLOUR_OF_TROUBLE = "red"

GAP = "  "
NARROWEST_TEXT = 20  # characters of a cell that is wrapped

json_option: Callable[[Any], Any] = click.option("--json", "is_json", is_flag=True, help="Say it as JSON.")


@contextmanager
def refusals_as_errors() -> Iterator[None]:
    """What cannot be done becomes one sentence and exit code 1."""
    try:
        yield
    except BrokenPipeError:  # of somebody who has read enough
        raise
    except REFUSALS as error:
        raise click.ClickException(sentence_of(error)) from error


def sentence_of(error: Exception) -> str:
    """What a refusal says, for a person."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    return on_one_line(error)


def say_json(document: Mapping[str, Any]) -> None:
    """Print a document as standard JSON, which nan and the infinities are words in, as in a journal."""
    click.echo(json.dumps(json.loads(encode(document)), indent=2))


def on_one_line(value: object) -> str:
    """A value as text that cannot leave its line or speak to a terminal."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in str(value)
    )


def readable(number: float) -> str:
    """Four digits of a fraction, all of a whole number."""
    return f"{number:,}" if isinstance(number, int) else f"{number:.4g}"


class Column(NamedTuple):
    """A column of a table: its `name`, and of what it consists. Only text is wrapped."""

    name: str
    is_number: bool = False
    is_text: bool = False
    is_verdict: bool = False


class Table:
    """Rows under headers, as wide as the terminal; a block for each row where that is too narrow for a table.

    Where the output is no terminal, it is a line for each row, and two spaces between its cells.
    """

    def __init__(self, *columns: Column) -> None:
        self._columns = columns
        self._rows: list[list[str]] = []

    def add(self, *cells: object) -> None:
        self._rows.append([on_one_line(cell) for cell in cells])

    def show(self) -> None:
        if not sys.stdout.isatty():
            self._write_lines()
        elif self._least_width() <= terminal_width():
            self._draw()
        else:
            self._write_blocks()

    def _widths(self) -> list[int]:
        names = [column.name for column in self._columns]
        return [max(map(len, cells)) for cells in zip(names, *self._rows, strict=True)]

    def _least_width(self) -> int:
        widths = zip(self._widths(), self._columns, strict=True)
        least = [min(width, NARROWEST_TEXT) if column.is_text else width for width, column in widths]
        return sum(least) + len(GAP) * (len(least) - 1)

    def _write_lines(self) -> None:
        widths = self._widths()
        for cells in [[column.name for column in self._columns], *self._rows]:
            aligned = [
                cell.rjust(width) if column.is_number else cell.ljust(width)
                for cell, width, column in zip(cells, widths, self._columns, strict=True)
            ]
            click.echo(GAP.join(aligned).rstrip())

    def _write_blocks(self) -> None:
        for title, *cells in self._rows:
            click.echo(title)
            for cell, column in zip(cells, self._columns[1:], strict=True):
                if cell:
                    click.echo(f"{GAP}{column.name}: {cell}")

    def _draw(self) -> None:
        from rich.table import Table as Drawn
        from rich.text import Text

        drawn = Drawn(box=None, padding=(0, len(GAP), 0, 0), pad_edge=False, header_style="bold")
        for column in self._columns:
            drawn.add_column(
                Text(column.name),
                justify="right" if column.is_number else "left",
                no_wrap=not column.is_text,
                overflow="fold",
            )
        for cells in self._rows:
            drawn.add_row(
                *(Text(cell, style=_style(cell, column)) for cell, column in zip(cells, self._columns, strict=True))
            )
        draw(drawn)


def draw(drawing: Any) -> None:
    """Print what rich draws, as wide as the terminal."""
    from rich.console import Console

    size = shutil.get_terminal_size()
    Console(width=size.columns, height=size.lines).print(drawing)


def terminal_width() -> int:
    return shutil.get_terminal_size().columns


def _style(cell: str, column: Column) -> str:
    return COLOURS.get(cell, COLOUR_OF_TROUBLE) if column.is_verdict else ""
