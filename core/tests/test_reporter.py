"""Who reports, what becomes of failures, and what a person sees."""

import errno
import sys
import traceback
from uuid import UUID

import pytest
from training import Loop, Notebook, kinds

from trackside import StartError, TrainerState

# ---- who speaks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "speaks"), [("world", [True, False, False]), ("node", [True, True, False]), ("every", [True, True, True])]
)
def test_only_ranks_in_scope_report(scope, speaks):
    class Scoped(Notebook):
        pass

    Scoped.scope = scope
    for rank, expected in zip([(True, True), (False, True), (False, False)], speaks, strict=True):
        reporter = Scoped()
        loop = Loop(reporter)
        loop.begin(TrainerState(is_world_process_zero=rank[0], is_local_process_zero=rank[1]))
        loop.evaluate({"eval_loss": 1.0})
        loop.end()
        assert bool(reporter.calls) is expected
        assert reporter.run is None


def test_reporting_can_be_switched_off_for_all(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_DISABLED", "1")
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    loop.log({"loss": 1.0})
    loop.end()
    assert reporter.calls == []


def test_two_that_report_to_one_place_are_one_and_a_warning(caplog):
    class Twin(Notebook):
        def is_duplicate_of(self, other):
            return type(other) is Twin

    first, second = Twin(), Twin()
    loop = Loop(first, second)
    loop.begin()
    loop.log({"loss": 1.0})
    loop.end()
    assert len(first.points) == 1
    assert second.calls == []
    assert len(caplog.records) == 1


# ---- failure --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["log_params", "log_points", "log_text", "finish"])
def test_a_tracker_that_fails_never_ends_a_training(operation, caplog):
    failing, healthy = Notebook(failing=(operation,)), Notebook()
    loop = Loop(failing, healthy)
    loop.begin()
    for step in range(3):
        loop.log({"loss": 1.0, "phase": "x"}, step)
    loop.end()
    assert len(healthy.points) == 3
    failures = [record.getMessage() for record in caplog.records if f"no {operation} today" in record.getMessage()]
    assert len(failures) == 1
    assert f"calls that failed: {operation} (" in caplog.records[-1].getMessage()


def test_a_tracker_that_cannot_say_where_a_run_is_shown_never_ends_a_training(capsys):
    class Lost(Notebook):
        def where(self):
            raise RuntimeError("no address")

    loop = Loop(Lost())
    loop.begin()
    loop.log({"loss": 1.0}, step=1)
    loop.end()
    assert loop.reporters[0].points == [(1, {"train/loss": 1.0})]
    assert loop.reporters[0].sent() == "notebook: 1 values of 1 metrics"
    assert capsys.readouterr().err == "Reporting to notebook\n"


def test_an_error_that_cannot_even_say_what_it_is_never_ends_a_training(caplog):
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    class Failing(Notebook):
        def log_points(self, points):
            raise Mute

    loop = Loop(Failing())
    loop.begin()
    loop.log({"loss": 1.0}, step=1)
    loop.end()
    assert "log_points failed (Mute: " in caplog.text


def test_a_long_story_of_what_has_failed_is_told_in_one_line_with_its_end(caplog):
    class Verbose(Notebook):
        def log_points(self, points):
            raise RuntimeError("the request\nhas failed: " + "retry " * 500 + "Connection refused")

    loop = Loop(Verbose())
    loop.begin()
    loop.log({"loss": 1.0})
    (told,) = caplog.messages
    assert told.startswith("notebook: log_points failed (RuntimeError: the request has failed: retry")
    assert told.endswith("Connection refused).")
    assert len(told) < 350


def test_a_named_tracker_that_refuses_stops_the_program_with_one_sentence():
    with pytest.raises(StartError, match="notebook cannot start") as caught:
        Loop(Notebook(failing=("start",))).begin()
    assert "no start today" in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_refusal_shows_no_secret_in_its_traceback_either():
    class Chatty(Notebook):
        def start(self, run):
            raise RuntimeError("refused key hf_AbCdEfGhIj0123456789")

    with pytest.raises(StartError, match=r"refused key \*\*\*") as caught:
        Loop(Chatty()).begin()
    assert "hf_Ab" not in "".join(traceback.format_exception(caught.value))


def test_an_id_that_is_no_text_becomes_one():
    class Numbering(Notebook):
        def start(self, run):
            return UUID(int=7)

    reporter = Numbering()
    loop = Loop(reporter)
    loop.begin()
    assert reporter.tracker_id == "00000000-0000-0000-0000-000000000007"
    assert loop.state.stateful_callbacks["trackside"]["trackers"] == {"notebook": reporter.tracker_id}


def test_a_run_that_was_half_opened_when_its_tracker_refused_is_none():
    class Late(Notebook):
        def start(self, run):
            super().start(run)
            raise PermissionError("read only")

    reporter = Late()
    reporter.required = False
    Loop(reporter).begin()
    assert reporter.run is None


def test_one_that_was_not_named_is_left_out_with_a_warning(caplog):
    reporter = Notebook(failing=("start",))
    reporter.required = False
    loop = Loop(reporter)
    loop.begin()
    loop.log({"loss": 1.0})
    loop.end()
    assert kinds(reporter) == ["start"]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("error", [ConnectionRefusedError("refused"), TimeoutError("too late")])
def test_training_goes_on_without_a_tracker_that_cannot_be_reached(error, caplog):
    class Far(Notebook):
        def start(self, run):
            raise error

    loop = Loop(Far())
    loop.begin()
    loop.log({"loss": 1.0})
    loop.end()
    assert "cannot be reached" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied", "/locked/runs"),
        OSError(errno.ENOSPC, "No space left on device"),
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
    ],
)
def test_a_disk_that_cannot_be_written_is_a_refusal(error):
    class Unwritable(Notebook):
        def start(self, run):
            raise error

    with pytest.raises(StartError, match=error.strerror):
        Loop(Unwritable()).begin()


