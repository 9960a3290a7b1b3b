"""The contract of a reporter, and what is special in CodeCarbon, against a fake that refuses what that refuses."""

from __future__ import annotations

import csv
import platform
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest

from trackside import StartError
from trackside_codecarbon import CodeCarbonCallback
from trackside_testkit import RecordingReporter, Reported, ReporterContract
from trackside_testkit.integration import declared_options, documented_options, maker_of

README = Path(__file__).parents[1] / "README.md"
KWH = 0.5  # what the fake measures


def rows_in(folder):
    """All rows of all tables below a folder."""
    rows = []
    for file in sorted(Path(folder).rglob("*.csv")):
        with open(file, encoding="utf-8", newline="") as table:
            rows += csv.DictReader(table)
    return rows


class TestCodeCarbon(ReporterContract):
    reporter_class = CodeCarbonCallback
    left_out = {  # noqa: RUF012 - as the contract has it
        "test_an_evaluation_alone_is_a_run": "what is over when it is told of cannot be measured",
        "test_all_that_is_sent_can_be_read_back": "a meter sends nothing of what is logged",
        "test_an_operation_that_always_fails_is_one_warning_and_costs_nothing_else": "only its end can; see below",
    }

    def make_reporter(self, **options):
        return CodeCarbonCallback(country_iso_code="FRA", **options)

    def read(self):
        return [Reported(points=None) for _ in rows_in(self.folder)]

    def test_a_training_that_is_resumed_is_measured_again(self):
        first = self.reporter()
        with pytest.raises(RuntimeError):
            self.loop(first).train(fail_at=7)
        second = self.reporter()
        loop = self.loop(second)
        loop.train(resume_from=Path(loop.args.output_dir, "checkpoint-4"))
        assert second.tracker_id == first.tracker_id
        assert [row["run_id"] for row in rows_in(self.folder)] == [first.tracker_id, f"{first.tracker_id}-2"]
        assert second.sent() == "codecarbon: 0.05 kg of CO2eq, 1 kWh"


def test_the_table_of_options_in_the_readme_is_that_of_the_class():
    assert documented_options(README) == declared_options(CodeCarbonCallback)


# ---- what tests look at ---------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _inline(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")


new = maker_of(CodeCarbonCallback)


@pytest.fixture
def answers():
    """What the services that tell of places answer: nothing, until a test says what."""
    from codecarbon.external import geography

    return geography.ANSWERS


def only_row():
    (row,) = rows_in(".")
    return row


def said_of_the_average(caplog):
    return [message for message in caplog.messages if "counts the world's average of 475 g" in message]


# ---- the place ------------------------------------------------------------------------------------------------------


def test_the_country_is_looked_up(loop, new, answers, caplog):
    answers["country"] = ("DEU", "Germany", "Hesse", 50.1, 8.7, "DE")
    loop(new()).train()
    assert (only_row()["country_iso_code"], only_row()["region"]) == ("DEU", "hesse")
    assert float(only_row()["emissions"]) == KWH * 0.35
    assert not caplog.records


def test_a_computer_in_a_cloud_is_counted_with_the_emissions_of_that(loop, new, answers):
    answers["country"] = ("DEU", "Germany", "Hesse", 50.1, 8.7, "DE")
    answers["cloud"] = ("gcp", "europe-west1")
    loop(new()).train()
    assert float(only_row()["emissions"]) == KWH * 0.1


def test_a_cloud_without_data_is_counted_as_its_country(loop, new, answers):
    answers["country"] = ("DEU", "Germany", "Hesse", 50.1, 8.7, "DE")
    answers["cloud"] = ("gcp", "mars-north1")
    loop(new()).train()
    assert float(only_row()["emissions"]) == KWH * 0.35


def test_a_cloud_is_enough_where_the_country_is_not_found(loop, new, answers, caplog):
    answers["cloud"] = ("gcp", "us-central1")
    loop(new()).train()
    assert float(only_row()["emissions"]) == KWH * 0.4
    assert not caplog.records


@pytest.mark.parametrize("trouble", [None, RuntimeError("sockets are blocked")])
def test_where_nobody_answers_the_average_of_the_world_is_counted_and_that_is_said_once(
    loop, new, answers, caplog, trouble
):
    answers["country"] = answers["cloud"] = trouble
    training = loop(new())
    training.evaluate()
    training.train()
    training.evaluate()
    assert only_row()["country_iso_code"] == ""
    assert float(only_row()["emissions"]) == KWH * 0.475
    assert len(said_of_the_average(caplog)) == 1


