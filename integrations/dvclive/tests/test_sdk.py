"""The real DVCLive, with and without Git and DVC; read back with csv, json, PyYAML, Git and DVC's own commands."""

from __future__ import annotations

import inspect
import json
import math
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import Stored, fake_sdk

from trackside_dvclive import DVCLiveCallback
from trackside_testkit import Reported, ReporterContract

pytestmark = [pytest.mark.sdk, pytest.mark.filterwarnings("default")]

OF_A_FILE = {"loss": 0.5, "nan": math.nan, "inf": -math.inf, "large": 2**70, "tiny": 1e-300, "yes": True}
AS_TEXT = {"loss": "0.5", "nan": "nan", "inf": "-inf", "large": str(2**70), "tiny": "1e-300", "yes": "1"}


def load_yaml(text: str) -> Any:
    import yaml

    return yaml.safe_load(text)


class TestDVCLive(ReporterContract):
    reporter_class = DVCLiveCallback

    def make_reporter(self, **options):
        return DVCLiveCallback(log_model="all", **options)

    def read(self) -> list[Reported]:
        folders = [file.parent for file in self.folder.glob("out/dvclive/*/metrics.json")]
        return [Stored(folder, load_yaml).reported() for folder in folders]


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def dvc(*arguments: str) -> str:
    return run(sys.executable, "-m", "dvc", *arguments)


@pytest.fixture
def git(tmp_path, monkeypatch):
    """A repository of Git in which the test runs, with a commit."""
    monkeypatch.chdir(tmp_path)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "me")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "me@example.com")
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    run("git", "init", "-q", "-b", "main")
    Path("train.py").write_text("train()\n")
    Path(".gitignore").write_text("/out\n.cache\n.config\n")
    run("git", "add", ".")
    run("git", "commit", "-q", "-m", "Begin")


@pytest.fixture
def repository(git):
    """A repository of Git and DVC."""
    dvc("init", "-q")
    run("git", "commit", "-q", "-m", "Add DVC")


def parameters_of(cls: Any) -> dict[str, list[str]]:
    methods = {name: value for name, value in vars(cls).items() if inspect.isfunction(value)}
    return {name: list(inspect.signature(method).parameters) for name, method in methods.items()}


def test_the_fake_takes_what_the_real_one_takes():
    import dvclive

    with fake_sdk():
        from dvclive import Live as Fake

        fake = parameters_of(Fake)
    assert Fake is not dvclive.Live
    hidden = {"_init_dvc", "make_dvcyaml"}  # behind a decorator that catches what DVC raises
    real = parameters_of(dvclive.Live)
    assert {name: real.get(name) for name in fake.keys() - hidden} == {
        name: fake[name] for name in fake.keys() - hidden
    }
    assert hidden <= real.keys()


def test_the_fake_knows_what_the_reporter_touches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from dvclive import Live

    real = vars(Live("real", save_dvc_exp=False))
    with fake_sdk():
        from dvclive import Live as Fake

        fake = vars(Fake("fake", save_dvc_exp=False))
    assert fake.keys() - real.keys() == {"is_monitoring"}


def test_values_are_in_the_files_as_they_were_logged(loop, tmp_path, monkeypatch):
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5678)
    reporter = DVCLiveCallback()
    training = loop(reporter, run_name="blue")
    training.begin(7)
    training.log({**OF_A_FILE, "note": 'a "quoted"\ttext,\nof two lines \\n'})
    training.fire("on_train_end")
    stored = Stored(tmp_path / "out/dvclive/blue", load_yaml)
    rows = {key.removeprefix("train/"): row for key, row in stored.rows() if key != "train/epoch"}
    assert rows == {key: {"timestamp": "1234568", "step": "7", key: text} for key, text in AS_TEXT.items()}
    assert stored.texts == {"train/note": [(7, 'a "quoted"\ttext,\nof two lines \\n')]}
    latest = {**OF_A_FILE, "nan": "nan", "inf": "-inf", "epoch": 0}
    assert stored.summary["train"] == latest


def test_dvc_shows_the_curves_of_a_folder_of_its_own(loop, tmp_path, monkeypatch):
    reporter = DVCLiveCallback()
    loop(reporter, run_name="blue").train()
    monkeypatch.chdir(tmp_path / "out/dvclive/blue")
    shown = json.loads(dvc("plots", "show", "--json"))["data"]["plots/metrics/train/loss.tsv"][0]["content"]
    assert [row["loss"] for row in shown["data"]["values"]] == ["0.5", "0.3333333333333333", "0.25", "0.2"]
    assert '"field": "step"' in json.dumps(shown)
    assert json.loads(dvc("metrics", "show", "--json"))[""]["data"]["metrics.json"]["data"]["eval"]["loss"] == 0.2


