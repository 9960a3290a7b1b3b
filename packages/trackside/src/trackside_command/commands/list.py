"""`trackside list`: every integration that is known, and what it lacks."""

from __future__ import annotations

import click

from trackside_command.console import Column, Table, json_option, say_json
from trackside_command.integrations import Integration, survey


@click.command("list")
@json_option
def command(is_json: bool) -> None:
    """Show the trackers: what is installed, what is configured, and what to type for the rest."""
    integrations = survey()
    if is_json:
        say_json({"trackers": [_document(integration) for integration in integrations]})
        return
    table = Table(
        Column("tracker"),
        Column("integration"),
        Column("SDK"),
        Column("ready", is_verdict=True),
        Column("what is missing", is_text=True),
    )
    for integration in integrations:
        sdk = ", ".join(f"{needed.name} {needed.version or '-'}" for needed in integration.needed)
        ready = "yes" if integration.is_ready else "no"
        table.add(integration.name, integration.version or "-", sdk or "-", ready, integration.missing)
    table.show()


def _document(integration: Integration) -> dict[str, object]:
    return {
        "name": integration.name,
        "version": integration.version,
        "sdk": [needed._asdict() for needed in integration.needed],
        "ready": integration.is_ready,
        "missing": integration.missing or None,
        "type": integration.line or None,
    }
