"""What keeps a tracker from reporting is found, and what to do about it is said."""

import json
import os
import sys
from pathlib import Path

import pytest
from conftest import contents

from trackside import installed
from trackside.registry import known
from trackside_command import checks

SECRET = "s3cr3t-of-the-user"


@pytest.fixture(autouse=True)
def _no_variable_speaks_of_pens(monkeypatch):
    for name in [name for name in os.environ if name.startswith("PEN")]:
        monkeypatch.delenv(name)


@pytest.fixture
def found(typed):
    """Examines the tracker `pen`: the exit code, and what was found of each thing, as (is it right, words)."""

    def found(*words):
        code, output = typed("doctor", "pen", "--json", *words)
        findings = json.loads(output)["findings"]
        return code, {one["what"]: (one["ok"], one["found"]) for one in findings if one["where"] == "pen"}

    return found


def calls():
    return sys.modules["trackside_pen"].calls


def test_nothing_is_wrong_with_a_tracker_that_can_report(typed):
    code, output = typed("doctor", "tensorboard")
    assert code == 0
    assert output.endswith("Nothing is wrong.\n")
    assert output.isascii()


def test_nothing_is_called_and_nothing_written_unless_it_is_asked_for(found, publish):
    publish("pen")
    before = contents(".")
    code, about = found()
    assert code == 0
    assert about["import"][0]
    assert calls() == []
    assert contents(".") == before


def test_a_tiny_run_is_opened_logged_to_and_closed_by_the_operations_of_the_reporter(found, publish):
    publish("pen")
    code, about = found("--online")
    assert code == 0
    assert about["tiny run"][0]
    assert calls() == [
        ("start", "trackside-doctor"),
        ("log_points", [{"train/doctor": 1.0}]),
        ("finish", "finished"),
    ]


def test_a_tiny_run_leaves_nothing_on_this_disk_of_a_tracker_that_writes_into_the_folder_of_the_run(typed):
    before = contents(".")
    assert typed("doctor", "tensorboard", "--online")[0] == 0
    assert contents(".") == before


def test_a_tiny_run_never_continues_a_run_that_the_environment_names(found, publish, monkeypatch):
    body = """
        resume = env("PEN_RESUME", "auto")
        own_run_id = env("PEN_RUN_ID")

        def start(self, run):
            calls.append((self.resume, self.own_run_id))
        """
    publish("pen", body)
    monkeypatch.setenv("PEN_RESUME", "the-run-of-the-year")
    monkeypatch.setenv("PEN_RUN_ID", "the-run-of-the-year")
    assert found("--online")[0] == 0
    assert calls()[0] == ("new", None)


@pytest.mark.parametrize("operation", ["log_params", "log_points", "flush"])
def test_a_tiny_run_that_breaks_off_is_closed_as_failed(found, publish, operation):
    publish("pen", f"def {operation}(self, *_):\n    raise ConnectionError('nobody is there')")
    code, about = found("--online")
    assert code == 1
    assert about["tiny run"] == (
        False,
        "ConnectionError: nobody is there; see that its server can be reached and takes the key",
    )
    assert calls()[-1] == ("finish", "failed")


def test_a_run_of_the_users_own_is_not_closed(found, publish):
    publish("pen", "def start(self, run):\n    self.adopted = True")
    assert found("--online")[0] == 0
    assert [operation for operation, _ in calls()] == ["log_points"]


def test_an_sdk_that_gives_no_answer_is_not_waited_for(found, publish, monkeypatch):
    publish("pen", "def start(self, run):\n    gate.wait()")
    monkeypatch.setattr(checks, "ONLINE_SECONDS", 0.1)
    monkeypatch.setattr(os, "_exit", sys.exit)  # which ends the program although a thread still waits
    code, about = found("--online")
    sys.modules["trackside_pen"].gate.set()
    assert code == 1
    assert "no answer within 0.1 seconds" in about["tiny run"][1]


