"""The `trackside` command."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from trackside.registry import NotConfiguredError, NotInstalledError
from trackside_spool.courier import Courier
from trackside_spool.folder import InUseError, run_folders
from trackside_spool.journal import JournalError
from trackside_spool.replay import Debt, Outcome, debts, prune, replay, replay_to

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
REFUSALS = (FileNotFoundError, InUseError, JournalError, NotConfiguredError, NotInstalledError, TypeError, ValueError)


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
        known = list(debts(folder))
        if is_listing:
            for debt in known:
                click.echo(_line_of_debt(debt))
            return
        outcomes = list(_replay_all(folder) if target is None else _replay_all_to(folder, target))
    if not outcomes:
        click.echo("Nothing is owed.")
    if any(outcome.reason for outcome in outcomes):
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


def _replay_all(folder: Path) -> Iterator[Outcome]:
    for run in run_folders(folder):
        for outcome in replay(run, _watch):
            click.echo(_line_of_outcome(outcome))
            yield outcome


def _replay_all_to(folder: Path, target: str) -> Iterator[Outcome]:
    name, _, given = target.partition("=")
    options: dict[str, Any] = dict(pair.split("=", 1) for pair in given.split(",") if "=" in pair)
    for run in run_folders(folder):
        outcome = replay_to(run, name, options, _watch)
        click.echo(_line_of_outcome(outcome))
        yield outcome


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
    owed = "has everything" if debt.is_settled else f"is owed {debt.records:,} records"
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
