"""What runs were told to do and how well they did, on the screen and as a picture."""

import fcntl
import json
import math
import os
import shlex
import sys
from pathlib import Path

import pytest
from conftest import contents

from trackside_command.histories import Value, greater_is_better
from trackside_command.plot import MOST_POINTS, thinned
from trackside_command.sparkline import sparkline
from trackside_spool.folder import Tracker
from trackside_tensorboard import TensorBoardCallback
from trackside_testkit import FakeLoop


def falling(count):
    return [(step, {"loss": 1 / step, "eval_accuracy": 1 - 1 / step}) for step in range(1, count + 1)]


def row(output, name):
    (found,) = [line.split() for line in output.splitlines() if line.startswith(f"{name} ")]
    return found


@pytest.fixture
def shown(typed):
    """What programs read of the only run."""

    def shown():
        code, output = typed("show", ".", "--json")
        assert code == 0
        (run,) = json.loads(output)["runs"]
        return run

    return shown


def test_of_one_run_everything_is_shown(typed, write_run):
    write_run(*falling(8), learning_rate=0.1, seed=None)
    code, output = typed("show", "out")
    assert code == 0
    assert row(output, "run") == ["run", "baseline"]
    assert row(output, "status") == ["status", "finished"]
    assert "learning_rate = 0.1" in output
    assert "seed" not in output
    assert row(output, "loss") == ["loss", "0.125", "0.125", "8", "█▄▂▂▁▁▁▁"]
    assert row(output, "eval_accuracy") == ["eval_accuracy", "0.875", "0.875", "8", "▁▅▇▇████"]


def test_a_training_is_shown_with_what_its_trackers_have(typed, monkeypatch):
    monkeypatch.delenv("TRACKSIDE_DELIVERY", raising=False)
    FakeLoop([TensorBoardCallback()], output_dir="out", eval_strategy="no").train()
    output = typed("show", "out")[1]
    assert row(output, "tensorboard") == ["tensorboard", "has", "everything"]
    assert row(output, "reached")[:3] == ["reached", "step", "8,"]
    assert row(output, "loss")[1:4] == ["0.1111", "0.1111", "8"]


def test_the_best_is_the_first_of_the_best_and_never_nan(shown, write_run):
    values = [3.0, math.nan, 1.0, 2.0, 1.0, math.inf]
    write_run(*((step, {"loss": value, "speed": value}) for step, value in enumerate(values)))
    metrics = shown()["metrics"]
    assert metrics["loss"] == {"count": 6, "last": {"value": "Infinity", "step": 5}, "best": {"value": 1.0, "step": 2}}
    assert metrics["speed"]["best"] is None


@pytest.mark.parametrize(
    ("name", "told", "is_greater"),
    [
        ("eval_loss", {}, False),
        ("val/perplexity", {}, False),
        ("eval_rewards/accuracy", {}, True),
        ("f1", {}, True),
        ("learning_rate", {}, None),
        ("lossless", {}, None),
        ("eval_distance", {"metric_for_best_model": "distance", "greater_is_better": False}, False),
        ("eval_loss", {"metric_for_best_model": "eval_loss", "greater_is_better": True}, True),
        ("eval_loss", {"metric_for_best_model": "accuracy", "greater_is_better": True}, False),
    ],
)
def test_which_values_are_good_is_told_by_the_run_or_the_name(name, told, is_greater):
    assert greater_is_better(name, told) is is_greater


def test_what_a_resume_has_made_void_is_not_shown(shown, write_run):
    write_run(
        (1, {"loss": 4.0}),
        (2, {"loss": 0.1}),
        {"kind": "finished", "step": 2, "epoch": 1, "time": 0, "values": {}, "status": "failed"},
        {"kind": "resumed", "first": 3, "step": 1, "params": {"seed": [1, 2]}},
        (2, {"loss": 3.0}),
        status=None,
        seed=1,
    )
    run = shown()
    assert run["metrics"]["loss"] == {"count": 2, "last": {"value": 3.0, "step": 2}, "best": {"value": 3.0, "step": 2}}
    assert run["params"] == {"seed": 2}
    assert run["status"] == "killed"


