"""Every recorded trace of `transformers.Trainer` replays in ours, but for what docs/differences.md lists."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import cases
import pytest

import trackside
import trackside_torch

HERE = Path(__file__).parent
RECORDED = {file.stem: file for file in sorted(HERE.glob("*.json"))}
# Where ours goes another way from some event on, the whole trace that is right is written down.
REWRITTEN = {file.stem: file for file in sorted(HERE.glob("ours/*.json"))}
TABLE = HERE.parents[3] / "docs/differences.md"

OURS = SimpleNamespace(
    Trainer=trackside_torch.Trainer,
    TrainingArguments=trackside_torch.TrainingArguments,
    TrainerCallback=trackside.TrainerCallback,
    EarlyStoppingCallback=trackside.EarlyStoppingCallback,
    DefaultFlowCallback=trackside.DefaultFlowCallback,
)


def without_preparation_time(value):
    """No metric says how long a model took to be prepared."""
    if isinstance(value, dict):
        return {key: without_preparation_time(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_preparation_time(item) for item in value if not str(item).endswith("_model_preparation_time")]
    return value


def with_one_state_for_each_early_stopping(trace):
    """A checkpoint holds the states of its own time, and none of those saved before."""
    for checkpoint in trace["checkpoints"]:
        states = checkpoint["stateful_callbacks"]
        states["EarlyStoppingCallback"] = states["EarlyStoppingCallback"][-2:]
    return trace


def with_total_flos_returned(trace):
    """The printer takes nothing away from the metrics that `train()` returns."""
    metrics = trace["calls"][1]["result"]["metrics"]
    metrics.append("total_flos")
    metrics.sort()
    return trace


def without_results_of_nothing(trace):
    """A finished training that is resumed does not log results of the training that there was not."""

    def is_kept(key):
        return not key.startswith("train_")

    logged = trace["events"][-2]
    assert logged["event"] == "on_log"
    logged["logs"] = list(filter(is_kept, logged["logs"]))
    del logged["loss_finite"]
    trace["log_history"][-1][2] = list(filter(is_kept, trace["log_history"][-1][2]))
    return trace


PATCHED = {
    "calls-evaluate-after-best": without_preparation_time,
    "calls-evaluate-named": without_preparation_time,
    "calls-evaluate-prefix": without_preparation_time,
    "calls-predict-around": without_preparation_time,
    "calls-predict-prefix": without_preparation_time,
    "calls-predict-unlabelled": without_preparation_time,
    "early-two": with_one_state_for_each_early_stopping,
    "resume-finished": without_results_of_nothing,
    "schedule-printer": with_total_flos_returned,
}


def recorded(name):
    return json.loads(RECORDED[name].read_text())


def expected(name):
    if name in REWRITTEN:
        return json.loads(REWRITTEN[name].read_text())
    return PATCHED.get(name, lambda trace: trace)(recorded(name))


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_training_replays_with_the_same_trace(name, tmp_path):
    want = expected(name)
    assert "\n".join(cases.differences(want, cases.play(want["case"], OURS, str(tmp_path)))) == ""


def test_all_recorded_cases_are_here():
    assert len(RECORDED) == 155


@pytest.mark.parametrize("name", [*REWRITTEN, *PATCHED])
def test_what_is_expected_to_differ_plays_the_recorded_case_and_does_differ(name):
    assert expected(name)["case"] == recorded(name)["case"]
    assert cases.differences(recorded(name), expected(name)) != []


def test_the_table_of_differences_names_exactly_the_cases_that_differ():
    rows = [row.split("|") for row in TABLE.read_text().splitlines() if row.startswith("|")]
    shown = {name for row in rows for name in re.findall(r"`([a-z0-9.-]+)`", row[-2]) if name in RECORDED}
    assert shown == {*REWRITTEN, *PATCHED}