@pytest.mark.parametrize(
    ("published", "what", "said"),
    [
        ({"body": "import a_module_that_is_not_there"}, "integration", "No module named 'a_module_that_is_not_there'"),
        ({"requires": ["click>=1,<2"]}, "package", 'type: pip install "click>=1,<2"'),
        ({"requires": ["an-sdk-nobody-wrote"]}, "package", "is not installed; type: pip install"),
        ({"body": "configured = lambda self: Configured(False, 'set PEN_API_KEY')"}, "settings", "set PEN_API_KEY"),
        ({"body": "sdk = 'a_module_that_is_not_there'"}, "import", "install its package again"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(found, publish, published, what, said):
    publish("pen", **published)
    code, about = found("--online")
    assert code == 1
    assert not about[what][0]
    assert said in about[what][1]
    assert "tiny run" not in about


def test_a_variable_that_is_not_understood_is_named(found, publish, monkeypatch):
    publish("pen")
    monkeypatch.setenv("PEN_IS_QUICK", "perhaps")
    code, about = found()
    assert code == 1
    assert "PEN_IS_QUICK='perhaps' is not understood" in about["settings"][1]


def test_a_folder_that_cannot_be_written_to_is_named(found, publish, monkeypatch):
    publish("pen")
    Path("in_the_way").write_text("")
    monkeypatch.setenv("PEN_LOGGING_DIR", "in_the_way/logs")
    code, about = found()
    assert code == 1
    assert about["logging_dir"] == (
        False,
        "in_the_way/logs cannot be written to (Not a directory); choose another one",
    )


def test_a_folder_that_is_not_there_yet_can_be_made(found, publish, monkeypatch):
    publish("pen")
    monkeypatch.setenv("PEN_LOGGING_DIR", "deep/below/logs")
    code, about = found()
    assert code == 0
    assert about["logging_dir"][0]
    assert not Path("deep").exists()


def test_credentials_are_said_to_be_there_and_never_shown(typed, publish, monkeypatch):
    publish("pen", "def start(self, run):\n    raise RuntimeError(f'the key {self.api_key} is refused')")
    monkeypatch.setenv("PEN_API_KEY", SECRET)
    code, output = typed("doctor", "pen", "--online")
    assert code == 1
    assert "complete, with PEN_API_KEY" in output
    assert "the key *** is refused" in output
    assert SECRET not in output


def test_what_an_sdk_prints_is_kept_out_of_the_answer(publish, typed_to_a_file):
    publish("pen", "def import_sdk(self):\n    print('Welcome to pens!')")
    answer, errors = typed_to_a_file("doctor", "pen", "--json")
    assert json.loads(answer)["findings"]
    assert errors == b"Welcome to pens!\n"


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("TRACKSIDE_DISABLED", "1", "TRACKSIDE_DISABLED switches all reporting off; unset it"),
        ("TRACKSIDE_DELIVERY", "pigeon", "TRACKSIDE_DELIVERY takes one of inline, thread, process"),
    ],
)
def test_what_keeps_all_trackers_from_reporting_is_found(typed, monkeypatch, variable, value, said):
    monkeypatch.setenv(variable, value)
    code, output = typed("doctor", "tensorboard")
    assert code == 1
    assert said in output
    assert "Wrong: 1 of " in output


def test_without_names_all_that_are_installed_are_examined_as_those_that_nobody_has_named(typed, publish):
    publish("pen", "configured = lambda self: Configured(self.required, 'nobody names it')")
    code, output = typed("doctor")
    assert code == 1
    assert "nobody names it" in output
    assert "tensorboard" in output
    assert typed("doctor", "pen")[0] == 0


def test_one_that_is_known_and_not_installed_is_told_how_to_get(typed):
    absent = next(name for name in known() if name not in installed())
    code, output = typed("doctor", absent.replace("_", "-"))
    assert code == 1
    assert f'not installed; type: pip install "trackside[{absent}]"' in output


def test_one_that_nobody_knows_is_an_error_of_usage(typed):
    code, output = typed("doctor", "pigeon")
    assert code == 2
    assert "no tracker is called 'pigeon'; known are " in output
