"""What fails at a tracker: the same whether it was named or one of all, and whether a thread or a process delivers.

What fails before a training begins is tested where it is found out, in `core/tests/test_registry.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filing import FilingReporter, filed, filed_losses

from trackside import StartError, TrainerCallback
from trackside_spool.replay import debts
from trackside_testkit import FakeLoop

STEPS = 60
AWAY, REFUSED = Path("away"), Path("refused")

Said = Callable[[], str]


class Acting(TrainerCallback):
    """Does something at the end of some steps, each of which takes a moment."""

    def __init__(self, actions: dict[int, Callable[[], object]]) -> None:
        self.actions = actions

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.actions.get(state.global_step, lambda: None)()
        time.sleep(0.01)


@pytest.fixture(params=["thread", "process"])
def said(request: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: Any) -> Said:
    """What this process and that of the couriers have said."""
    monkeypatch.setenv("TRACKSIDE_DELIVERY", request.param)
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0.5")
    return lambda: caplog.text + capfd.readouterr().err


@pytest.fixture(params=[True, False], ids=["named", "all"])
def reporter(request: Any) -> FilingReporter:
    """A reporter that the user has named, or that is one of all."""
    reporter = FilingReporter()
    reporter.required = request.param
    return reporter


def train(*reporters: FilingReporter, **actions: Callable[[], object]) -> None:
    at = {int(step.removeprefix("at_")): action for step, action in actions.items()}
    options = {"output_dir": "out", "eval_strategy": "no", "save_strategy": "no", "max_steps": STEPS}
    FakeLoop([*reporters, Acting(at)], num_train_epochs=STEPS, **options).train()


def is_settled() -> bool:
    return all(debt.is_settled for debt in debts(Path("out")))


def test_a_tracker_that_cannot_be_reached_at_the_start_is_tried_again_until_it_can(
    reporter: FilingReporter, said: Said
) -> None:
    AWAY.touch()
    train(reporter, at_20=AWAY.unlink)
    assert said().count("(ConnectionRefusedError: nobody there)") == 1
    assert [step for step, _ in filed_losses()] == list(range(1, STEPS + 1))
    assert filed("finish") == ["finished"]
    assert is_settled()


def test_a_tracker_that_goes_away_in_mid_training_is_warned_of_once_and_gets_everything(
    reporter: FilingReporter, said: Said
) -> None:
    train(reporter, at_10=AWAY.touch, at_40=AWAY.unlink)
    assert said().count("(ConnectionRefusedError: nobody there)") == 1
    assert [step for step, _ in filed_losses()] == list(range(1, STEPS + 1))
    assert is_settled()


def test_calls_that_a_tracker_refuses_are_one_warning_and_counted_and_training_goes_on(
    reporter: FilingReporter, said: Said
) -> None:
    train(reporter, at_10=lambda: REFUSED.write_text("log_points"))
    words = said()
    assert words.count("log_points failed (ValueError: not allowed)") == 1
    assert "calls that failed: log_points (" in words
    steps = [step for step, _ in filed_losses()]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) < STEPS
    assert filed("finish") == ["finished"]
    assert not is_settled()


def test_a_tracker_that_refuses_to_start_stops_the_program_if_it_was_named_and_else_is_left_out(
    reporter: FilingReporter, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "60")  # a process may take its time on a busy machine
    REFUSED.write_text("start")
    if reporter.required:
        with pytest.raises(StartError, match=r"filing cannot start .*not allowed.*leave 'filing' out of report_to"):
            train(reporter)
    else:
        train(reporter)
        assert said().count("filing cannot start (") == 1
    assert filed("start") == []


def test_the_end_has_a_line_for_each_tracker_that_is_owed_something(
    reporter: FilingReporter, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKSIDE_DRAIN_SECONDS", "0.5")
    other = FilingReporter(slow="finish")
    other.required = reporter.required
    train(reporter, other, at_10=AWAY.touch)
    words = said()
    for name in ("filing", "filing-2"):
        (line,) = (line for line in words.splitlines() if f"{name} is owed " in line)
        assert "deliver that with: trackside replay /" in line
    AWAY.unlink()
    deadline = time.monotonic() + 60
    while not is_settled() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert is_settled()
