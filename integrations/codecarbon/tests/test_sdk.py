"""The real codecarbon, without a network: its tables are read back with Python's own reader."""

from __future__ import annotations

import csv
import importlib
import inspect
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import fake_sdk

from trackside_codecarbon import CodeCarbonCallback
from trackside_testkit import RecordingReporter

pytestmark = [
    pytest.mark.sdk,
    pytest.mark.filterwarnings("default:The pynvml package is deprecated"),  # by codecarbon 3.0
]

GEO = "https://get.geojs.io/v1/ip/geo.json"
METADATA = "http://169.254.169.254"
ZONE = "projects/1/zones/europe-west1-b"
FACTOR = "force_carbon_intensity_g_co2e_kwh"


@pytest.fixture(autouse=True)
def _inline(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")


@pytest.fixture
def services():
    """The services that codecarbon asks for a place; those that a test does not name refuse the connection."""
    responses = importlib.import_module("responses")
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        yield mock


def rows_in(path: str) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as table:
        return list(csv.DictReader(table))


def run_script(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own that runs `code` in `folder`."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(folder), **environment}
    script = "from trackside_codecarbon import *\nfrom trackside_testkit import *\n" + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_row_holds_what_was_measured_and_the_factor_of_the_country(loop, services):
    shelf, reporter = RecordingReporter(), CodeCarbonCallback(country_iso_code="FRA", share=True)
    loop(shelf, reporter).train()
    (row,) = rows_in("out/emissions.csv")
    assert (row["run_id"], row["country_name"], row["country_iso_code"]) == (reporter.tracker_id, "France", "FRA")
    energy, emissions = float(row["energy_consumed"]), float(row["emissions"])
    assert energy > 0
    assert 0.02 < emissions / energy < 0.1  # kg of CO2eq a kWh: nuclear power, for the most part
    assert shelf.summary["train/energy_kwh"] == pytest.approx(energy)
    assert shelf.summary["train/emissions_kg"] == pytest.approx(emissions)
    assert not services.calls


def test_where_nobody_answers_it_is_the_average_of_the_world_and_not_canada(loop, services, caplog):
    loop(CodeCarbonCallback()).train()
    (row,) = rows_in("out/emissions.csv")
    assert float(row["emissions"]) / float(row["energy_consumed"]) == pytest.approx(0.475)
    assert row["country_iso_code"] == row["longitude"] == ""
    assert sum("average of 475 g" in message for message in caplog.messages) == 1
    assert GEO in [call.request.url for call in services.calls]


def test_where_sockets_are_blocked_training_goes_on(loop, caplog):
    training = loop(CodeCarbonCallback())
    training.train()
    assert training.state.global_step == 4
    assert len(rows_in("out/emissions.csv")) == 1
    assert sum("average of 475 g" in message for message in caplog.messages) == 1


def test_the_country_is_looked_up_before_the_training(loop, services):
    country = {"country_code3": "DEU", "country": "Germany", "region": "Hesse", "country_code": "DE"}
    services.get(GEO, json={**country, "latitude": "50.1", "longitude": "8.7"})
    training = loop(CodeCarbonCallback())
    training.fire("on_train_begin")
    asked = len(services.calls)
    training.fire("on_train_end")
    (row,) = rows_in("out/emissions.csv")
    assert (row["country_iso_code"], row["region"], float(row["latitude"])) == ("DEU", "hesse", 50.1)
    assert 0.2 < float(row["emissions"]) / float(row["energy_consumed"]) < 0.6
    assert len(services.calls) == asked


def test_a_computer_in_a_cloud_is_counted_with_the_emissions_of_that(loop, services):
    services.get(f"{METADATA}/computeMetadata/v1/instance/?recursive=true&alt=json", json={"zone": ZONE})
    for path in ("latest/dynamic/instance-identity/document", "metadata/instance?api-version=2019-08-15"):
        services.get(f"{METADATA}/{path}", status=404)
    loop(CodeCarbonCallback()).train()
    (row,) = rows_in("out/emissions.csv")
    assert (row["cloud_provider"], row["cloud_region"], row["country_name"]) == ("gcp", "europe-west1", "Belgium")


def test_measurements_of_a_resumed_run_are_rows_that_add_up(loop):
    first = CodeCarbonCallback(country_iso_code="FRA")
    loop(first).train()
    second, shelf = CodeCarbonCallback(country_iso_code="FRA", share=True, resume=first.tracker_id), RecordingReporter()
    loop(second, shelf).train()
    rows = rows_in("out/emissions.csv")
    assert [row["run_id"] for row in rows] == [first.tracker_id, f"{first.tracker_id}-2"]
    assert shelf.summary["train/energy_kwh"] == pytest.approx(sum(float(row["energy_consumed"]) for row in rows))


def test_a_row_that_cannot_be_written_is_a_reason_that_is_said(loop, caplog):
    training = loop(CodeCarbonCallback(country_iso_code="FRA"))
    training.fire("on_train_begin")
    Path("out").rmdir()
    training.fire("on_train_end")
    assert sum("codecarbon: finish failed (OSError" in message for message in caplog.messages) == 1


@pytest.mark.parametrize(("end", "code"), [("raise ValueError", 1), ("import sys; sys.exit(3)", 3)])
def test_a_program_that_ends_in_mid_run_leaves_a_row(tmp_path, end, code):
    script = f"""
        loop = FakeLoop([CodeCarbonCallback(country_iso_code="FRA")], output_dir="out")
        loop.fire("on_train_begin")
        {end}
        """
    done = run_script(script, tmp_path)
    assert done.returncode == code, done.stderr
    assert len(rows_in(str(tmp_path / "out" / "emissions.csv"))) == 1


def test_codecarbon_is_quiet_and_prints_each_line_once_if_it_is_not_to_be(tmp_path):
    script = 'FakeLoop([CodeCarbonCallback(country_iso_code="FRA")], output_dir="out", save_strategy="no").train()'
    quiet = run_script(script, tmp_path)
    assert quiet.stdout == ""
    assert [line.partition(":")[0] for line in quiet.stderr.splitlines()] == ["Reporting to codecarbon", "codecarbon"]
    loud = run_script(script, tmp_path, CODECARBON_LOG_LEVEL="info")
    assert loud.stderr.count("Platform system") == 1
    files = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {Path("out/emissions.csv")}


def test_signals_stay_as_they_are_also_where_codecarbon_is_to_be_alone(loop):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    reporter = CodeCarbonCallback(country_iso_code="FRA", settings={"allow_multiple_runs": False})
    training = loop(reporter)
    training.fire("on_train_begin")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    other = CodeCarbonCallback(country_iso_code="FRA", settings={"allow_multiple_runs": False})
    other.required = False
    loop(other).train()
    assert other.sent() == "codecarbon: nothing"
    training.fire("on_train_end")
    assert len(rows_in("out/emissions.csv")) == 1


# ---- the fake -------------------------------------------------------------------------------------------------------


def test_the_fake_takes_what_the_real_one_takes():
    real = signatures()
    with fake_sdk():
        fake = signatures()
    fake["EmissionsTracker"].remove(FACTOR)  # which 3.0 does not have
    for name, arguments in fake.items():
        assert set(arguments) <= set(real[name]), name


def test_a_factor_of_the_user_is_taken_by_a_version_that_has_such_a_setting(loop, services, monkeypatch):
    monkeypatch.setenv(f"CODECARBON_{FACTOR.upper()}", "20")
    loop(CodeCarbonCallback()).train()
    (row,) = rows_in("out/emissions.csv")
    expected = 0.02 if FACTOR in signatures()["EmissionsTracker"] else 0.475
    assert float(row["emissions"]) / float(row["energy_consumed"]) == pytest.approx(expected)
    assert bool(services.calls) == (expected != 0.02)


def test_the_fake_knows_places_as_the_real_one_does(services):
    real = facts()
    with fake_sdk():
        fake = facts()
    assert fake == real


def signatures() -> dict[str, list[str]]:
    """The arguments of all that the fake has."""
    codecarbon, geography, data, log, config = map(
        importlib.import_module,
        (
            "codecarbon",
            "codecarbon.external.geography",
            "codecarbon.input",
            "codecarbon.external.logger",
            "codecarbon.core.config",
        ),
    )
    classes = {"EmissionsTracker": codecarbon.EmissionsTracker, "GeoMetadata": geography.GeoMetadata}
    classes |= {"CloudMetadata": geography.CloudMetadata, "DataSource": data.DataSource}
    functions = {name: kind.__init__ for name, kind in classes.items() if name != "DataSource"}
    functions |= {name: inspect.unwrap(getattr(codecarbon.EmissionsTracker, name)) for name in ("start", "stop")}
    functions |= {"set_logger_level": log.set_logger_level, "settings": config.get_hierarchical_config}
    functions |= {"from_geo_js": geography.GeoMetadata.from_geo_js, "from_utils": geography.CloudMetadata.from_utils}
    return {name: list(inspect.signature(function).parameters) for name, function in functions.items()}


def facts() -> list[Any]:
    """What is told of places, and what is told where nobody answers."""
    geography = importlib.import_module("codecarbon.external.geography")
    data = importlib.import_module("codecarbon.input").DataSource()
    countries, clouds = data.get_global_energy_mix_data(), data.get_cloud_emissions_data()
    unanswered, cloud = geography.GeoMetadata.from_geo_js(data.geo_js_url), geography.CloudMetadata.from_utils()
    return [
        data.geo_js_url,
        data.get_carbon_intensity_per_source_data()["world_average"],
        {code: countries[code]["country_name"] for code in ("FRA", "CAN", "DEU")},
        {("gcp", "europe-west1"), ("gcp", "us-central1")}
        <= set(zip(clouds["provider"], clouds["region"], strict=True)),
        vars(unanswered),
        (cloud.provider, cloud.region),
    ]