def test_services_that_do_not_answer_are_not_waited_for(loop, new, answers, monkeypatch, caplog):
    monkeypatch.setattr("trackside_codecarbon.place.LOOK_UP_SECONDS", 0.2)
    answers["country"] = answers["cloud"] = "silence"
    began = time.monotonic()
    loop(new()).train()
    assert time.monotonic() - began < 2
    assert len(said_of_the_average(caplog)) == 1


@pytest.mark.parametrize(
    ("options", "grams"),
    [
        ({"country_iso_code": "fra"}, 50),
        ({"cloud_provider": "gcp", "cloud_region": "europe-west1"}, 100),
        ({"country_iso_code": "FRA", "cloud_provider": "gcp", "cloud_region": "us-central1"}, 400),
        ({"settings": {"force_carbon_intensity_g_co2e_kwh": 20.0}}, 20),
        ({"settings": {"country_iso_code": "FRA", "country_2letter_iso_code": "FR"}}, 50),
    ],
    ids=str,
)
def test_nobody_is_asked_for_a_place_that_the_user_has_set(loop, new, answers, caplog, options, grams):
    loop(new(**options)).train()
    assert float(only_row()["emissions"]) == pytest.approx(KWH * grams / 1000)
    assert "asked" not in answers
    assert not caplog.records


def test_variables_of_codecarbon_may_be_written_small(loop, new, answers, monkeypatch):
    monkeypatch.setenv("codecarbon_country_iso_code", "FRA")
    loop(new()).train()
    assert only_row()["country_name"] == "France"
    assert "asked" not in answers


def test_the_file_of_codecarbon_is_read(loop, new, answers):
    training = loop(new())
    training.args.project = "digits"
    settings = "country_iso_code = FRA\nproject_name = mine\noutput_file = energy.csv"
    Path(".codecarbon.config").write_text(f"[codecarbon]\n{settings}", "utf-8")
    training.train()
    assert (only_row()["country_name"], only_row()["project_name"]) == ("France", "mine")
    assert Path("out/energy.csv").is_file()
    assert "asked" not in answers


def test_nobody_is_asked_where_the_user_wants_none(loop, new, answers, monkeypatch, caplog):
    monkeypatch.setenv("CODECARBON_OFFLINE", "yes")
    loop(new()).train()
    assert "asked" not in answers
    assert len(said_of_the_average(caplog)) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"country_iso_code": "FR"}, "there is no data of country_iso_code 'FR'"),
        ({"cloud_provider": "aws", "cloud_region": "us-east-1"}, "there is no data of cloud_region 'us-east-1'"),
        ({"cloud_provider": "gcp"}, "there is no data of cloud_region None"),
        ({"country_iso_code": "FRA", "tracking_mode": "gpu"}, "tracking_mode is 'gpu'"),
        ({"country_iso_code": "FRA", "settings": {"pue_": 1.2}}, "pue_"),
    ],
    ids=str,
)
def test_a_setting_that_means_nothing_stops_the_program_at_its_start(loop, new, options, reason):
    with pytest.raises(StartError, match=reason):
        loop(new(**options)).fire("on_train_begin")
    assert rows_in(".") == []


# ---- the measurement ------------------------------------------------------------------------------------------------


def test_a_training_is_measured_from_its_beginning_to_its_end(loop, new, capsys):
    reporter = new(country_iso_code="FRA")
    training = loop(reporter)
    training.fire("on_train_begin")
    assert reporter.run.run_id == reporter.tracker_id
    assert rows_in(".") == []
    training.fire("on_train_end")
    assert only_row()["run_id"] == reporter.tracker_id
    assert (
        f"codecarbon: 0.025 kg of CO2eq, 0.5 kWh; see {Path('out', 'emissions.csv').absolute()}"
        in capsys.readouterr().err
    )
    assert reporter.sent() == "codecarbon: 0.025 kg of CO2eq, 0.5 kWh"


def test_as_long_as_a_training_has_not_ended_there_is_nothing_to_tell_of_it(loop, new):
    reporter = new(country_iso_code="FRA")
    training = loop(reporter)
    for _ in range(2):
        training.fire("on_train_begin")
        assert reporter.sent() == "codecarbon: nothing"
        training.fire("on_train_end")
    assert len(rows_in(".")) == 2


def test_a_training_that_fails_has_its_row(loop, new):
    with pytest.raises(RuntimeError):
        loop(new(country_iso_code="FRA")).train(fail_at=2)
    assert float(only_row()["energy_consumed"]) == KWH