def test_an_sdk_that_is_broken_is_not_called_missing():
    class Importing(Notebook):
        def start(self, run):
            import a_module_that_is_not_there  # noqa: F401

    with pytest.raises(StartError, match=r"installed but broken.*a_module_that_is_not_there"):
        Loop(Importing()).begin()


def test_errors_of_a_tracker_show_no_secret(caplog):
    class Chatty(Notebook):
        def log_points(self, points):
            raise RuntimeError("POST https://me:hunter2@host refused key hf_AbCdEfGhIj0123456789")

    loop = Loop(Chatty())
    loop.begin()
    loop.log({"loss": 1.0})
    loop.end()
    assert "hunter2" not in caplog.text
    assert "hf_Ab" not in caplog.text
    assert "refused key ***" in caplog.text


SECRET = "hf_AbCdEfGhIj0123456789"


def test_no_secret_is_told_wherever_it_stands(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--password=two words", "--hub_token", SECRET])
    reporter = Notebook()
    loop = Loop(reporter, run_name=f"try {SECRET}", project=SECRET)
    loop.begin(TrainerState(trial_name=SECRET, trial_params={"password": "two words"}))
    loop.log({f"loss of {SECRET}": 1.0})
    loop.log({"api_key": {"openai": "two words"}, "password": ["two words"]})
    loop.evaluate({f"eval_{SECRET}": 0.5, "eval_note": f"cloned with {SECRET}"})
    told = repr(reporter.calls)
    assert SECRET not in told
    assert "words" not in told
    assert (0, {"train/loss of ***": 1.0}) in reporter.points


def test_the_folder_of_a_run_stays_what_it_is_whatever_its_name_looks_like():
    reporter = Notebook()
    Loop(reporter, output_dir="out/hf_Llama2Chat").begin()
    assert reporter.told("start")[0].output_dir == "out/hf_Llama2Chat"


# ---- what a person sees ---------------------------------------------------------------------------------------------


def test_who_reports_is_said_at_the_start_and_how_much_on_request(capsys):
    class Shown(Notebook):
        def where(self):
            return "notebook --open out"

    reporter = Shown()
    assert reporter.sent() == "notebook: nothing"
    loop = Loop(reporter)
    loop.begin()
    assert capsys.readouterr().err == "Reporting to notebook; see the run with: notebook --open out\n"
    for step in range(1000):
        loop.log({"loss": 1.0, "lr": 0.1}, step)
    loop.end()
    loop.evaluate({"eval_loss": 1.0})
    assert reporter.sent() == "notebook: 2,001 values of 3 metrics; see the run with: notebook --open out"
    assert capsys.readouterr() == ("", "")
