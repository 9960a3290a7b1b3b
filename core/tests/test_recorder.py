"""One sequence of records for all reporters of a run."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from training import Loop, Notebook, kinds

from trackside import TrainerState


def test_reporters_share_the_records_of_a_run():
    reporters = [Notebook(), Notebook(), Notebook()]
    loop = Loop(*reporters)
    loop.begin()
    loop.log({"loss": 1.0}, step=1)
    times = {reporter.told("log_points")[0][0].time for reporter in reporters}
    assert len(times) == 1
    assert len({run.id for reporter in reporters for run in reporter.told("start")}) == 1


def test_one_that_joins_late_is_removed_or_misses_an_event_shifts_nothing():
    first, second, late = Notebook(), Notebook(), Notebook()
    loop = Loop(first, second)
    loop.begin()
    loop.log({"a": 1})
    loop.reporters = [first]
    loop.log({"b": 2})
    loop.reporters = [late, second, first]
    loop.log({"c": 3})
    loop.log({"d": 4})
    keys = [[key for _, values in reporter.points for key in values] for reporter in (first, second, late)]
    assert keys == [
        ["train/a", "train/b", "train/c", "train/d"],
        ["train/a", "train/c", "train/d"],
        ["train/c", "train/d"],
    ]
    counted = {point.time for reporter in (first, second, late) for (point,) in reporter.told("log_points")}
    assert len(counted) == 4


def test_the_same_dict_logged_again_is_a_record_again():
    reporters = [Notebook(), Notebook()]
    loop, logs = Loop(*reporters), {"loss": 1.0}
    loop.begin()
    for step in (1, 1, 2):
        logs["loss"] += 1
        loop.log(logs, step)
    for reporter in reporters:
        assert reporter.points == [(1, {"train/loss": 2.0}), (1, {"train/loss": 3.0}), (2, {"train/loss": 4.0})]


def test_a_log_within_a_log_reaches_all_in_their_order():
    class Nesting:
        def on_log(self, args, state, control, logs=None, **kwargs):
            if "inner" not in logs:
                loop.log({"inner": 1})

        def on_train_begin(self, *args, **kwargs):
            pass

    first, second = Notebook(), Notebook()
    loop = Loop(first, Nesting(), second)
    loop.begin()
    loop.log({"outer": 1}, step=1)
    assert [list(values) for _, values in first.points] == [["train/outer"], ["train/inner"]]
    assert [list(values) for _, values in second.points] == [["train/inner"], ["train/outer"]]


def test_a_reporter_of_two_trainings_at_once_keeps_them_apart():
    reporter = Notebook()
    one, two = Loop(reporter, run_name="one"), Loop(reporter, run_name="two")
    one.begin()
    two.begin()
    for step in (1, 2):
        one.log({"one": 1.0}, step=step)
        two.log({"two": 2.0}, step=step)
    one.end()
    two.end()
    told, name = [], None
    for operation, content in reporter.calls:
        if operation == "start":
            name = content.name
        if operation == "log_points":
            told += [(name, point.step, dict(point.values)) for point in content]
    assert told == [
        (name, step, {f"train/{name}": value}) for step in (1, 2) for name, value in (("one", 1), ("two", 2))
    ]
    assert len({run.id for run in reporter.told("start")}) == 2


def test_logs_of_several_threads_reach_all_reporters():
    reporters = [Notebook(), Notebook()]
    loop = Loop(*reporters)
    loop.begin()

    def log(name):
        for number in range(300):
            loop.log({name: number})

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(log, "abcd"))
    finally:
        sys.setswitchinterval(interval)
    for reporter in reporters:
        for name in "abcd":
            told = [values[f"train/{name}"] for _, values in reporter.points if f"train/{name}" in values]
            assert told == list(range(300))


class Meter(Notebook):
    """Measures, and has done so once it is asked."""

    name = "meter"
    live = True

    def measured(self):
        self.note("measured", None)
        return {"energy_kwh": 0.25}


class Summarizing(Notebook):
    name = "summarizing"

    def log_summary(self, values):
        self.note("log_summary", dict(values))


@pytest.mark.parametrize("exception", [None, RuntimeError("out of memory")])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_what_a_live_reporter_has_measured_is_a_value_of_the_whole_run_for_all(order, exception):
    meter, plain, summarizing = reporters = Meter(), Notebook(), Summarizing()
    loop = Loop(*(reporters[number] for number in order))
    loop.begin()
    loop.log({"loss": 1.0}, step=4)
    loop.end(exception)
    assert meter.told("measured") == [None]
    assert plain.points == [(4, {"train/loss": 1.0}), (4, {"train/energy_kwh": 0.25})]
    assert summarizing.points == [(4, {"train/loss": 1.0})]
    assert summarizing.told("log_summary") == [{"train/energy_kwh": 0.25}]


def test_a_run_ends_as_it_would_where_nothing_could_be_measured(caplog):
    meter, plain = Meter(failing=("measured",)), Notebook()
    loop = Loop(meter, plain)
    loop.begin()
    loop.end()
    assert plain.points == []
    assert (meter.told("finish"), plain.told("finish")) == (["finished"], ["finished"])
    assert sum("measured failed" in message for message in caplog.messages) == 1


def test_only_what_measures_the_training_that_ends_is_asked():
    replayable, meter = Meter(), Meter()
    replayable.live = False
    loop = Loop(replayable, meter)
    loop.begin()
    loop.reporters = [replayable]
    meter.close()
    loop.end()
    assert (replayable.told("measured"), meter.told("measured")) == ([], [])


def test_runs_of_equal_states_are_not_the_same_run():
    first, second = Notebook(), Notebook()
    Loop(first).begin(TrainerState())
    Loop(second).begin(TrainerState())
    assert first.told("start")[0].id != second.told("start")[0].id


@pytest.mark.parametrize("text", ["", "  ", "thread", "Process", "proces"])
def test_the_way_of_delivery_is_understood_or_named(text, monkeypatch, caplog):
    monkeypatch.setenv("TRACKSIDE_DELIVERY", text)
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    loop.end()
    assert kinds(reporter)[0] == "start"
    expected = ["TRACKSIDE_DELIVERY=proces is none of inline, thread, process; threads deliver."]
    assert caplog.messages == (expected if text == "proces" else [])