def test_nothing_but_the_training_is_measured_and_nothing_is_said_of_the_rest(loop, new, caplog):
    training = loop(new(country_iso_code="FRA"))
    training.evaluate()
    training.log({"note": "half-way", "nothing": None})
    assert not Path("out").exists()
    training.train()
    training.evaluate()
    training.predict()
    assert float(only_row()["energy_consumed"]) == KWH
    assert not caplog.records


@pytest.mark.parametrize(("share", "operation"), [(True, "measured"), (False, "finish")])
def test_a_row_that_cannot_be_written_is_one_warning(loop, new, caplog, share, operation):
    training = loop(new(country_iso_code="FRA", share=share))
    training.fire("on_train_begin")
    Path("out/emissions.csv").mkdir()
    training.fire("on_train_end")
    (warning,) = [message for message in caplog.messages if "IsADirectoryError" in message]
    assert warning.startswith(f"codecarbon: {operation} failed")


def test_a_run_that_is_resumed_often_counts_each_measurement_once(loop, new):
    first = new(country_iso_code="FRA")
    loop(first).train()
    for number in (2, 3):
        reporter = new(country_iso_code="FRA", resume=first.tracker_id)
        loop(reporter).train()
        assert reporter.sent().endswith(f", {number * KWH:g} kWh")
    with open("out/emissions.csv", encoding="utf-8", newline="") as table:
        latest = list(csv.reader(table))[-1]
    with open("out/emissions.csv", "a", encoding="utf-8", newline="") as table:
        csv.writer(table).writerow(latest)  # as after a flush of the user's
    reporter = new(country_iso_code="FRA", resume=first.tracker_id)
    loop(reporter).train()
    assert reporter.sent().endswith(", 2 kWh")
    assert {row["run_id"] for row in rows_in(".")} == {
        first.tracker_id,
        *(f"{first.tracker_id}-{n}" for n in (2, 3, 4)),
    }


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "run_id,emissions\nsome,much\n", "\0", ""])
def test_a_table_of_another_kind_does_not_keep_a_run_from_going_on(loop, new, content):
    Path("out").mkdir(exist_ok=True)
    reporter = new(country_iso_code="FRA", resume="some")
    training = loop(reporter)
    Path("out").mkdir(exist_ok=True)
    Path("out/emissions.csv").write_text(content, "utf-8")
    training.train()
    assert reporter.sent().endswith(", 0.5 kWh")


def test_a_start_that_takes_too_long_is_given_up_and_measures_nothing_in_the_end(loop, new, monkeypatch, caplog):
    from codecarbon import EmissionsTracker

    may_go_on = threading.Event()
    stopped = threading.Event()
    monkeypatch.setattr("trackside_codecarbon.reporter.START_SECONDS", 0.2)
    monkeypatch.setattr(EmissionsTracker, "start", lambda tracker: may_go_on.wait(20))
    monkeypatch.setattr(EmissionsTracker, "stop", lambda tracker: stopped.set())
    monkeypatch.setattr(EmissionsTracker, "final_emissions_data", None, raising=False)
    training = loop(new(country_iso_code="FRA"))
    training.train()
    assert training.state.global_step == 4
    assert sum("no answer within 0.2 seconds" in message for message in caplog.messages) == 1
    assert not stopped.is_set()
    may_go_on.set()
    assert stopped.wait(20)


def test_an_end_that_takes_too_long_is_given_up(loop, new, monkeypatch, caplog):
    from codecarbon import EmissionsTracker

    may_go_on = threading.Event()
    monkeypatch.setattr("trackside_codecarbon.reporter.FINISH_SECONDS", 0.2)
    monkeypatch.setattr(EmissionsTracker, "stop", lambda tracker: may_go_on.wait(20))
    reporter = new(country_iso_code="FRA")
    loop(reporter).train()
    may_go_on.set()
    assert sum("finish failed (TimeoutError: no answer within 0.2 seconds)" in text for text in caplog.messages) == 1
    assert reporter.sent() == "codecarbon: nothing"


# ---- files and settings ---------------------------------------------------------------------------------------------


def test_the_table_is_where_the_user_wants_it_and_nothing_is_anywhere_else(loop, new, monkeypatch, tmp_path):
    monkeypatch.setenv("CODECARBON_OUTPUT_DIR", str(tmp_path / "elsewhere" / "deep"))
    monkeypatch.setenv("CODECARBON_OUTPUT_FILE", "energy.csv")
    loop(new(country_iso_code="FRA"), save_strategy="no").train()
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [Path("elsewhere/deep/energy.csv")]


