"""`trackside doctor`: whether the trackers could report from here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import Any

import click

from trackside.registry import installed, known, normalize
from trackside_command.checks import Finding, examine, look_around
from trackside_command.console import Column, Table, json_option, say_json


@click.command("doctor")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--online", is_flag=True, help="Also open, log to and close a tiny run of each tracker.")
@json_option
def command(names: tuple[str, ...], online: bool, is_json: bool) -> None:
    """Find out whether the trackers could report from here: those named, or all that are installed."""
    wanted = [_known(name) for name in names] or list(installed())
    with redirect_stdout(sys.stderr):  # where SDKs may say what they like
        findings = list(_look(wanted, bool(names), online))
    troubles = [finding for finding in findings if not finding.is_ok]
    if is_json:
        say_json({"findings": [_document(finding) for finding in findings]})
    else:
        _show(findings)
        click.echo(f"\nWrong: {len(troubles)} of {len(findings)}." if troubles else "\nNothing is wrong.")
    _leave(findings)


def _look(names: list[str], are_named: bool, online: bool) -> Iterator[Finding]:
    yield from look_around()
    for name in names:
        with _waiting_for(name):
            yield from examine(name, are_named, online)


def _known(name: str) -> str:
    """The one spelling of a name that is known."""
    if normalize(name) in known():
        return normalize(name)
    raise click.BadParameter(f"no tracker is called {name!r}; known are {', '.join(known())}.", param_hint="NAME")


def _show(findings: list[Finding]) -> None:
    table = Table(Column("where"), Column("what"), Column("result", is_verdict=True), Column("found", is_text=True))
    for finding in findings:
        table.add(finding.where, finding.what, "ok" if finding.is_ok else "wrong", finding.found)
    table.show()


def _document(finding: Finding) -> dict[str, Any]:
    return {"where": finding.where, "what": finding.what, "ok": finding.is_ok, "found": finding.found}


def _waiting_for(name: str) -> AbstractContextManager[Any]:
    """Says who is being examined, to a person at a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(name)


def _leave(findings: list[Finding]) -> None:
    """End with the exit code; at once if an SDK has given no answer, since it would not let the program end either."""
    if any(finding.is_late for finding in findings):
        sys.stdout.flush()
        os._exit(1)
    if not all(finding.is_ok for finding in findings):
        raise SystemExit(1)
