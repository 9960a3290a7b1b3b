"""The real wandb, offline and with a server on loopback; what it has written or sent is read back value by value."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import os
import pickle
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import fake_sdk
from offline import OfflineRun, finished_runs, read_runs
from reported import reported
from server import Server, serving

from trackside import Point, Run
from trackside_testkit import Reported, ReporterContract
from trackside_wandb import WandbCallback
from trackside_wandb.logbook import latest_value

pytestmark = [pytest.mark.sdk, pytest.mark.filterwarnings("default")]


class TestWandbOffline(ReporterContract):
    reporter_class = WandbCallback
    nearest_status = {"pruned": "killed"}  # noqa: RUF012 - as the contract has it

    def make_reporter(self, **options: Any) -> WandbCallback:
        return WandbCallback(mode="offline", log_model="checkpoint", **options)

    def read(self) -> list[Reported]:
        return [self.reported(run) for run in finished_runs(self.folder / "out", seconds=2)]

    def reported(self, run: OfflineRun) -> Reported:
        artifacts = [(one.aliases, [entry.path for entry in one.manifest.contents]) for one in run.artifacts]
        return reported(run.rows, run.config, run.summary, artifacts, run.exit_code)


def only_run(below: Path) -> OfflineRun:
    (run,) = finished_runs(below)
    return run


# ---- offline --------------------------------------------------------------------------------------------------------


def test_each_value_stands_in_the_file_as_it_was_logged(loop, tmp_path, monkeypatch):
    reporter = WandbCallback(mode="offline", tags=["first"], project="digits")
    arguments = {"ratio": math.nan, "none": None, "list": [1, "two", None], "huge": 10**30}
    training = loop(reporter, run_name="blue", learning_rate=0.25, lr_scheduler_kwargs=arguments)
    training.fire("on_train_begin")
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5678)
    training.log_at(
        10, loss=0.1, huge=1e300, small=5e-324, count=10**18, larger=2**70, truth=True, **{"r@10": 1, "": 2}
    )
    training.log_at(5, eval_loss=0.5, broken=math.nan, most=math.inf, least=-math.inf, note="half-way ü")
    training.log_at(5, train_loss=0.25, total_flos=1e18)
    training.fire("on_train_end")
    reporter.close()

    run = only_run(tmp_path / "out")
    first, text, second, *_ = run.rows
    assert {key: value for key, value in first.items() if not key.startswith("_")} == {
        "train/global_step": 10,
        "trackside/logged_at": 1234.5678,
        "train/loss": 0.1,
        "train/huge": 1e300,
        "train/small": 5e-324,
        "train/count": 10**18,
        "train/larger": float(2**70),
        "train/truth": 1,
        "train/r@10": 1,
        "train/": 2,
        "train/epoch": 0,
    }
    assert first["_timestamp"] == 1234.5678
    assert (text["train/note"], text["train/global_step"]) == ("half-way ü", 5)
    assert (second["eval/loss"], second["train/global_step"]) == (0.5, 5)
    assert math.isnan(second["train/broken"])
    assert (second["train/most"], second["train/least"]) == (math.inf, -math.inf)
    assert (run.summary["train/train_loss"], run.summary["train/total_flos"]) == (0.25, 1e18)
    assert run.metrics.pop("train/global_step") == ""
    assert run.metrics["*"] == "train/global_step"
    assert run.metrics.pop("trackside/logged_at") == ""
    assert set(run.metrics.values()) == {"train/global_step"}
    assert (run.config["learning_rate"], run.config["run_name"]) == (0.25, "blue")
    found = {name: run.config[f"lr_scheduler_kwargs/{name}"] for name in arguments}
    assert found == {"ratio": "nan", "none": None, "list": [1, "two", None], "huge": 10**30}
    assert (run.run.run_id, run.run.display_name, run.run.project) == (reporter.tracker_id, "blue", "digits")
    assert (list(run.run.tags), run.exit_code) == (["first"], 0)


def test_calls_of_the_user_and_steps_that_go_back_lose_nothing(loop, tmp_path):
    import wandb

    reporter = WandbCallback(mode="offline")
    training = loop(reporter)
    training.fire("on_train_begin")
    for number in range(3):
        wandb.log({"mine": number})
    training.log_at(1, loss=0.5)
    training.log_at(10, loss=0.25)
    wandb.log({"mine": 3})
    training.log_at(5, eval_loss=0.75)
    reporter.close()
    run = only_run(tmp_path / "out")
    assert [row["mine"] for row in run.rows if "mine" in row] == [0, 1, 2, 3]
    assert run.points("train/loss") == [(1, 0.5), (10, 0.25)]
    assert run.points("eval/loss") == [(5, 0.75)]
    assert (run.rows[5]["mine"], run.rows[5]["train/global_step"]) == (3, 10)


def test_a_long_text_is_whole_in_a_file_of_the_run(loop, tmp_path):
    reporter = WandbCallback(mode="offline")
    training = loop(reporter)
    training.fire("on_train_begin")
    training.log_at(7, note="word " * 4000)
    reporter.close()
    run = only_run(tmp_path / "out")
    assert len(run.rows[0]["train/note"]) == 10_000
    assert run.file("texts/train/note/00000007.txt") == "word " * 4000


def test_files_of_a_model_are_kept_until_they_are_uploaded(loop, tmp_path):
    reporter = WandbCallback(mode="offline", log_model="end")
    loop(reporter, run_name="blue").train()
    reporter.close()
    model = only_run(tmp_path / "out").artifacts[-1]
    assert (model.type, model.name, set(model.aliases)) == ("model", "model-blue", {"latest", "final_model"})
    assert json.loads(model.metadata)["eval/accuracy"] == 0.75
    kept = {entry.path: Path(entry.local_path).read_bytes() for entry in model.manifest.contents}
    assert kept.keys() == {"model.bin", "trainer_state.json"}
    assert kept["model.bin"] == b"weights"


def test_a_continued_run_is_a_second_folder_of_the_same_id_that_holds_what_is_new(loop, tmp_path):
    first = WandbCallback(mode="offline")
    loop(first).fire("on_train_begin")
    points = [Point({"train/loss": 0.5}, step, None, 1000.0 + step) for step in range(5)]
    first.log_points(points[:3])
    first.close()
    finished_runs(tmp_path / "out")
    second = WandbCallback(mode="offline")
    second.start(Run("another", "run", str(tmp_path / "out"), tracker_id=first.tracker_id))
    second.log_points(points)
    second.finish("finished")
    runs = finished_runs(tmp_path / "out")
    assert [run.run.run_id for run in runs] == [first.tracker_id] * 2
    assert [run.points("train/loss") for run in runs] == [[(0, 0.5), (1, 0.5), (2, 0.5)], [(3, 0.5), (4, 0.5)]]


def test_a_torn_file_is_read_up_to_where_it_is_torn(loop, tmp_path):
    reporter = WandbCallback(mode="offline")
    training = loop(reporter, lr_scheduler_kwargs={"long": "x" * 100_000})  # across blocks
    training.fire("on_train_begin")
    for step in range(2000):
        training.log_at(step, loss=float(step))
    reporter.close()
    run = only_run(tmp_path / "out")
    assert run.points("train/loss") == [(step, float(step)) for step in range(2000)]
    (file,) = run.folder.glob("*.wandb")
    content = file.read_bytes()
    for length in (0, 5, 7, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        (torn,) = read_runs(tmp_path / "out")
        assert torn.points("train/loss") == run.points("train/loss")[: len(torn.points("train/loss"))]
    latest = latest_value(str(tmp_path / "out"), run.run.run_id, "trackside/logged_at")
    assert latest == torn.rows[-1]["_timestamp"]


def test_what_wandb_finds_out_holds_no_secret(loop, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--api-key", "plain-looking-key"])
    for command in (
        ["init", "-q"],
        ["remote", "add", "origin", "https://plain-looking-token:x@host/team/repository.git"],
        ["-c", "user.email=a@b", "-c", "user.name=c", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    reporter = WandbCallback(mode="offline")
    loop(reporter).train()
    reporter.close()
    run = only_run(tmp_path / "out")
    assert run.run.git.remote_url == "https://***@host/team/repository.git"
    assert len(run.run.git.commit) == 40
    files = [path for path in run.folder.rglob("*") if path.is_file()]
    assert [path for path in files if b"plain-looking" in path.read_bytes()] == []


def test_a_command_without_secrets_is_found_out(loop, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "0.1"])
    reporter = WandbCallback(mode="offline")
    loop(reporter).train()
    reporter.close()
    assert '"0.1"' in only_run(tmp_path / "out").environment


def test_wandb_switched_off_writes_nothing(loop, tmp_path):
    import wandb

    reporter = WandbCallback(disabled=True, log_model="checkpoint")
    training = loop(reporter)
    training.fire("on_train_begin")
    training.log_at(1, loss=0.5, note="word " * 4000)
    wandb.log({"mine": 1})
    training.save()
    training.fire("on_train_end")
    reporter.close()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["checkpoint-1"]


def test_hooks_are_put_on_a_model_and_taken_off(loop, tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    reporter = WandbCallback(mode="offline", watch="all")
    training = loop(reporter, model=model)
    training.state.logging_steps = 10
    training.fire("on_train_begin")
    for _ in range(100):
        model(torch.ones(3, 2)).sum().backward()
    training.log_at(100, loss=0.5)
    training.fire("on_train_end")
    assert pickle.loads(pickle.dumps(model)).in_features == 2
    assert not hasattr(model, "_wandb_hook_names")
    reporter.close()
    (row,) = (row for row in only_run(tmp_path / "out").rows if "train/loss" in row)
    assert {"gradients/weight", "parameters/weight"} <= {key.partition("/_type")[0] for key in row}


# ---- programs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [
        ("raise ValueError('in a step')", 1, 1),
        ("raise KeyboardInterrupt", 255, -2),
        ("sys.exit(3)", 1, 3),
        ("loop.fire('on_train_end')", 0, 0),
        ("loop.fire('on_train_end'); wandb.finish()", 0, 0),
        ("loop.fire('on_train_end'); loop.fire('on_train_begin'); sys.exit('stop')", 1, 1),
    ],
)
def test_a_program_that_ends_leaves_a_run_that_says_how(tmp_path, end, status, code):
    script = f"""
        import signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from trackside_wandb import WandbCallback
        from trackside_testkit import FakeLoop
        loop = FakeLoop([WandbCallback(mode="offline")], output_dir="out")
        loop.fire("on_train_begin")
        loop.log({{"loss": 0.5}})
        import wandb
        wandb.log({{"mine": 1.5}})
        {end}
        """
    printed, errors, code_in_fact = run_script(script, tmp_path)
    assert code_in_fact == code, errors
    assert printed == ""
    assert errors.count("Traceback") == end.count("raise")
    run = finished_runs(tmp_path / "out")[-1]
    assert run.exit_code == status
    first = finished_runs(tmp_path / "out")[0]
    assert first.points("train/loss") == [(0, 0.5)]
    assert first.points("mine") == [(0, 1.5)]


def test_nothing_is_said_but_where_the_run_is_and_the_environment_stays_as_it_is(tmp_path):
    script = """
        import os
        from trackside_wandb import WandbCallback
        from trackside_testkit import FakeLoop
        before = dict(os.environ)
        reporter = WandbCallback(mode="offline", log_model="checkpoint")
        FakeLoop([reporter], output_dir="out").train()
        reporter.close()
        print(sorted(name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)))
        """
    printed, errors, code = run_script(script, tmp_path)
    assert (printed, code) == ("['WANDB_SERVICE']\n", 0)  # which wandb's own children look for
    assert errors.splitlines() == [f"Reporting to wandb; see the run with: wandb sync {read_runs(tmp_path)[0].folder}"]


def test_a_run_of_the_users_is_left_to_its_own_end(tmp_path):
    script = """
        import wandb
        run = wandb.init(mode="offline", dir=".", project="mine")
        from trackside_wandb import WandbCallback
        from trackside_testkit import FakeLoop
        FakeLoop([WandbCallback()], output_dir="out", num_train_epochs=1).train()
        wandb.log({"mine": 1.5})
        raise ValueError
        """
    _, errors, code = run_script(script, tmp_path)
    assert code == 1, errors
    (run,) = finished_runs(tmp_path)
    assert len(run.points("train/loss")) == 4
    assert len(run.points("mine")) == 1
    assert run.exit_code == 1


# ---- online ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    with serving() as server:
        yield server


ONLINE = """
    import sys, time
    from trackside_wandb import WandbCallback
    from trackside_testkit import FakeLoop
    def train(epochs=1, **options):
        reporter = WandbCallback(**options)
        loop = FakeLoop([reporter], output_dir="out", num_train_epochs=epochs, run_name="blue", learning_rate=0.25)
        loop.train()
        reporter.close()
        return reporter
    """


def test_a_server_gets_it_all(tmp_path, server):
    script = ONLINE + 'train(project="digits", log_model="end", tags=["first"])'
    printed, errors, code = run_script(script, tmp_path, WANDB_BASE_URL=server.url)
    assert (printed, code) == ("", 0), errors
    (run,) = server.runs.values()
    assert errors.startswith(f"Reporting to wandb; see the run with: {server.url}/team/digits/runs/{run.name}\n")
    assert run.points("train/loss") == [(step, 1 / (step + 1)) for step in range(1, 5)]
    assert run.points("eval/accuracy") == [(4, 0.75)]
    assert run.summary["train/train_loss"] == 0.25
    assert run.config["learning_rate"] == 0.25
    assert run.about["displayName"] == "blue"
    assert run.about["tags"] == ["first"]
    assert run.exit_code == 0
    aliases = [{one["alias"] for one in artifact["aliases"]} for artifact in run.artifacts]
    assert aliases == [{"latest", "base_model"}, {"latest", "final_model"}]


def test_a_run_is_continued_by_its_id_and_nothing_of_it_is_sent_twice(tmp_path, server):
    script = (
        ONLINE
        + """
    from trackside import Point, Run
    points = [Point({"train/loss": 0.5}, step, None, 1000.0 + step) for step in range(5)]
    for end in (3, 5):
        reporter = WandbCallback()
        reporter.start(Run("id", "run", "out", tracker_id="my-id"))
        reporter.log_params({"lr": end})
        reporter.log_points(points[:end])
        reporter.finish("finished")
    """
    )
    _, errors, code = run_script(script, tmp_path, WANDB_BASE_URL=server.url)
    assert code == 0, errors
    (run,) = server.runs.values()
    assert run.points("train/loss") == [(step, 0.5) for step in range(5)]
    assert run.config["trackside/changed_params"] == {"lr": [3, 5]}


@pytest.mark.parametrize("status", [500, 429])
def test_an_end_that_a_server_does_not_take_is_given_up_and_told(tmp_path, server, status):
    server.statuses["file_stream"] = status
    began = time.monotonic()
    variables = {"WANDB_BASE_URL": server.url, "WANDB_FINISH_TIMEOUT": "2"}
    _, errors, code = run_script(ONLINE + "train()", tmp_path, **variables)
    assert time.monotonic() - began < 30
    assert code == 0
    assert "did not take all of it in time" in errors


def test_a_server_that_refuses_the_key_stops_the_program_at_its_start(tmp_path, server):
    server.statuses["graphql"] = 401
    _, errors, code = run_script(ONLINE + "train()", tmp_path, WANDB_BASE_URL=server.url)
    assert code == 1
    assert "StartError: wandb cannot start" in errors
    assert "401" in errors


def test_a_start_that_the_server_does_not_answer_is_given_up(tmp_path, server):
    server.answers_after = 60.0
    began = time.monotonic()
    script = "import trackside_wandb.session as session\nsession.SECONDS_TO_ANSWER = 1\n" + textwrap.dedent(ONLINE)
    _, errors, code = run_script(script + "train()", tmp_path, WANDB_BASE_URL=server.url)
    assert time.monotonic() - began < 30
    assert code == 0
    assert "wandb cannot be reached" in errors


# ---- the fake -------------------------------------------------------------------------------------------------------


def test_the_fake_takes_what_the_real_one_takes():
    real = signatures()
    with fake_sdk():
        fake = signatures()
    for name, arguments in fake.items():
        assert arguments.items() <= real[name].items(), name


def signatures() -> dict[str, dict[str, Any]]:
    """Names and defaults of the arguments of all that the fake has."""
    wandb, module, term = map(importlib.import_module, ("wandb", "wandb.sdk.lib.module", "wandb.errors.term"))
    assert term._silent in (True, False)
    run = importlib.import_module("wandb.run" if "fake" in wandb.__file__ else "wandb.sdk.wandb_run").Run
    methods = ["log", "finish", "define_metric", "log_artifact", "save", "watch", "unwatch"]
    found = {f"Run.{name}": getattr(run, name) for name in methods}
    found |= {"init": wandb.init, "setup": wandb.setup, "unset_globals": module.unset_globals}
    found |= {"Artifact": wandb.Artifact, "add_file": wandb.Artifact.add_file, "set_global": module.set_global}
    return {name: arguments_of(function) for name, function in found.items()}


def arguments_of(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.name != "anonymous"}


def test_the_fake_knows_only_settings_that_the_real_one_knows():
    import wandb

    with fake_sdk():
        known = importlib.import_module("wandb.settings").KNOWN
    assert known <= wandb.Settings.model_fields.keys()


def run_script(code: str, folder: Path, **environment: str) -> tuple[str, str, int]:
    """What a Python of its own, which runs `code` in `folder`, has printed and said, and its exit code."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(folder), **environment}
    variables.pop("WANDB_SERVICE", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        cwd=folder,
        env={"TRACKSIDE_DELIVERY": "inline", **variables},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout, done.stderr, done.returncode
