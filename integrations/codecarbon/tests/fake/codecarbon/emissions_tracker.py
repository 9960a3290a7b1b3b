"""The tracker: reads settings, measures in a thread, and writes a row when it stops."""

import csv
import os
import signal
import tempfile
import threading
import uuid
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from codecarbon.core.config import get_hierarchical_config
from codecarbon.external.logger import logger, set_logger_format, set_logger_level
from codecarbon.input import GRAMS, DataSource

KWH = 0.5
UNSET = object()


@contextmanager
def suppress(*exceptions):
    try:
        yield
    except exceptions:
        logger.warning("graceful shutdown. Exceptions:", exc_info=True)


@dataclass
class EmissionsData:
    project_name: str
    run_id: str
    emissions: float
    energy_consumed: float
    country_name: str | None
    country_iso_code: str | None
    region: str | None
    cloud_region: str | None


class EmissionsTracker:
    def __init__(
        self,
        project_name=UNSET,
        measure_power_secs=UNSET,
        output_dir=UNSET,
        output_file=UNSET,
        save_to_file=UNSET,
        tracking_mode=UNSET,
        log_level=UNSET,
        force_carbon_intensity_g_co2e_kwh=UNSET,
        allow_multiple_runs=UNSET,
    ):
        self._users = get_hierarchical_config()
        if self._setting("allow_multiple_runs", allow_multiple_runs, "true").lower() == "true":
            logger.warning("Multiple instances of codecarbon are allowed to run at the same time.")
        elif not lock():
            logger.error("Another instance of codecarbon is probably running. Exiting.")
            return
        self._seconds = self._setting("measure_power_secs", measure_power_secs, 15)
        self._project = self._setting("project_name", project_name, "codecarbon")
        self._folder = self._setting("output_dir", output_dir, ".")
        if not os.path.exists(self._folder):
            raise OSError(f"Folder '{self._folder}' doesn't exist !")
        self._file = self._setting("output_file", output_file, "emissions.csv")
        self._saves = self._setting("save_to_file", save_to_file, "true").lower() == "true"
        self._grams = self._setting("force_carbon_intensity_g_co2e_kwh", force_carbon_intensity_g_co2e_kwh, None)
        assert self._setting("tracking_mode", tracking_mode, "machine") in ("machine", "process")
        set_logger_level(self._setting("log_level", log_level, "info"))
        set_logger_format()
        self._timer = None
        self.run_id = uuid.uuid4()

    def _setting(self, name, given, default):
        if given is not UNSET:
            return given if isinstance(given, (str, float)) else str(given)
        return self._users.get(name, default)

    @suppress(Exception)
    def start(self):
        if self._timer is not None:
            logger.warning("Already started tracking")
            return
        logger.info("tracker's metadata")
        self._timer = threading.Timer(float(self._seconds), self._measure)
        self._timer.daemon = True
        self._timer.start()

    @suppress(Exception)
    def stop(self):
        if self._timer is None:
            logger.warning("Tracker already stopped or never started.")
            return None
        self._timer.cancel()
        geo, cloud = self._get_geo_metadata(), self._get_cloud_metadata()
        grams = self._grams_of(geo, cloud)
        data = EmissionsData(
            project_name=self._project,
            run_id=str(self.run_id),
            emissions=KWH * grams / 1000,
            energy_consumed=KWH,
            country_name=geo.country_name,
            country_iso_code=geo.country_iso_code,
            region=geo.region,
            cloud_region=cloud.region,
        )
        if self._saves:
            self._write(asdict(data))
        self.final_emissions_data = data
        self._timer = None
        return data.emissions

    def _measure(self):
        logger.info("%s kWh", KWH)

    def _grams_of(self, geo, cloud):
        if self._grams is not None:
            return float(self._grams)
        if not cloud.is_on_private_infra:
            clouds = DataSource().get_cloud_emissions_data()
            return clouds["impact"][clouds["region"].index(cloud.region)]
        return GRAMS.get(geo.country_iso_code, 475)

    def _write(self, row):
        path = os.path.join(self._folder, self._file)
        is_new = not os.path.isfile(path)
        with open(path, "a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, row)
            if is_new:
                writer.writeheader()
            writer.writerow(row)


def lock():
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
    try:
        with open(os.path.join(tempfile.gettempdir(), ".codecarbon.lock"), "x"):
            return True
    except FileExistsError:
        return False
