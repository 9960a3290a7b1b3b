"""Pictures of curves, drawn by Altair: one that can be looked at anywhere, or a page that needs no network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from trackside.registry import NotInstalledError
from trackside_command.histories import Curve, Value

SPLITS = ("train", "eval", "test")
MEASURES_OF_SPEED = ("runtime", "samples_per_second", "steps_per_second", "total_flos")

MOST_POINTS = 1000  # of a curve: more than a picture is wide
WIDTH, HEIGHT = 360, 200  # of a panel, in pixels
COLUMNS = 2

OPTIONS: dict[str, dict[str, Any]] = {".png": {"scale_factor": 2}, ".html": {"inline": True}}

Row = dict[str, Any]


def draw_curves(runs: Mapping[str, Mapping[str, Curve]], file: Path) -> None:
    """Draw the curves of runs: a panel for each metric, a colour for each run, a dash for each split.

    Raises:
        NotInstalledError: the library is missing.
        ValueError: there is no curve.
    """
    try:
        import altair
        import vl_convert  # noqa: F401  draws what altair describes
    except ImportError as error:
        raise NotInstalledError(
            f'a picture needs altair and vl-convert-python ({error}); type: pip install "trackside[plot]"'
        ) from error
    panels = _panels(runs)
    if not panels:
        raise ValueError("No metric has two values, so there is no curve to draw.")
    measured = {row["split"] for rows in panels.values() for row in rows}
    shades = _shades(altair, len(runs) > 1, sorted(measured, key=SPLITS.index))
    charts = [_panel(altair, number, metric, rows, shades) for number, (metric, rows) in enumerate(panels.items())]
    picture = altair.concat(*charts, columns=COLUMNS)
    if len(runs) == 1:
        picture = picture.properties(title=_harmless(next(iter(runs))))
    picture.save(str(file), **OPTIONS.get(file.suffix, {}))


def _panels(runs: Mapping[str, Mapping[str, Curve]]) -> dict[str, list[Row]]:
    """The rows of each panel, by the metric that is its title."""
    panels: dict[str, list[Row]] = {}
    for run, curves in runs.items():
        for name, curve in curves.items():
            split, metric = _split_of(_harmless(name))
            if len(curve.values) > 1 and metric not in MEASURES_OF_SPEED:
                panels.setdefault(metric, []).extend(_rows(_harmless(run), _harmless(name), split, curve.values))
    return panels


def _harmless(name: str) -> str:
    """A name that cannot end the script by which a page carries it."""
    return name.replace("<", "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}")


def _shades(altair: Any, has_runs: bool, splits: Sequence[str]) -> dict[str, Any]:
    """How curves differ that share a panel: those of several runs by colour, and by dash those of splits."""
    scale = altair.Scale(domain=splits)
    if not has_runs:
        return {"color": altair.Color("split:N", title=None, scale=scale)}
    legend = altair.Legend(symbolType="stroke", symbolStrokeColor="black", symbolSize=300)
    return {
        "color": altair.Color("run:N", title=None, legend=altair.Legend(labelLimit=WIDTH)),
        "strokeDash": altair.StrokeDash("split:N", title=None, scale=scale, legend=legend),
    }


def _panel(altair: Any, number: int, metric: str, rows: Sequence[Row], shades: Mapping[str, Any]) -> Any:
    scale = altair.Scale(zero=False, padding=4)
    return (
        altair.Chart(altair.Data(values=rows))
        .mark_line()
        .encode(
            x=altair.X("step:Q", title="step"),
            y=altair.Y("value:Q", title=None, scale=scale, axis=altair.Axis(format=".4~g")),
            detail="metric:N",
            tooltip=["run:N", "metric:N", "step:Q", "value:Q"],
            **shades,
        )
        .properties(title=metric, width=WIDTH, height=HEIGHT)
        .add_params(altair.selection_interval(bind="scales", name=f"zoom_{number}"))
    )


def _split_of(name: str) -> tuple[str, str]:
    """What a metric was measured on, and the metric: `eval_loss` is the loss of the split `eval`."""
    split, _, metric = name.partition("_")
    return (split, metric) if split in SPLITS and metric else (SPLITS[0], name)


def _rows(run: str, metric: str, split: str, values: Sequence[Value]) -> Iterator[Row]:
    about = {"run": run, "metric": metric, "split": split}
    for step, number in thinned(values):
        yield {**about, "step": step, "value": number if math.isfinite(number) else None}


def thinned(values: Sequence[Value]) -> Iterable[Value]:
    """At most so many values as a picture can show: of each stretch the lowest and the highest, in their order."""
    if len(values) <= MOST_POINTS:
        return values
    length = math.ceil(2 * len(values) / MOST_POINTS)
    stretches = (values[begin : begin + length] for begin in range(0, len(values), length))
    return chain.from_iterable(_extremes(stretch) for stretch in stretches)


def _extremes(values: Sequence[Value]) -> list[Value]:
    finite = [value for value in values if math.isfinite(value.number)]
    by_number = sorted(finite or values[:1], key=lambda value: value.number)
    return sorted({by_number[0], by_number[-1]})
