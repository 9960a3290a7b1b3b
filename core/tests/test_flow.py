import math
from types import SimpleNamespace

import pytest
from training import arguments

from trackside import DefaultFlowCallback, EarlyStoppingCallback, TrainerControl, TrainerState
from trackside.flow import improves


def flags_at(step, state=None, event="on_step_end", **args):
    state = state or TrainerState(max_steps=25)
    state.global_step = step
    control = TrainerControl()
    getattr(DefaultFlowCallback(), event)(arguments(**args), state, control)
    return {name.removeprefix("should_") for name, value in vars(control).items() if value}


def test_each_step_strategy_acts_at_its_interval():
    state = TrainerState(max_steps=100, logging_steps=5, eval_steps=10, save_steps=20)
    strategies = {"eval_strategy": "steps", "save_strategy": "steps"}
    assert flags_at(4, state, **strategies) == set()
    assert flags_at(5, state, **strategies) == {"log"}
    assert flags_at(10, state, **strategies) == {"log", "evaluate"}
    assert flags_at(20, state, **strategies) == {"log", "evaluate", "save"}


@pytest.mark.parametrize(("max_steps", "expected"), [(25, [10, 20, 25]), (20, [10, 20])])
def test_the_last_step_is_evaluated_once_whatever_the_interval(max_steps, expected):
    state = TrainerState(max_steps=max_steps, eval_steps=10)
    steps = range(1, max_steps + 1)
    assert [step for step in steps if "evaluate" in flags_at(step, state, eval_strategy="steps")] == expected


def test_the_last_step_is_saved_and_ends_the_training():
    state = TrainerState(max_steps=25, save_steps=0)
    assert flags_at(24, state, save_strategy="steps") == set()
    assert flags_at(25, state, save_strategy="steps") == {"save", "training_stop"}


def test_the_first_step_is_logged_on_request_only():
    assert flags_at(1) == set()
    assert flags_at(1, logging_first_step=True, logging_strategy="no") == {"log"}


def test_nothing_is_evaluated_before_the_delay():
    state = TrainerState(max_steps=100, eval_steps=10)
    assert flags_at(10, state, eval_strategy="steps", eval_delay=15) == set()
    assert flags_at(20, state, eval_strategy="steps", eval_delay=15) == {"evaluate"}
    state.epoch = 1.0
    assert flags_at(30, state, "on_epoch_end", eval_strategy="epoch", eval_delay=2) == set()


def test_epoch_strategies_act_at_the_end_of_an_epoch_only():
    strategies = {"logging_strategy": "epoch", "eval_strategy": "epoch", "save_strategy": "epoch"}
    assert flags_at(10, **strategies) == set()
    assert flags_at(10, None, "on_epoch_end", **strategies) == {"log", "evaluate", "save"}


@pytest.mark.parametrize(
    ("value", "best", "greater", "expected"),
    [
        (0.5, None, True, True),
        (math.nan, None, True, False),
        (math.nan, 0.5, True, False),
        (0.6, 0.5, True, True),
        (0.4, 0.5, True, False),
        (0.4, 0.5, False, True),
        (0.5, 0.5, False, False),
        (-math.inf, None, True, True),
    ],
)
def test_nan_is_never_better(value, best, greater, expected):
    assert improves(value, best, greater) is expected


class Training:
    """Evaluations one after the other, with the best kept as a loop keeps it: after the callbacks were told."""

    def __init__(self, stopping, keeps_best=True, **args):
        self.stopping, self.control, self.state = stopping, TrainerControl(), TrainerState()
        self.keeps_best = keeps_best
        defaults = {"metric_for_best_model": "f1", "greater_is_better": True, "eval_strategy": "steps"}
        self.args = arguments(**{**defaults, **args})

    def stops_after(self, *values):
        self.stopping.on_train_begin(self.args, self.state, self.control)
        for count, value in enumerate(values, start=1):
            self.stopping.on_evaluate(self.args, self.state, self.control, metrics={"eval_f1": value})
            if self.control.should_training_stop:
                return count
            if self.keeps_best and improves(value, self.state.best_metric, self.args.greater_is_better):
                self.state.best_metric = value
        return None


def test_it_stops_when_patience_is_at_its_end():
    assert Training(EarlyStoppingCallback(2)).stops_after(0.5, 0.4, 0.6, 0.5, 0.5) == 5


def test_a_gain_within_the_threshold_is_no_improvement():
    assert Training(EarlyStoppingCallback(2, 0.1)).stops_after(0.5, 0.55, 0.62) == 3


