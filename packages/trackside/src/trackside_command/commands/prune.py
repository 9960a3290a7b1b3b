"""`trackside prune`: away with the journals that are delivered."""

from __future__ import annotations

from pathlib import Path

import click

from trackside_command.console import FOLDER, json_option, refusals_as_errors, say_json
from trackside_spool.replay import prune


@click.command("prune")
@click.argument("folder", metavar="DIR", type=FOLDER)
@json_option
def command(folder: Path, is_json: bool) -> None:
    """Delete the journals at or below DIR of which every tracker has everything."""
    with refusals_as_errors():
        gone = prune(folder)
    if is_json:
        say_json({"deleted": [str(path) for path in gone]})
        return
    for path in gone:
        click.echo(f"deleted {path}")
    what = "1 journal was" if len(gone) == 1 else f"{len(gone)} journals were"
    click.echo(f"{what} delivered and {'is' if len(gone) == 1 else 'are'} deleted.")