def test_a_run_without_an_end_is_running_as_long_as_somebody_is_at_work_on_it(shown, typed, write_run):
    folder = write_run((1, {"loss": 1.0}), (2, {"loss": 0.5}), status=None, below="it's out")
    folder.keep(Tracker("pen", "trackside_pen:Pen"))
    assert shown()["status"] == "killed"
    with open(folder.path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert shown()["status"] == "running"
        assert "is owed 2 records; it is being delivered" in typed("show", ".")[1]
    assert shown()["status"] == "killed"
    assert f"type: trackside replay {shlex.quote(os.path.relpath(folder.path))}" in typed("show", ".")[1]


def test_several_runs_are_a_line_each_in_the_order_of_their_start(typed, write_run):
    write_run(*falling(4), run_id="a" * 12, metric_for_best_model="accuracy", greater_is_better=True)
    write_run((1, {"loss": 0.5}), run_id="b" * 12, name="second", below="out/nested", status="failed")
    header, *rows = typed("show", "out")[1].splitlines()
    assert header.split() == ["run", "status", "started", "step", "best", "below"]
    assert [line.split()[0] for line in rows] == ["baseline", "second"]
    assert "0.75 accuracy  out" in rows[0]
    assert "failed" in rows[1]
    assert rows[1].endswith("0.5 loss       out/nested")


def test_showing_changes_nothing(typed, write_run):
    write_run(*falling(4))
    before = contents("out")
    typed("show", "out")
    assert contents("out") == before


def test_a_name_cannot_speak_to_the_terminal(typed_at_a_terminal, write_run):
    write_run((1, {"loss[red]\x1b[31m": 0.5}), name="a\x1b]0;title\x07\nb", note="[bold]\x9b2J")
    output = typed_at_a_terminal(120, "show", "out")
    assert "a\\x1b]0;title\\x07\\nb" in output
    assert "[bold]\\x9b2J" in output
    assert "loss[red]\\x1b[31m" in output
    assert "\x1b" not in output


@pytest.mark.parametrize("columns", [120, 80, 50])
def test_no_line_is_wider_than_the_terminal_and_no_value_is_cut(typed_at_a_terminal, write_run, columns):
    write_run(*falling(30), note="word " * 100, learning_rate=0.123456)
    output = typed_at_a_terminal(columns, "show", "out/_trackside")
    assert max(len(line) for line in output.splitlines() if not line.startswith("folder")) <= columns
    assert "learning_rate = 0.123456" in output
    assert "0.9667" in output
    assert "▁" in output


def test_where_curves_cannot_be_spelled_there_are_none(typed_to_a_file, write_run):
    write_run(*falling(4), name="größer → kleiner")
    shown, errors = typed_to_a_file("show", "out", PYTHONIOENCODING="latin-1")
    assert errors == b""
    assert row(shown.decode("latin-1"), "run") == ["run", "größer", "\\u2192", "kleiner"]
    assert row(shown.decode("latin-1"), "loss") == ["loss", "0.25", "0.25", "4"]


def test_a_journal_that_cannot_be_read_is_said_and_the_others_are_shown(typed, write_run):
    write_run(*falling(4))
    broken = write_run((1, {"loss": 1.0}), run_id="c" * 12)
    broken.journal.write_text("hello\n")
    code, output = typed("show", "out")
    assert code == 1
    assert f"Error: {os.path.relpath(broken.journal)} is no journal of a run." in output
    assert row(output, "run") == ["run", "baseline"]


def test_lines_that_are_torn_are_counted(typed, write_run):
    folder = write_run(*falling(4))
    folder.journal.write_bytes(folder.journal.read_bytes().replace(b'"step":2', b'"step:2'))
    code, output = typed("show", "out")
    assert code == 0
    assert "1 torn lines are left out." in output


def test_a_folder_without_runs_is_one_sentence(typed):
    Path("out").mkdir()
    assert typed("show", "out") == (1, "Error: There is no run below out.\n")


@pytest.mark.parametrize(
    ("numbers", "bars"),
    [
        ([], ""),
        ([1.0], ""),
        ([0.0, 1.0], "▁█"),
        ([2.0, 2.0], "▅▅"),
        ([0.001] * 50, "▅▅▅▅"),
        ([0.0, math.nan, 7.0], "▁ █"),
        ([math.nan, math.nan], ""),
        ([-1.7e308, 1.7e308], "▁█"),
        ([0.0, 0.0, 4.0, 4.0, 8.0, 8.0, math.inf, 0.0], "▁▅█▁"),
    ],
)
def test_a_sparkline_is_as_high_as_its_numbers(numbers, bars):
    assert sparkline(numbers, 4) == bars


def test_curves_become_a_picture(typed, write_run):
    write_run(*falling(20))
    code, output = typed("show", "out", "--plot", "curves.png")
    assert code == 0
    assert output.endswith("The curves are in curves.png.\n")
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_curves_of_several_runs_become_a_page_that_needs_no_network(typed, write_run):
    write_run(*falling(20), (21, {"loss": math.nan}), run_id="a" * 12)
    write_run(*falling(20), run_id="b" * 12, name="second")
    assert typed("show", "out", "--plot", "curves.html")[0] == 0
    page = Path("curves.html").read_text("utf-8")
    assert "baseline" in page
    assert "second" in page
    assert "<script src" not in page
    assert '"value": null' in page


def test_a_name_cannot_become_a_part_of_the_page(typed, write_run):
    evil = "</script><script>alert(1)</script>"
    write_run((1, {evil: 1.0}), (2, {evil: 2.0}), name=evil)
    assert typed("show", "out", "--plot", "curves.html")[0] == 0
    assert "<script>alert" not in Path("curves.html").read_text("utf-8")


def test_curves_that_are_longer_than_a_picture_is_wide_keep_their_peaks():
    values = [Value(step, math.sin(step)) for step in range(100_000)]
    values[77_777] = Value(77_777, 50.0)
    values[77_776] = values[77_778] = Value(77_778, math.nan)
    few = list(thinned(values))
    assert len(few) <= MOST_POINTS + 2
    assert values[77_777] in few
    assert few == sorted(few)


@pytest.mark.parametrize(
    ("entries", "words", "code", "said"),
    [
        (falling(4), ["--plot", "curves.bmp"], 2, "curves.bmp is none of .png, .svg, .html."),
        ([(1, {"loss": 1.0})], ["--plot", "curves.png"], 1, "No metric has two values"),
        (falling(4), ["--plot", "nowhere/curves.png"], 1, "nowhere/curves.png: No such file or directory."),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_one_sentence(typed, write_run, entries, words, code, said):
    write_run(*entries)
    done, output = typed("show", "out", *words)
    assert done == code
    assert said in output.splitlines()[-1]


def test_who_lacks_the_library_for_pictures_is_told_what_to_type(typed, write_run, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    write_run(*falling(4))
    code, output = typed("show", "out", "--plot", "curves.png")
    assert code == 1
    assert output.endswith('type: pip install "trackside[plot]"\n')
    assert output.count("\n") == 1
