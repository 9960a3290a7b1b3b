"""`trackside new`: an integration as a project of one's own."""

from __future__ import annotations

from pathlib import Path

import click

from trackside.registry import NotInstalledError, install_line, known
from trackside_command.console import json_option, refusals_as_errors, say_json

TEST = "python -m pip install --editable . --group test && python -m pytest"


@click.command("new")
@click.argument("name", metavar="NAME")
@json_option
def command(name: str, is_json: bool) -> None:
    """Make the project of an integration for the tracker NAME, in a new folder here."""
    with refusals_as_errors():
        folder, files = _make(name)
    if is_json:
        say_json({"folder": str(folder), "files": [str(file) for file in files], "type": TEST})
        return
    reporter = folder / f"src/trackside_{name}/reporter.py"
    click.echo(f"Made {folder}. Its reporter is {reporter}; test it there with:\n{TEST}")


def _make(name: str) -> tuple[Path, list[Path]]:
    try:
        from trackside_testkit.new import check_name, dist_of, make
    except ImportError as error:
        raise NotInstalledError(
            f"the template is part of trackside-testkit ({error}); type: pip install trackside-testkit"
        ) from error
    if name in known():
        raise click.BadParameter(f"there is one for {name!r}; type: {install_line(name)}", param_hint="NAME")
    try:
        check_name(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error
    folder = Path(dist_of(name))
    return folder, make(name, folder, "project")
