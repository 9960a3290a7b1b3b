"""CodeCarbon's tracker, made to stand where it is told, and to raise what goes wrong."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from trackside_codecarbon.place import Place

FACTOR = "force_carbon_intensity_g_co2e_kwh"


def settings_of_user() -> dict[str, str]:
    """What the user has set for CodeCarbon: by `.codecarbon.config` here or in his home, or by its variables."""
    from codecarbon.core.config import get_hierarchical_config

    return dict(get_hierarchical_config())


def has_factor(settings: Mapping[str, Any]) -> bool:
    """Whether the user has set how much a kWh emits, and this CodeCarbon, 3.0 or a later one, has such a setting."""
    from codecarbon import EmissionsTracker

    return settings.get(FACTOR) is not None and FACTOR in inspect.signature(EmissionsTracker).parameters


def keep_quiet(level: Any) -> None:
    """Let CodeCarbon log what is at least of this level, from now on and not only once it has read its settings."""
    from codecarbon.external.logger import set_logger_level

    set_logger_level(level)


def start_meter(place: Place, arguments: Mapping[str, Any]) -> Any:
    """A tracker that measures from now on."""
    from codecarbon import EmissionsTracker

    class Meter(EmissionsTracker):
        """Knows its place, which others look up when a training ends."""

        def _get_geo_metadata(self) -> Any:
            return place.geo

        def _get_cloud_metadata(self) -> Any:
            return place.cloud

    meter = Meter(**arguments)
    if not hasattr(meter, "run_id"):
        raise RuntimeError(
            "allow_multiple_runs is off, and another CodeCarbon measures on this machine or has left its lock file"
        )
    _raising(meter, "start")
    return meter


def stop_meter(meter: Any) -> Any:
    """End a measurement and write its row; returns CodeCarbon's totals."""
    _raising(meter, "stop")
    return meter.final_emissions_data


def _raising(meter: Any, method: str) -> None:
    """Call a method without its decorator, which logs errors instead of raising them."""
    inspect.unwrap(getattr(type(meter), method))(meter)
