import io
import pickle
import sys

import pytest
from training import arguments

from trackside import PrinterCallback, ProgressCallback, TrainerControl, TrainerState
from trackside.console import format_logs, say


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def open_terminal(monkeypatch):
    """Replaces standard error when it is called: pytest sets its own between a fixture and its test."""

    def open_terminal():
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        return terminal

    return open_terminal


def run(callback, state, *events):
    for event, kwargs in events:
        getattr(callback, event)(arguments(), state, TrainerControl(), **kwargs)


BEGIN, STEP, END = ("on_train_begin", {}), ("on_step_end", {}), ("on_train_end", {})
LOG = ("on_log", {"logs": {"loss": 0.41324, "total_flos": 1e12}})
PREDICTION = ("on_prediction_step", {"eval_dataloader": [1, 2]})
EVALUATED = ("on_evaluate", {"metrics": {}})


def test_a_log_is_one_line_for_a_person():
    state = TrainerState(global_step=20, max_steps=900)
    assert (
        format_logs({"loss": 0.41324, "epoch": 1.0, "total_flos": 1e12}, state) == "step 20/900  loss 0.4132  epoch 1"
    )


def test_a_log_shows_no_secret():
    logs = {"note": "login hf_SECRET1", "api_key": "plain", "loss of hf_SECRET1": 1.0}
    assert format_logs(logs, TrainerState()) == "step 0  note login ***  api_key ***  loss of *** 1"


def test_the_line_of_an_evaluation_leaves_out_how_fast_it_was():
    logs = {"eval_loss": 0.5, "eval_runtime": 1.0, "eval_a_samples_per_second": 2.0, "eval_tokens_per_second": 3.0}
    state = TrainerState(global_step=20, max_steps=900)
    assert format_logs(logs, state) == "step 20/900  eval_loss 0.5  eval_tokens_per_second 3"
    logs = {"train_runtime": 1.0, "train_steps_per_second": 2.0, "train_loss": 3.0, "runtime": 4.0}
    assert format_logs(logs, state) == "step 20/900  train_runtime 1  train_loss 3  runtime 4"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (31174.2, "31,174"),
        (9999.7, "10,000"),
        (-123456789.0, "-123,456,789"),
        (2.5e12, "2.5e+12"),
        (2e-5, "2e-05"),
        (float("inf"), "inf"),
        ("1e+5", "1e+5"),
    ],
)
def test_a_number_is_readable(value, shown):
    assert format_logs({"x": value}, TrainerState()) == f"step 0  x {shown}"


def test_the_printer_prints_on_the_first_rank_and_leaves_the_logs_as_they_are(capsys):
    logs = {"loss": 0.5, "total_flos": 1.0}
    for is_first in (True, False):
        state = TrainerState(global_step=1, max_steps=2, is_local_process_zero=is_first)
        run(PrinterCallback(), state, ("on_log", {"logs": logs}))
    assert capsys.readouterr().out == "step 1/2  loss 0.5\n"
    assert logs == {"loss": 0.5, "total_flos": 1.0}


def test_there_are_plain_lines_and_no_bar_where_the_output_is_no_terminal(capsys):
    run(ProgressCallback(), TrainerState(global_step=3, max_steps=9), BEGIN, STEP, LOG, PREDICTION, EVALUATED, END)
    out, err = capsys.readouterr()
    assert out == "step 3/9  loss 0.4132\n"
    assert err == ""


def test_bars_and_lines_have_a_switch_each(open_terminal, capsys):
    terminal = open_terminal()
    run(ProgressCallback(bars=False, lines=False), TrainerState(max_steps=9), BEGIN, STEP, LOG, PREDICTION, END)
    assert terminal.getvalue() == capsys.readouterr().out == ""


def test_the_bar_starts_at_the_resumed_step(open_terminal):
    terminal = open_terminal()
    callback, state = ProgressCallback(), TrainerState(global_step=50, max_steps=100)
    run(callback, state, BEGIN)
    assert (callback.training_bar.n, callback.training_bar.initial, callback.training_bar.total) == (50, 50, 100)
    state.global_step = 52
    run(callback, state, STEP)
    assert callback.training_bar.n == 52
    run(callback, state, END)
    assert "52/100" in terminal.getvalue()


