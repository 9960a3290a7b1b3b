"""How a run is closed in loops that have no event for their end by an error: they are foreign, so nobody tells."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest
from training import Loop, Notebook

import trackside
from trackside.reporter import close_unfinished

PROGRAM = """
import os, signal, sys, time
sys.path.insert(0, {here!r})
import trackside
from training import Loop, Notebook

class Printing(Notebook):
    reopenable = False
    def note(self, operation, content):
        if operation in ("finish", "log_text"):
            print(operation, content if operation == "finish" else content[1], flush=True)

loop = Loop(Printing())
{body}
"""


def program(body):
    """What the reporter of a program is told at its end, what the program says itself, and its exit code."""
    source = PROGRAM.format(here=os.path.dirname(__file__), body=textwrap.dedent(body))
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.split("\n")[:-1], done.stderr, done.returncode


@pytest.mark.parametrize(
    ("ending", "told", "code"),
    [
        ("raise ValueError('in a step')", ["log_text ValueError: in a step", "finish failed"], 1),
        ("raise KeyboardInterrupt", ["log_text KeyboardInterrupt: ", "finish killed"], -signal.SIGINT),
        ("sys.exit(3)", ["finish failed"], 3),
        ("os.kill(os.getpid(), signal.SIGTERM)", ["log_text SystemExit: 143", "finish killed"], -signal.SIGTERM),
        ("os._exit(9)", [], 9),
        ("loop.end(); raise ValueError('afterwards')", ["finish finished"], 1),
    ],
)
def test_a_training_that_was_left_is_closed_by_what_ends_the_program(ending, told, code):
    told_in_fact, said, code_in_fact = program(f"loop.begin()\n{ending}")
    assert told_in_fact == told
    assert code_in_fact == code
    if "ValueError" in ending:
        assert said.endswith(("ValueError: in a step\n", "ValueError: afterwards\n"))


def test_a_hook_and_a_handler_of_the_users_stay_in_use():
    told, _, code = program(
        """
        sys.excepthook = lambda *error: print("my hook")
        signal.signal(signal.SIGTERM, lambda *_: print("my handler"))
        loop.begin()
        os.kill(os.getpid(), signal.SIGTERM)
        raise ValueError
        """
    )
    assert told == ["my handler", "log_text ValueError: ", "finish failed", "my hook"]
    assert code == 1


SDK_WITH_HOOKS = """
import atexit
from trackside.watch import aside

class Meddling(Printing):
    def start(self, run):
        with aside():
            if sys.excepthook is not hook:
                self.before, sys.excepthook = sys.excepthook, hook
                atexit.register(print, "the SDK is gone", flush=True)
        return super().start(run)

    def is_duplicate_of(self, other):
        return False

def hook(*error):
    print("the SDK is told")
    reporter.before(*error)

reporter = Meddling()
loop = Loop(reporter)
loop.begin()
"""


def test_hooks_that_an_sdk_puts_when_it_starts_come_after_ours():
    told, said, code = program(SDK_WITH_HOOKS + "raise ValueError('in a step')")
    assert told == [
        "log_text ValueError: in a step",
        "finish failed",
        "the SDK is told",
        "the SDK is gone",
    ]
    assert said.count("ValueError: in a step") == 1
    assert code == 1


def test_an_error_is_printed_also_where_somebody_has_put_a_hook_over_ours_that_calls_it():
    told, said, code = program(
        """
        loop.begin()
        before = sys.excepthook
        sys.excepthook = lambda *error: before(*error)
        loop.end()
        loop.begin()
        raise ValueError("in a step")
        """
    )
    assert told[-2:] == ["log_text ValueError: in a step", "finish failed"]
    assert said.count("ValueError: in a step") == 1
    assert code == 1


def test_a_run_that_is_open_at_the_exit_is_closed_before_an_sdk_is_gone():
    told, _, code = program(SDK_WITH_HOOKS + "loop.end()")
    assert (told, code) == (["finish finished", "the SDK is gone"], 0)


class TrialPruned(Exception):
    pass


def left_by(exception, loop, *, at_the_end=False):
    """A training that is watched, and left by an exception; the exception that comes out."""
    try:
        with trackside.watch():
            loop.begin()
            loop.log({"loss": 1.0}, step=3)
            if at_the_end:
                loop.end()
            raise exception
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    ("exception", "status"),
    [(ValueError("x"), "failed"), (KeyboardInterrupt(), "killed"), (TrialPruned("bad trial"), "pruned")],
)
def test_watch_tells_at_once_and_lets_the_exception_go_on(exception, status):
    reporters = [Notebook(), Notebook()]
    assert left_by(exception, Loop(*reporters)) is exception
    for reporter in reporters:
        assert reporter.told("finish") == [status]
        ((key, text, step),) = reporter.told("log_text")
        assert (key, step) == ("train/exception", 3)
        assert text.startswith(type(exception).__name__)


def test_watch_closes_nothing_of_a_training_that_came_to_its_end():
    reporter = Notebook()
    left_by(ValueError("afterwards"), Loop(reporter), at_the_end=True)
    assert reporter.told("finish") == ["finished"]


def test_a_training_in_a_thread_leaves_the_signals_alone():
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=lambda: Loop(Notebook()).begin())
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_reason_shows_no_secret():
    reporter = Notebook()
    left_by(RuntimeError("refused: hf_AbCdEfGhIj0123456789"), Loop(reporter))
    assert reporter.told("log_text")[0][1] == "RuntimeError: refused: ***"


def test_a_run_whose_loop_is_gone_is_closed_all_the_same():
    reporter = Notebook()
    Loop(reporter).begin()
    close_unfinished(ValueError())
    assert reporter.told("finish") == ["failed"]
