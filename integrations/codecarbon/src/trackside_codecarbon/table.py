"""The rows of `emissions.csv`: one for each measurement."""

from __future__ import annotations

import csv
from typing import NamedTuple


class Measurement(NamedTuple):
    """Emissions in kg of CO2eq, and energy in kWh."""

    emissions: float = 0.0
    energy: float = 0.0


def measurements_in(path: str, run_id: str) -> list[Measurement]:
    """What was measured before of a run: of each time that it was resumed the latest row."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = {row["run_id"]: row for row in csv.DictReader(file)}
        return [
            Measurement(float(row["emissions"]), float(row["energy_consumed"]))
            for key, row in rows.items()
            if key == run_id or key.startswith(f"{run_id}-")
        ]
    except (OSError, KeyError, ValueError, csv.Error):  # there is none, or it is no such table
        return []


def next_id(run_id: str, earlier: list[Measurement]) -> str:
    """The id of the next row of a run."""
    return f"{run_id}-{len(earlier) + 1}" if earlier else run_id


def in_all(measurements: list[Measurement]) -> Measurement:
    return Measurement(sum(one.emissions for one in measurements), sum(one.energy for one in measurements))