def test_a_nan_in_front_is_no_best_value():
    assert Training(EarlyStoppingCallback(2)).stops_after(math.nan, 0.5, 0.6, 0.7) is None
    assert Training(EarlyStoppingCallback(2)).stops_after(math.nan, math.nan) == 2


def test_it_stops_at_a_nan_on_request():
    assert Training(EarlyStoppingCallback(9, stop_on_nan=True)).stops_after(0.5, math.nan) == 2


def test_it_stops_also_in_a_loop_that_keeps_no_best_metric():
    training = Training(EarlyStoppingCallback(2), keeps_best=False)
    assert training.stops_after(math.nan, 0.5, 0.4, 0.6, 0.5, 0.5) == 6


def test_each_training_has_a_best_metric_of_its_own():
    training = Training(EarlyStoppingCallback(1), keeps_best=False)
    assert training.stops_after(0.5, 0.4) == 2
    training.control.should_training_stop = False
    assert training.stops_after(0.3, 0.4) is None


@pytest.mark.parametrize(
    ("stopping", "values", "said"),
    [
        (EarlyStoppingCallback(1), (0.5, 0.4), "eval_f1 has not improved for 1 evaluation (best 0.5)."),
        (EarlyStoppingCallback(2), (0.5, 0.4, 0.4), "eval_f1 has not improved for 2 evaluations (best 0.5)."),
        (EarlyStoppingCallback(2), (math.nan, math.nan), "eval_f1 has not improved for 2 evaluations."),
        (
            EarlyStoppingCallback(1, 0.1),
            (0.5, 0.55),
            "eval_f1 has not improved by more than 0.1 for 1 evaluation (best 0.55).",
        ),
        (EarlyStoppingCallback(2, stop_on_nan=True), (math.nan,), "eval_f1 is nan."),
    ],
)
def test_it_says_why_it_stops(stopping, values, said, capsys):
    training = Training(stopping)
    training.state.max_steps = 100
    assert training.stops_after(*values) == len(values)
    assert capsys.readouterr().err == f"Stopped at step 0: {said}\n"


@pytest.mark.parametrize("state", [{"is_world_process_zero": False}, {"global_step": 9, "max_steps": 9}])
def test_it_says_nothing_on_other_ranks_and_at_the_last_step(state, capsys):
    training = Training(EarlyStoppingCallback(1))
    training.stops_after(0.5)
    vars(training.state).update(state)
    training.stopping.on_evaluate(training.args, training.state, training.control, metrics={"eval_f1": 0.4})
    assert training.control.should_training_stop
    assert capsys.readouterr().err == ""


def test_a_training_that_it_has_ended_says_how_to_go_on(capsys):
    training = Training(EarlyStoppingCallback(1))
    training.stopping.early_stopping_patience_counter = 1
    vars(training.state).update(global_step=9, best_metric=0.5, best_global_step=6)
    training.stops_after()
    assert capsys.readouterr().err == (
        "Nothing is left to train: eval_f1 has not improved for 1 evaluation (best 0.5 at step 6); raise "
        "early_stopping_patience to go on.\n"
    )


def test_its_count_goes_on_after_a_resume():
    training = Training(EarlyStoppingCallback(3))
    assert training.stops_after(0.5, 0.4, 0.4) is None
    resumed = Training(EarlyStoppingCallback.from_state(training.stopping.state()))
    resumed.state.best_metric = 0.5
    assert resumed.stops_after(0.4) == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [({"metric_for_best_model": None}, 'metric_for_best_model="loss"'), ({"eval_strategy": "no"}, "eval_strategy")],
)
def test_it_cannot_watch_what_is_never_measured(args, said):
    with pytest.raises(ValueError, match=said):
        Training(EarlyStoppingCallback(), **args).stops_after()


def test_a_metric_that_is_absent_is_named_once_beside_those_that_are_there(caplog):
    training = Training(EarlyStoppingCallback(), load_best_model_at_end=True)
    for _ in range(2):
        training.stopping.on_evaluate(training.args, training.state, training.control, metrics={"eval_a_f1": 0.5})
    assert len(caplog.records) == 1
    assert "eval_a_f1" in caplog.text


def test_an_evaluation_by_hand_without_a_watched_metric_is_no_error():
    args = SimpleNamespace(metric_for_best_model=None, greater_is_better=None)
    control = TrainerControl()
    EarlyStoppingCallback().on_evaluate(args, TrainerState(), control, metrics={"eval_loss": 1.0})
    assert not control.should_training_stop
