"""`trackside show`: what runs were told to do, and how well they did."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from trackside_command.commands.replay import owed
from trackside_command.console import (
    FOLDER,
    Column,
    Table,
    draw,
    json_option,
    on_one_line,
    readable,
    refusals_as_errors,
    say_json,
    terminal_width,
)
from trackside_command.histories import Curve, History, Standing, Value, find, tell_troubles
from trackside_command.sparkline import sparkline
from trackside_spool.replay import Debt

PICTURES = (".png", ".svg", ".html")
LONGEST_PARAM = 60  # characters on a terminal
WIDE = 80  # characters of a terminal that has room for more than it must
CURVE_WIDTH, NARROW_CURVE_WIDTH = 24, 10


@click.command("show")
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option(
    "--plot",
    "picture",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"Draw the curves into this file: {', '.join(PICTURES)}.",
)
@json_option
def command(folder: Path, picture: Path | None, is_json: bool) -> None:
    """Show the runs at or below DIR. Of a single run: its params, last and best values and curves."""
    if picture is not None and picture.suffix not in PICTURES:
        raise click.BadParameter(f"{picture} is none of {', '.join(PICTURES)}.", param_hint="--plot")
    with refusals_as_errors():
        found = find(folder)
        runs = [(history, history.read()) for history in found.histories]
        if picture is not None:
            from trackside_command.plot import draw_curves

            draw_curves({_name(history, found.histories): standing.curves for history, standing in runs}, picture)
    if is_json:
        say_json({"runs": [_document(history, standing) for history, standing in runs]})
    elif len(runs) == 1:
        _show_one(*runs[0])
    elif runs:
        _show_all(runs)
    if picture is not None:
        click.echo(f"The curves are in {picture}.", err=True)
    tell_troubles(found)


def _show_all(runs: Iterable[tuple[History, Standing]]) -> None:
    table = Table(
        Column("run", is_text=True),
        Column("status", is_verdict=True),
        Column("started"),
        Column("step", is_number=True),
        Column("best"),
        Column("below", is_text=True),
    )
    for history, standing in runs:
        name, curve = _judging(history, standing)
        best = f"{readable(curve.best.number)} {name.removeprefix('eval_')}" if curve and curve.best else ""
        table.add(
            history.run.name,
            standing.status,
            _moment(history.run.time),
            f"{standing.step:,}",
            best,
            history.folder.path.parents[1],
        )
    table.show()


def _show_one(history: History, standing: Standing) -> None:
    _show_facts(history, standing)
    if history.params:
        click.echo()
        _show_params(history.params)
    if standing.curves:
        click.echo()
        _show_curves(standing.curves)


def _show_facts(history: History, standing: Standing) -> None:
    run = history.run
    epoch = "" if standing.epoch is None else f", epoch {readable(standing.epoch)}"
    facts = {
        "run": run.name,
        "status": standing.status,
        "started": _moment(run.time),
        "lasted": _duration(standing.seconds),
        "reached": f"step {standing.step:,}{epoch}",
        **run.source,
        "folder": history.folder.path,
    }
    for debt in standing.debts:
        facts[debt.tracker.key] = owed(debt) if debt.is_settled else f"{owed(debt)}; {_how_to_settle(debt, standing)}"
    width = max(map(len, facts))
    for name, fact in facts.items():
        click.echo(f"{name:{width}}  {on_one_line(fact)}")


def _how_to_settle(debt: Debt, standing: Standing) -> str:
    if standing.status == "running":
        return "it is being delivered"
    return f"type: trackside replay {shlex.quote(str(debt.folder))}"


def _show_params(params: Mapping[str, Any]) -> None:
    """Those that are set, side by side on a terminal, and elsewhere a line each."""
    lines = [on_one_line(f"{name} = {value}") for name, value in sorted(params.items()) if value is not None]
    if not sys.stdout.isatty():
        click.echo("\n".join(lines))
        return
    from rich.columns import Columns
    from rich.text import Text

    texts = [Text(line) for line in lines]
    for text in texts:
        text.truncate(min(LONGEST_PARAM, terminal_width()), overflow="ellipsis")
    draw(Columns(texts, padding=(0, 3), column_first=True))


def _show_curves(curves: Mapping[str, Curve]) -> None:
    """Those that are curves first, then the single values."""
    table = Table(
        Column("metric"),
        Column("last", is_number=True),
        Column("best", is_number=True),
        Column("at step", is_number=True),
        Column("curve"),
    )
    width = CURVE_WIDTH if terminal_width() >= WIDE else NARROW_CURVE_WIDTH
    for name, curve in sorted(curves.items(), key=lambda item: len(item[1].values) == 1):
        best = curve.best if len(curve.values) > 1 else None
        bars = sparkline([value.number for value in curve.values], width)
        table.add(
            name,
            readable(curve.last.number),
            readable(best.number) if best else "",
            f"{best.step:,}" if best else "",
            bars if _can_spell(bars) else "",
        )
    table.show()


def _can_spell(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _judging(history: History, standing: Standing) -> tuple[str, Curve | None]:
    """The metric that a run is judged by: the one it was told, else the first loss."""
    told = str(history.params.get("metric_for_best_model"))
    names = [told, f"eval_{told}", "eval_loss", "loss"]
    name = next((name for name in names if name in standing.curves), "")
    return name, standing.curves.get(name)


def _name(history: History, among: list[History]) -> str:
    """The name of a run, or its folder where others have that name as well."""
    name, names = history.run.name, [other.run.name for other in among]
    return name if names.count(name) == 1 else str(history.folder.path)


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _document(history: History, standing: Standing) -> dict[str, Any]:
    run = history.run
    return {
        "folder": str(history.folder.path),
        "id": run.id,
        "name": run.name,
        "status": standing.status,
        "started": run.time,
        "seconds": standing.seconds,
        "step": standing.step,
        "epoch": standing.epoch,
        "source": run.source,
        "params": history.params,
        "trackers": [
            {"name": debt.tracker.key, "status": debt.tracker.status, "owed": debt.records, "settled": debt.is_settled}
            for debt in standing.debts
        ],
        "metrics": {
            name: {"count": len(curve.values), "last": _of(curve.last), "best": _of(curve.best)}
            for name, curve in standing.curves.items()
        },
    }


def _of(value: Value | None) -> dict[str, Any] | None:
    return value and {"value": value.number, "step": value.step}
