"""The `trackside` command. Each of its commands is a module in `commands`, which is imported when it is typed."""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper

import click

COMMANDS = {
    "list": "Show the trackers: what is installed, what is configured, and what to type for the rest.",
    "doctor": "Find out whether the trackers could report from here.",
    "show": "Show the runs at or below a folder: params, last and best values, curves.",
    "export": "Write the points of the runs at or below a folder as one table.",
    "replay": "Deliver what the trackers of the runs at or below a folder are owed.",
    "prune": "Delete the journals at or below a folder of which every tracker has everything.",
    "new": "Make the project of an integration for a tracker that has none.",
}


class Commands(click.Group):
    """Imports no command but the one that is typed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"{__name__}.commands.{name}").command
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trackside", message="%(version)s")
def main() -> None:
    """What a training reports, and what its trackers are owed."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that cannot spell a name shows it escaped
            stream.reconfigure(errors="backslashreplace")
