"""The reporter that measures a training with CodeCarbon."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from trackside import Point, Reporter, Run, Status, env
from trackside.console import say
from trackside.deadline import within
from trackside_codecarbon.meter import has_factor, keep_quiet, settings_of_user, start_meter, stop_meter
from trackside_codecarbon.place import Place, anywhere, look_up, place_in, world_average
from trackside_codecarbon.table import Measurement, in_all, measurements_in, next_id

START_SECONDS = 10
FINISH_SECONDS = 10

PLACE = ("country_iso_code", "country_2letter_iso_code", "region", "cloud_provider", "cloud_region")
METER = ("project_name", "output_file", "tracking_mode", "measure_power_secs", "log_level")


class CodeCarbonCallback(Reporter):
    """Measures the energy that a training takes, and estimates its emissions: one row in a table, from start to end."""

    name = "codecarbon"
    sdk = "codecarbon"
    scope = "node"
    live = True
    reopenable = True

    project_name: str | None = env("CODECARBON_PROJECT_NAME")
    country_iso_code: str | None = env("CODECARBON_COUNTRY_ISO_CODE")
    country_2letter_iso_code: str | None = env("CODECARBON_COUNTRY_2LETTER_ISO_CODE")
    region: str | None = env("CODECARBON_REGION")
    cloud_provider: str | None = env("CODECARBON_CLOUD_PROVIDER")
    cloud_region: str | None = env("CODECARBON_CLOUD_REGION")
    offline: bool = env("CODECARBON_OFFLINE", False)
    output_dir: str | None = env("CODECARBON_OUTPUT_DIR")
    output_file: str | None = env("CODECARBON_OUTPUT_FILE")
    tracking_mode: str | None = env("CODECARBON_TRACKING_MODE")
    measure_power_secs: float | None = env("CODECARBON_MEASURE_POWER_SECS", None, float)
    log_level: str | None = env("CODECARBON_LOG_LEVEL")
    settings: Mapping[str, Any] = env(None, {})
    share: bool = env(None, False)

    _is_first_node = True
    _is_measuring = False
    _total: Measurement | None = None

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        """See which node this is: each has a file of its own. An override calls super()."""
        self._is_first_node = state.is_world_process_zero

    def on_log(self, *args: Any, **kwargs: Any) -> None:
        """A meter listens to the beginning and the end of a training, and to nothing else."""

    on_evaluate = on_predict = on_save = on_log

    def import_sdk(self) -> None:
        super().import_sdk()
        keep_quiet("error")  # until it is known what the user wants to hear

    def start(self, run: Run) -> str:
        users = settings_of_user()
        arguments = self._arguments(run, users)
        settings = {**users, **self._chosen(PLACE), **arguments}
        place = self._place(settings)
        arguments["output_file"] = self._file_of_node(settings["output_file"])
        self._table = os.path.join(arguments["output_dir"], arguments["output_file"])
        self._earlier = measurements_in(self._table, run.tracker_id) if run.tracker_id else []
        os.makedirs(arguments["output_dir"], exist_ok=True)
        keep_quiet(settings["log_level"])
        taken = {name: value for name, value in arguments.items() if name not in PLACE}
        self.run = within(START_SECONDS, partial(start_meter, place, taken), stop_meter)
        self._is_measuring, self._total = True, None
        run_id = str(run.tracker_id or self.run.run_id or uuid4())
        self.run.run_id = next_id(run_id, self._earlier)
        return run_id

    def log_points(self, points: Sequence[Point]) -> None:
        """There is nothing to send: it measures."""

    def measured(self) -> Mapping[str, int | float]:
        if not self.share:
            return {}
        self._stop()
        return {} if self._total is None else {"emissions_kg": self._total.emissions, "energy_kwh": self._total.energy}

    def finish(self, status: Status) -> None:
        self._stop()

    def sent(self) -> str:
        if self._total is None:
            return f"{self.name}: nothing"
        return f"{self.name}: {self._total.emissions:.3g} kg of CO2eq, {self._total.energy:.3g} kWh"

    def _stop(self) -> None:
        if self._is_measuring:
            self._is_measuring = False
            data = within(FINISH_SECONDS, partial(stop_meter, self.run))
            self._total = in_all([*self._earlier, Measurement(data.emissions, data.energy_consumed)])
            if self._is_first_node:
                say(self.sent() + (f"; see {self._table}" if os.path.isfile(self._table) else ""))

    def _chosen(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def _arguments(self, run: Run, users: Mapping[str, str]) -> dict[str, Any]:
        """What a meter is made with; all else it finds in the settings of the user by itself."""
        defaults = {"project_name": run.project, "output_file": "emissions.csv", "log_level": "error"}
        missing = {name: value for name, value in defaults.items() if value is not None and name not in users}
        folder = os.path.abspath(self.output_dir or run.output_dir)  # a training may go elsewhere before it ends
        arguments = {**missing, **self._chosen(METER), "output_dir": folder, **self.settings}
        if (mode := arguments.get("tracking_mode", "machine")) not in ("machine", "process"):
            raise ValueError(f'tracking_mode is {mode!r}; it takes "machine" or "process"')
        return arguments

    def _file_of_node(self, name: str) -> str:
        """Nodes that share a folder end at one moment, and CodeCarbon writes without a lock."""
        stem, suffix = os.path.splitext(name)
        return name if self._is_first_node else f"{stem}-{platform.node()}{suffix}"

    def _place(self, settings: Mapping[str, Any]) -> Place:
        place = place_in(settings)
        if place is not None or has_factor(settings):
            return place or anywhere()
        place = None if self.offline else look_up()
        if place is None:
            self.warn_once(
                "place",
                "%s does not know the country, and counts the world's average of %g g of CO2eq a kWh; "
                "set country_iso_code or CODECARBON_COUNTRY_ISO_CODE, for example to FRA.",
                self.name,
                world_average(),
            )
        return place or anywhere()