def test_the_table_is_where_the_training_began_wherever_that_goes(loop, new, monkeypatch, tmp_path):
    training = loop(new(country_iso_code="FRA"))
    training.fire("on_train_begin")
    monkeypatch.chdir(tmp_path)
    training.fire("on_train_end")
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*.csv")] == [Path("work/out/emissions.csv")]


def test_no_table_is_promised_where_the_user_wants_none(loop, new, capsys):
    loop(new(country_iso_code="FRA", settings={"save_to_file": False})).train()
    assert rows_in(".") == []
    assert "0.5 kWh\n" in capsys.readouterr().err


def test_each_node_has_a_table_of_its_own_and_one_of_them_speaks(loop, new, capsys):
    loop(new(country_iso_code="FRA"), rank=8, local_rank=0).train()
    assert [path.name for path in Path("out").glob("*.csv")] == [f"emissions-{platform.node()}.csv"]
    assert "kWh" not in capsys.readouterr().err
    loop(new(country_iso_code="FRA")).train()
    assert Path("out/emissions.csv").is_file()


@pytest.mark.parametrize(("option", "expected"), [(None, "digits"), ("mine", "mine")])
def test_the_project_is_that_of_codecarbon_else_that_of_the_run(loop, new, option, expected):
    training = loop(new(country_iso_code="FRA", project_name=option))
    training.args.project = "digits"
    training.train()
    assert only_row()["project_name"] == expected


def test_what_is_set_by_variables_reaches_codecarbon_in_its_types(loop, new, monkeypatch):
    monkeypatch.setenv("CODECARBON_MEASURE_POWER_SECS", "0.5")
    monkeypatch.setenv("CODECARBON_TRACKING_MODE", "process")
    reporter = new(country_iso_code="FRA")
    loop(reporter).fire("on_train_begin")
    assert reporter.run._seconds == 0.5


# ---- manners --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "lines"), [(None, []), ("warning", ["Multiple"]), ("info", ["Codecarbon", "Multiple"])]
)
def test_codecarbon_says_what_the_user_wants_to_hear(loop, new, capfd, monkeypatch, level, lines):
    if level is not None:
        monkeypatch.setenv("CODECARBON_LOG_LEVEL", level)
    loop(new(country_iso_code="FRA"), disable_tqdm=True).train()
    console = "".join(capfd.readouterr())
    for word in ("Codecarbon configuration", "Multiple instances"):
        assert console.count(word) == any(word.startswith(line) for line in lines)


def test_signals_stay_as_they_are_also_where_codecarbon_is_to_be_alone(loop, new):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    reporter = new(country_iso_code="FRA", settings={"allow_multiple_runs": False})
    loop(reporter).fire("on_train_begin")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_lock_that_is_held_is_a_reason_that_is_said(loop, new):
    Path(tempfile.gettempdir(), ".codecarbon.lock").touch()
    loop(new(country_iso_code="FRA")).train()
    with pytest.raises(StartError, match="allow_multiple_runs is off"):
        loop(new(country_iso_code="FRA", settings={"allow_multiple_runs": False})).train()


# ---- the other trackers ---------------------------------------------------------------------------------------------


class Shelf(RecordingReporter):
    """Another tracker of the run, of which some go before the meter and some after it."""


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("fail_at", [None, 3])
def test_other_trackers_are_told_of_energy_and_emissions_on_request(loop, new, order, fail_at):
    shelf = Shelf()
    reporters = (new(country_iso_code="FRA", share=True), shelf)
    try:
        loop(*(reporters[number] for number in order)).train(fail_at=fail_at)
    except RuntimeError:
        assert fail_at == 3
    assert shelf.summary["train/emissions_kg"] == pytest.approx(0.025)
    assert shelf.summary["train/energy_kwh"] == KWH
    assert shelf.statuses == ["failed" if fail_at else "finished"]
    assert len(rows_in(".")) == 1


def test_other_trackers_are_told_of_all_measurements_of_a_resumed_run(loop, new):
    first = new(country_iso_code="FRA")
    loop(first).train()
    shelf = Shelf()
    loop(shelf, new(country_iso_code="FRA", share=True, resume=first.tracker_id)).train()
    assert shelf.summary["train/energy_kwh"] == 2 * KWH


def test_other_trackers_are_told_nothing_unless_they_are_to_be(loop, new):
    shelf = Shelf()
    loop(new(country_iso_code="FRA"), shelf).train()
    assert not [key for key in shelf.summary if "energy" in key or "emissions" in key]