@pytest.mark.parametrize("max_steps", [0, 2**63 - 1])
def test_the_bar_has_no_total_where_none_is_known(open_terminal, max_steps):
    open_terminal()
    callback, state = ProgressCallback(), TrainerState(max_steps=max_steps)
    run(callback, state, BEGIN)
    assert callback.training_bar.total is None
    run(callback, state, END)


def test_an_evaluation_without_a_training_has_a_bar_of_its_own(open_terminal):
    open_terminal()
    callback, state = ProgressCallback(), TrainerState()
    run(callback, state, PREDICTION)
    assert callback.prediction_bar.total == 2
    run(callback, state, PREDICTION, EVALUATED)
    assert callback.prediction_bar is None
    run(callback, state, ("on_prediction_step", {"eval_dataloader": iter([1])}))
    assert callback.prediction_bar.total is None
    run(callback, state, ("on_predict", {"metrics": {}}), EVALUATED, END)


def test_other_ranks_show_nothing(open_terminal, capsys):
    terminal = open_terminal()
    state = TrainerState(max_steps=9, is_world_process_zero=False)
    run(ProgressCallback(), state, BEGIN, STEP, LOG, PREDICTION, EVALUATED, END)
    assert terminal.getvalue() == capsys.readouterr().out == ""


def test_an_exception_closes_the_bars(open_terminal):
    open_terminal()
    callback = ProgressCallback()
    run(callback, TrainerState(max_steps=9), BEGIN, PREDICTION, ("on_exception", {"exception": ValueError()}))
    assert callback.training_bar is callback.prediction_bar is None


class OnlyWrites:
    """What a script puts in the place of a stream to keep what is printed."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text


def closed_file():
    file = io.StringIO()
    file.close()
    return file


class Unplugged(io.StringIO):
    """A pipe whose reader is gone."""

    def write(self, text):
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [lambda: None, closed_file, Unplugged, OnlyWrites])
@pytest.mark.parametrize("name", ["stdout", "stderr"])
@pytest.mark.parametrize("callback", [ProgressCallback, PrinterCallback])
def test_a_stream_that_is_gone_ends_no_training(callback, name, stream, monkeypatch):
    monkeypatch.setattr(sys, name, stream())
    run(callback(), TrainerState(max_steps=2), BEGIN, STEP, LOG, PREDICTION, EVALUATED, END)
    say("Reporting to nobody")


def test_a_stream_that_can_only_write_gets_the_lines(monkeypatch):
    monkeypatch.setattr(sys, "stdout", OnlyWrites())
    run(ProgressCallback(), TrainerState(max_steps=9), BEGIN, LOG)
    assert sys.stdout.text == "step 0/9  loss 0.4132\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_what_the_output_cannot_spell_is_escaped(terminal, open_terminal, monkeypatch):
    if terminal:
        open_terminal()
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    run(ProgressCallback(), TrainerState(max_steps=9), BEGIN, ("on_log", {"logs": {"größe": 1.0}}), END)
    assert b"step 0/9  gr\\xf6\\xdfe 1\n" in written.getvalue()


def test_a_long_text_is_cut_visibly():
    assert "x" * 100 + "... (150 characters)" in format_logs({"note": "x" * 150}, TrainerState())


def test_what_is_said_stands_on_a_line_of_its_own_beside_a_bar(open_terminal):
    terminal = open_terminal()
    callback, state = ProgressCallback(), TrainerState(max_steps=9)
    run(callback, state, BEGIN)
    say("Stopped")
    run(callback, state, END)
    assert "\rStopped\n" in terminal.getvalue()


def test_without_tqdm_there_are_lines(open_terminal, capsys, monkeypatch):
    open_terminal()
    monkeypatch.setitem(sys.modules, "tqdm", None)
    run(ProgressCallback(), TrainerState(global_step=1, max_steps=9), BEGIN, STEP, LOG, END)
    assert capsys.readouterr().out == "step 1/9  loss 0.4132\n"


def test_a_callback_with_open_bars_can_be_pickled(open_terminal):
    open_terminal()
    callback = ProgressCallback()
    run(callback, TrainerState(max_steps=9), BEGIN, PREDICTION)
    assert pickle.loads(pickle.dumps(callback)).training_bar is None
    run(callback, TrainerState(), END)