def test_a_training_in_a_repository_of_dvc_is_an_experiment(loop, repository):
    reporter = DVCLiveCallback(log_model=True)
    training = loop(reporter, run_name="blue", learning_rate=0.5)
    training.train()
    training.evaluate()
    loop(DVCLiveCallback(), run_name="green", num_train_epochs=2).train()
    (_, commit) = json.loads(dvc("exp", "show", "--json"))
    found = {one["name"]: one["revs"][0]["data"] for one in commit["experiments"]}
    steps = {name: one["metrics"]["dvclive/metrics.json"]["data"]["step"] for name, one in found.items()}
    assert steps == {"blue": 4, "green": 8}
    refs = {
        ref.rpartition("/")[2]: ref for ref in run("git", "for-each-ref", "--format=%(refname)", "refs/exps").split()
    }
    told = load_yaml(run("git", "show", f"{refs['blue']}:dvc.yaml"))
    assert told["artifacts"] == {"last": {"path": "dvclive/artifacts/last", "type": "model"}}
    assert found["blue"]["params"]["dvclive/params.yaml"]["data"]["learning_rate"] == 0.5


def test_a_checkpoint_goes_to_the_cache_of_dvc(loop, repository, tmp_path):
    reporter = DVCLiveCallback(log_model="all")
    loop(reporter, run_name="blue").train()
    (pointer,) = tmp_path.glob("dvclive/artifacts/*.dvc")
    assert pointer.name == "checkpoint-4.dvc"
    shutil.rmtree(tmp_path / "dvclive/artifacts/checkpoint-4")
    dvc("checkout", str(pointer))
    files = {file.name for file in tmp_path.glob("dvclive/artifacts/checkpoint-4/*")}
    assert files == {"model.bin", "trainer_state.json"}


def test_where_there_is_only_git_nothing_is_made_of_it(loop, git, tmp_path):
    loop(DVCLiveCallback(), run_name="blue").train()
    assert run("git", "status", "--porcelain") == ""
    assert not (tmp_path / ".dvc").exists()
    assert run("git", "for-each-ref", "--format=%(refname)") == "refs/heads/main\n"


def test_a_live_of_the_users_gets_the_rows_beside_his_own(loop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from dvclive import Live

    with Live("mine", save_dvc_exp=False, dvcyaml=None) as live:
        live.log_metric("train/loss", 9.0)
        loop(DVCLiveCallback(live)).train()
        live.log_metric("mine", 1.5)
    stored = Stored(tmp_path / "mine", load_yaml)
    assert stored.values()["train/loss"][:3] == [(0, "9.0"), (1, "0.5"), (2, "0.3333333333333333")]
    assert stored.values()["mine"] == [(4, "1.5")]
    assert stored.summary["train"]["loss"] == 0.2
    assert stored.summary["mine"] == 1.5


@pytest.fixture
def studio(monkeypatch):
    """What a DVC Studio on loopback is sent."""
    sent = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DVC_STUDIO_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("DVC_STUDIO_TOKEN", "of the user")
        yield sent
        server.shutdown()


def test_studio_sees_the_run_and_no_secret(loop, repository, studio):
    run("git", "remote", "add", "origin", "https://me:secret@git.example/me/digits.git")
    loop(DVCLiveCallback(), run_name="blue", hub_token="hf_aQxWvUtSrQpOnMlKjIhGfEdC").train()
    events = [body["type"] for body in studio]
    assert (events[0], events[-1], set(events)) == ("start", "done", {"start", "data", "done"})
    losses = [body["plots"]["dvclive/plots/metrics/train/loss.tsv"]["data"] for body in studio if "plots" in body]
    assert [(row["step"], row["loss"]) for rows in losses for row in rows] == [
        (1, 1 / 2),
        (2, 1 / 3),
        (3, 1 / 4),
        (4, 1 / 5),
    ]
    assert {body["repo_url"] for body in studio} == {"https://git.example/me/digits.git"}
    assert {body["name"] for body in studio} == {"blue"}
    assert "hf_aQx" not in json.dumps(studio)
