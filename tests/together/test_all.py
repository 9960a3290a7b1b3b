"""All trackers in one training, without a network: what was evaluated last stands in the files of each of them."""

from __future__ import annotations

import csv
import json
import os
import runpy
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import trackside

ROOT = Path(__file__).parents[2]
OFFLINE = {
    "WANDB_MODE": "offline",
    "COMET_START_ONLINE": "0",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "SWANLAB_MODE": "offline",
    "CODECARBON_COUNTRY_ISO_CODE": "FRA",
}

Points = dict[str, list[tuple[int, float]]]


def in_tensorboard(output: Path) -> Points:
    (directory,) = (output / "runs").iterdir()
    events = EventAccumulator(str(directory), {"scalars": 0}).Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def in_wandb(output: Path) -> Points:
    from wandb.proto.wandb_internal_pb2 import Record

    from trackside_wandb.logbook import frames

    (file,) = output.glob("wandb/offline-run-*/run-*.wandb")
    records = map(Record.FromString, frames(file.read_bytes()))
    rows = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    return by_key((key, row["train/global_step"], value) for row in rows for key, value in row.items())


def in_mlflow(output: Path) -> Points:
    """Under the loop's own names, which MLflow's dashboards know."""
    with sqlite3.connect(output.parent / "mlflow.db") as database:
        rows = database.execute("select key, step, value from metrics order by step").fetchall()
    return by_key((key.replace("eval_", "eval/"), step, value) for key, step, value in rows)


def in_comet_ml(output: Path) -> Points:
    metrics = []
    for archive in sorted(output.glob("comet/*.zip"), key=lambda path: path.stat().st_mtime):
        lines = zipfile.ZipFile(archive).read("messages.json").decode("utf-8").splitlines()
        metrics += [entry["payload"]["metric"] for entry in map(json.loads, lines) if entry["type"] == "metric_msg"]
    return by_key((entry["metricName"], entry["step"], float(entry["metricValue"])) for entry in metrics)


def in_neptune(output: Path) -> Points:
    """A log holds one JSON object after another. What is logged at a step again stands a little behind it."""
    (log,) = output.glob("_neptune/.neptune/offline/*/data-1.log")
    decoder, text, entries = json.JSONDecoder(), log.read_text("utf-8").strip(), []
    while text:
        entry, end = decoder.raw_decode(text)
        entries.append(entry["obj"])
        text = text[end:].lstrip()
    series = [entry for entry in entries if entry["type"] == "LogFloats" and entry["path"][0] == "finetuning"]
    return by_key(("/".join(one["path"][1:]), row["step"], row["value"]) for one in series for row in one["values"])


def in_clearml(output: Path) -> Points:
    (file,) = output.glob("_clearml/offline/*/metrics.jsonl")
    events = [event for line in file.read_text("utf-8").splitlines() for event in json.loads(line)]
    scalars = [event for event in events if event["type"] == "training_stats_scalar"]
    return by_key((f"{event['metric']}/{event['variant']}", event["iter"], event["value"]) for event in scalars)


def in_trackio(output: Path) -> Points:
    """In the database of the project, below the home of the user."""
    (file,) = output.parent.glob("home/.cache/huggingface/trackio/*.db")
    with sqlite3.connect(file) as database:
        rows = database.execute("select step, metrics from metrics order by id").fetchall()
    return by_key((key, step, value) for step, metrics in rows for key, value in json.loads(metrics).items())


def in_swanlab(output: Path) -> Points:
    """By the reader of its integration's tests."""
    runs_below = runpy.run_path(str(ROOT / "integrations/swanlab/tests/offline.py"))["runs_below"]
    (run,) = runs_below(output)
    return by_key(run.points)


def in_dvclive(output: Path) -> Points:
    (folder,) = output.glob("dvclive/*/plots/metrics")
    rows = [
        (path.relative_to(folder).with_suffix("").as_posix(), int(row["step"]), float(row[path.stem]))
        for path in folder.rglob("*.tsv")
        for row in csv.DictReader(path.read_text("utf-8").splitlines(), delimiter="\t")
    ]
    return by_key(rows)


def by_key(rows: Any) -> Points:
    found: Points = {}
    for key, step, value in rows:
        found.setdefault(key, []).append((step, value))
    return found


READERS = {
    name.removeprefix("in_"): reader
    for name, reader in vars(sys.modules[__name__]).copy().items()
    if name.startswith("in_")
}


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of the example, which has reported to all at once."""
    folder = tmp_path_factory.mktemp("digits")
    environment = {**environment_of(folder), **OFFLINE, "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"}
    names = ",".join([*READERS, "codecarbon"])
    done = subprocess.run(
        [sys.executable, ROOT / "examples/digits.py", "--epochs", "2", "--output-dir", "out", "--report-to", names],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "is owed" not in done.stderr
    return folder / "out"


def environment_of(folder: Path) -> dict[str, str]:

    home = folder / "home"
    home.mkdir()
    return {**os.environ, "HOME": str(home), "TRACKSIDE_START_SECONDS": "120", "TRACKSIDE_DRAIN_SECONDS": "120"}


def test_all_that_is_installed_is_chosen_by_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    assert {reporter.name for reporter in trackside.resolve("all")} == {*READERS, "codecarbon"}


@pytest.mark.parametrize("name", READERS)
def test_what_was_evaluated_last_stands_in_the_files_of(name: str, output: Path) -> None:
    (state,) = output.glob("checkpoint-90/trainer_state.json")
    history = json.loads(state.read_text("utf-8"))["log_history"]
    evaluated = [entry for entry in history if "eval_loss" in entry][-1]
    points = READERS[name](output)
    for metric in ("loss", "accuracy"):
        step, value = points[f"eval/{metric}"][-1]
        assert (int(step), value) == (evaluated["step"], pytest.approx(evaluated[f"eval_{metric}"], rel=1e-6))


def test_what_the_training_has_emitted_is_in_a_table(output: Path) -> None:
    with open(output / "emissions.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["country_iso_code"] == "FRA"
    assert float(row["emissions"]) > 0
