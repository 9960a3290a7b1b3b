"""`trackside replay`: what is owed to the trackers of runs, or whole runs to another tracker."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from trackside import installed, resolve
from trackside.options import Option, options_of
from trackside.registry import normalize
from trackside_command.console import FOLDER, REFUSALS, json_option, refusals_as_errors, say_json, sentence_of
from trackside_spool.courier import Courier
from trackside_spool.folder import RunFolder, Tracker
from trackside_spool.replay import Debt, Outcome, debts, replay, replay_to, runs_below

INTERRUPTED = 130  # what a shell makes of Ctrl-C
PATIENCE_SECONDS = 60
SAYING_SECONDS = 5  # between lines that say how far it has come


class Report(NamedTuple):
    """What was seen or done of one tracker of a run, for a person and for a program, and whether that is well."""

    line: str
    document: dict[str, Any]
    is_well: bool = True


@click.command("replay")
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--to", "target", metavar="NAME[=KEY=VALUE,...]", help="Send whole runs to this tracker instead.")
@click.option("--list", "is_listing", is_flag=True, help="Only show the runs, their trackers and what these are owed.")
@click.option(
    "--patience",
    metavar="SECONDS",
    type=click.IntRange(min=1),
    default=PATIENCE_SECONDS,
    show_default=True,
    help="How long to wait for a tracker that does not answer.",
)
@json_option
def command(folder: Path, target: str | None, is_listing: bool, patience: int, is_json: bool) -> None:
    """Deliver what the trackers of all runs at or below DIR are owed."""
    with refusals_as_errors():
        runs = runs_below(folder)
        name, options = _tracker_named(target) if target else ("", {})
    watch = partial(_watch, patience)
    work = _list if is_listing else partial(_replay_to, name, options, watch) if target else partial(_replay, watch)
    reports = []
    try:
        for report in (report for run in runs for report in _one_by_one(work, run)):
            reports.append(report)
            if not is_json:
                click.echo(report.line, err="error" in report.document)
    except KeyboardInterrupt:
        _say_what_is_left(folder, runs)
        raise SystemExit(INTERRUPTED) from None
    if is_json:
        say_json({"trackers": [report.document for report in reports]})
    elif not reports:
        click.echo("Nothing is owed.")
    if not all(report.is_well for report in reports):
        raise SystemExit(1)


def _one_by_one(work: Callable[[RunFolder], Iterator[Report]], run: RunFolder) -> Iterator[Report]:
    """Each thing that is to be done for a run; a run that cannot be read does not stop the others."""
    try:
        yield from work(run)
    except REFUSALS as error:
        said = sentence_of(error)
        yield Report(f"Error: {said}", {"folder": str(run.path), "error": said}, is_well=False)


def _list(run: RunFolder) -> Iterator[Report]:
    for debt in debts(run.path):
        document = {
            "folder": str(debt.folder),
            "run": debt.run.name,
            "tracker": debt.tracker.key,
            "status": debt.tracker.status,
            "owed": debt.records,
            "settled": debt.is_settled,
        }
        yield Report(_line_of_debt(debt), document)


def _replay(watch: Callable[[Courier], None], run: RunFolder) -> Iterator[Report]:
    for outcome in replay(run, watch, patience=0):
        yield _report_of(run, outcome)


def _replay_to(
    name: str, options: dict[str, Any], watch: Callable[[Courier], None], run: RunFolder
) -> Iterator[Report]:
    yield _report_of(run, replay_to(run, name, options, watch))


def _say_what_is_left(folder: Path, runs: list[RunFolder]) -> None:
    """What a replay that is interrupted leaves behind, and how to go on."""
    for run in runs:
        with suppress(*REFUSALS):
            for debt in debts(run.path):
                if not debt.is_settled:
                    click.echo(_line_of_debt(debt), err=True)
    click.echo(f"Interrupted. Go on with: trackside replay {shlex.quote(str(folder))}", err=True)


def _tracker_named(target: str) -> tuple[str, dict[str, Any]]:
    """The name and the options in `NAME=KEY=VALUE,...`, if there is such a tracker that takes them."""
    typed, _, given = target.partition("=")
    name = normalize(typed)
    options = _converted(name, dict(map(_option, filter(None, given.split(",")))))
    try:
        found = resolve({name: options})
    except REFUSALS as error:
        raise ValueError(str(error).replace("report_to", "--to")) from error
    if [reporter.name for reporter in found] != [name]:
        raise ValueError(f"{typed!r} is not one tracker; type the name of one.")
    return name, options


def _option(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"{text!r} is no option; type --to NAME=KEY=VALUE,...")
    return key, value


def _converted(name: str, texts: dict[str, str]) -> dict[str, Any]:
    """What the texts of options mean, as they would in the environment; one that is unknown stays a text."""
    point = installed().get(name)
    known = options_of(point.load()) if point else {}
    return {key: _meaning(name, known[key], text) if key in known else text for key, text in texts.items()}


def _meaning(name: str, option: Option, text: str) -> Any:
    try:
        return option.convert(text)
    except ValueError as error:
        raise ValueError(f"--to {name}={option.name}={text} is not understood: {error}.") from None


def _watch(patience: int, courier: Courier) -> None:
    """Wait for a courier, until its tracker has not answered for so many seconds, and say what changes meanwhile."""
    key, sent = courier.tracker.key, courier.tracker.sent
    answered_at = said_at = time.monotonic()
    is_away = False
    while not courier.has_ended.wait(0.2):
        now = time.monotonic()
        if courier.has_answered.is_set() and not courier.trouble:
            answered_at, is_away = now, False
        elif now - answered_at > patience:
            return
        elif not is_away and (courier.trouble or now - answered_at > SAYING_SECONDS):
            is_away = True
            click.echo(f"{key} does not answer; trying on for {patience} s, Ctrl-C leaves the rest owed.", err=True)
        if courier.tracker.sent != sent and now - said_at > SAYING_SECONDS:
            sent, said_at = courier.tracker.sent, now
            click.echo(f"{key}: {_records(sent)} so far", err=True)


def _line_of_debt(debt: Debt) -> str:
    return f"{debt.run.name}  {debt.tracker.key} ({debt.tracker.status or 'open'}) {owed(debt)}  {debt.folder}"


def owed(debt: Debt) -> str:
    """What a tracker is owed, as the rest of a sentence."""
    left = _records(debt.records) if debt.records else "the rest of the run"
    return "has everything" if debt.is_settled else f"is owed {left}"


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


def _report_of(run: RunFolder, outcome: Outcome) -> Report:
    document = {
        "folder": str(run.path),
        "run": outcome.run.name,
        "tracker": outcome.tracker.key,
        "delivered": outcome.delivered,
        "failed": outcome.reason or None,
        "shown_by": outcome.shown_by,
    }
    return Report(_line_of_outcome(run, outcome), document, is_well=not outcome.reason)


def _line_of_outcome(run: RunFolder, outcome: Outcome) -> str:
    line = f"{outcome.run.name}: {_records(outcome.delivered)} to {outcome.tracker.key}"
    if outcome.is_left:
        return f"{line}, then it did not answer ({outcome.reason}); {_way_on(run, outcome.tracker)}"
    if outcome.reason:
        return f"{line}, then it failed: {outcome.reason}"
    return f"{line}; see the run with: {outcome.shown_by}" if outcome.shown_by else line


def _way_on(run: RunFolder, tracker: Tracker) -> str:
    """How to go on with a tracker that was left; one that has never answered is owed nothing by `--to`."""
    if run.tracker(tracker.key) is None:
        return "nothing is there yet, so type the same again once it answers."
    go_on = f"trackside replay {shlex.quote(str(run.path))}"
    return f"the rest stays owed, go on with: {go_on} (--to NAME=KEY=VALUE for another address)"
