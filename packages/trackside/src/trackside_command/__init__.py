"""The `trackside` command."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from trackside import resolve
from trackside.registry import NotConfiguredError, NotInstalledError
from trackside_spool.courier import Courier
from trackside_spool.folder import InUseError, RunFolder
from trackside_spool.journal import JournalError
from trackside_spool.replay import Debt, Outcome, debts, prune, replay, replay_to, runs_below

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
REFUSALS = (FileNotFoundError, InUseError, JournalError, NotConfiguredError, NotInstalledError, TypeError, ValueError)

INTERRUPTED = 130  # what a shell makes of Ctrl-C


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """What a training reports, and what its trackers are owed."""


@main.command("replay")
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--to", "target", metavar="NAME[=KEY=VALUE,...]", help="Send whole runs to this tracker instead.")
@click.option("--list", "is_listing", is_flag=True, help="Only show the runs, their trackers and what these are owed.")
def replay_command(folder: Path, target: str | None, is_listing: bool) -> None:
    """Deliver what the trackers of all runs at or below DIR are owed."""
    with _refusals_as_errors():
        runs = runs_below(folder)
        name, options = _tracker_named(target) if target else ("", {})
    work = _list if is_listing else partial(_replay_to, name, options) if target else _replay
    try:
        reports = [report for run in runs for report in _one_by_one(work, run)]
    except KeyboardInterrupt:
        _say_what_is_left(folder, runs)
        raise SystemExit(INTERRUPTED) from None
    if not reports:
        click.echo("Nothing is owed.")
    if not all(reports):
        raise SystemExit(1)


@main.command("prune")
@click.argument("folder", metavar="DIR", type=FOLDER)
def prune_command(folder: Path) -> None:
    """Delete the journals at or below DIR of which every tracker has everything."""
    with _refusals_as_errors():
        gone = prune(folder)
    for path in gone:
        click.echo(f"deleted {path}")
    click.echo(f"{len(gone)} journals were delivered and are deleted.")


def _one_by_one(work: Callable[[RunFolder], Iterator[bool]], run: RunFolder) -> Iterator[bool]:
    """Whether each thing that is to be done for a run went well; a run that cannot be read does not stop the others."""
    try:
        yield from work(run)
    except REFUSALS as error:
        click.echo(f"Error: {error}", err=True)
        yield False


def _list(run: RunFolder) -> Iterator[bool]:
    for debt in debts(run.path):
        click.echo(_line_of_debt(debt))
        yield True


def _replay(run: RunFolder) -> Iterator[bool]:
    for outcome in replay(run, _watch, patience=0):
        click.echo(_line_of_outcome(outcome))
        yield not outcome.reason


def _say_what_is_left(folder: Path, runs: list[RunFolder]) -> None:
    """What a replay that is interrupted leaves behind, and how to go on."""
    for run in runs:
        with suppress(*REFUSALS):
            for debt in debts(run.path):
                if not debt.is_settled:
                    click.echo(_line_of_debt(debt), err=True)
    click.echo(f"Interrupted. Go on with: trackside replay {shlex.quote(str(folder))}", err=True)


def _replay_to(name: str, options: dict[str, Any], run: RunFolder) -> Iterator[bool]:
    outcome = replay_to(run, name, options, _watch)
    click.echo(_line_of_outcome(outcome))
    yield not outcome.reason


def _tracker_named(target: str) -> tuple[str, dict[str, Any]]:
    """The name and the options in `NAME=KEY=VALUE,...`, if there is such a tracker that takes them."""
    name, _, given = target.partition("=")
    options = dict(map(_option, filter(None, given.split(","))))
    if [reporter.name for reporter in resolve({name: options})] != [name.replace("-", "_")]:
        raise ValueError(f"{name!r} is not one tracker; type the name of one.")
    return name, options


def _option(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"{text!r} is no option; type --to NAME=KEY=VALUE,...")
    return key, value


def _watch(courier: Courier) -> None:
    """Wait for a courier, and say once in a while what it has still to do; Ctrl-C leaves it."""
    said = time.monotonic()
    while not courier.has_ended.wait(0.2):
        if time.monotonic() - said > 5:
            said = time.monotonic()
            trouble = f" ({courier.trouble})" if courier.trouble else ""
            click.echo(f"{courier.tracker.key}: {courier.tracker.sent:,} records are there{trouble}", err=True)


def _line_of_debt(debt: Debt) -> str:
    status = debt.tracker.status or "open"
    left = f"{debt.records:,} records" if debt.records else "the rest of the run"
    owed = "has everything" if debt.is_settled else f"is owed {left}"
    return f"{debt.run.name}  {debt.tracker.key} ({status}) {owed}  {debt.folder}"


def _line_of_outcome(outcome: Outcome) -> str:
    what = f"{outcome.run.name}: {outcome.delivered:,} records to {outcome.tracker.key}"
    return f"{what}, then it failed: {outcome.reason}" if outcome.reason else what


@contextmanager
def _refusals_as_errors() -> Iterator[None]:
    try:
        yield
    except REFUSALS as error:
        raise click.ClickException(str(error)) from error
