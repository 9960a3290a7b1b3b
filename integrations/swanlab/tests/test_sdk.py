"""The real SwanLab, offline and with a server on loopback; what it has written is read back value by value."""

from __future__ import annotations

import importlib
import inspect
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import fake_sdk
from offline import runs_below
from server import serving

from trackside import StartError
from trackside.records import Point, Run
from trackside_swanlab import SwanLabCallback
from trackside_testkit import Reported, ReporterContract
from trackside_testkit.samples import ANY_VALUE, FINITE, KEYS, NON_FINITE
from trackside_testkit.workbench import in_forked_child, losses

pytestmark = [pytest.mark.sdk, pytest.mark.filterwarnings("default")]

STATES = {"finished": "finished", "crashed": "failed", "aborted": "killed", "running": "running"}
ONE_VALUE_A_STEP = "SwanLab keeps one value of a metric at a step, and this logs two; a test below logs them apart"


@pytest.fixture(autouse=True)
def _sdk_of_its_own(monkeypatch):
    """SwanLab remembers a sign-in. Asking for installed packages and for the machine takes it seconds."""
    from swanlab.sdk.internal.core_python import client
    from swanlab.sdk.internal.settings import set_global_settings

    set_global_settings(None)
    if client.exists():
        client.reset()
    for name in ("REQUIREMENTS", "HARDWARE", "MONITOR"):
        monkeypatch.setenv(f"SWANLAB_PROBE_{name}", "false")


class TestSwanLab(ReporterContract):
    reporter_class = SwanLabCallback
    nearest_status = {"pruned": "killed"}  # noqa: RUF012 - as the contract has it
    left_out = {  # noqa: RUF012 - as the contract has it
        "test_a_forked_child_reports_nothing_and_leaves_the_run_open": ONE_VALUE_A_STEP,
        "test_a_copy_reports_a_run_of_its_own": ONE_VALUE_A_STEP,
    }

    def make_reporter(self, **options):
        return SwanLabCallback(mode="offline", log_model=True, **options)

    def read(self):
        return [self.reported(run) for run in runs_below(self.folder)]

    def reported(self, run):
        artifacts = {}
        for name in run.saved:
            artifact, _, file = name.partition("/")
            artifacts.setdefault(artifact, []).append(file)
        return Reported(
            points=Reported.by_key(run.points),
            params=run.config,
            texts=Reported.by_key(run.texts),
            artifacts=artifacts,
            status=STATES[run.state],
        )


# ---- what tests look at ---------------------------------------------------------------------------------------------

RUN = Run(id="0123456789ab", name="blue", output_dir="out", time=1234.5)


def started(reporter, run=RUN):
    """Start a run as the delivery does."""
    reporter.import_sdk()
    reporter.tracker_id = reporter.start(run)


def only_run(below: Path):
    (run,) = runs_below(below)
    return run


def values(run, key):
    return [(step, value) for name, step, value in run.points if name == key]


# ---- offline --------------------------------------------------------------------------------------------------------


def test_every_value_arrives_as_the_readme_says(loop, new, tmp_path):
    odd = {"least": -math.inf, "most": math.inf, "none": math.nan, "null": None, "list": [1, "two"], "huge": 2**70}
    reporter = new()
    training = loop(reporter, lr_scheduler_kwargs=odd)
    training.begin(3)
    training.log({f"v{number}": value for number, value in enumerate(ANY_VALUE.values())})
    reporter.close()
    run = only_run(tmp_path)
    points = {key: value for key, _, value in run.points}
    texts = {key: text for key, _, text in run.texts}
    kinds = {kind: points.get(f"train/v{number}") for number, kind in enumerate(ANY_VALUE)}
    assert {kind: kinds[kind] for kind in FINITE} == {kind: value for kind, (_, value) in FINITE.items()}
    assert [str(kinds[kind]) for kind in NON_FINITE] == ["nan", "inf", "-inf", "nan", "nan", "inf"]
    number = list(ANY_VALUE).index
    assert points[f"train/v{number('a list')}/1"] == 2.5
    assert points[f"train/v{number('a nested dict')}/per_class/cat"] == 0.5
    for kind in ("a text", "an empty text", "a long text", "a text of a number"):
        assert texts[f"train/v{number(kind)}"] == ANY_VALUE[kind]
    assert kinds["None"] is kinds["an object"] is None
    stored = [run.config[f"lr_scheduler_kwargs/{name}"] for name in odd]
    assert stored == ["-inf", "inf", "nan", "None", [1, "two"], 2.0**70]


def test_every_key_arrives_with_its_own_value(loop, new, tmp_path):
    keys = [*KEYS, " a b", "a b.", "__swanlab__.cpu", "cpu", "caf\udce9", "caf\udce8"]
    reporter = new(key_style="raw")
    training = loop(reporter)
    training.begin(3)
    training.log({key: float(number) for number, key in enumerate(keys)})
    reporter.close()
    found = {key: value for key, _, value in only_run(tmp_path).points if key != "epoch"}
    assert sorted(found.values()) == [float(number) for number, _ in enumerate(keys)]
    kept = ["a b", "a/b", "a//b", "größe", "損失", "🚂", "time(s)", "recall@10", "100%", "%s", "cpu", "C:\\windows"]
    assert {key: found[key] for key in kept} == {key: float(keys.index(key)) for key in kept}


def test_a_value_has_the_step_and_the_time_of_its_log(new, tmp_path):
    reporter = new()
    started(reporter)
    reporter.log_points([Point({"loss": 2.0}, 7, None, 1234.5), Point({"loss": 1.0}, 5, None, 1300.25)])
    reporter.finish("finished")
    run = only_run(tmp_path)
    assert run.points == [("loss", 7, 2.0), ("loss", 5, 1.0)]
    assert run.times == {("loss", 7): 1234.5, ("loss", 5): 1300.25}


def test_what_is_not_taken_is_told_at_the_end(new, tmp_path):
    reporter = new()
    started(reporter)
    reporter.log_points([Point({"loss": 1.0}, step, None, 1234.5) for step in (1, 2**48 + 1, 2)])
    with pytest.raises(RuntimeError, match=f"step {2**48 + 1} exceeds the supported step limit"):
        reporter.finish("finished")
    assert values(only_run(tmp_path), "loss") == [(1, 1.0), (2, 1.0)]


def test_a_disk_that_is_full_is_told_at_the_end(new, monkeypatch):
    from swanlab.sdk.internal.core_python.store import DataStoreWriter

    reporter = new()
    started(reporter)
    write, fails = DataStoreWriter.write, [True]

    def fail_once(store, data):
        if fails:
            fails.clear()
            raise OSError(28, "No space left on device")
        write(store, data)

    monkeypatch.setattr(DataStoreWriter, "write", fail_once)
    reporter.log_points([Point({"loss": 1.0}, 7, None, 1234.5)])
    with pytest.raises(RuntimeError, match="No space left"):
        reporter.finish("finished")


def test_a_checkpoint_is_kept_file_by_file(loop, new, tmp_path):
    reporter = new(log_model=True)
    training = loop(reporter, output_dir=tmp_path / "out [1]*")
    training.begin(3)
    folder = training.save()
    expected = {
        f"checkpoint-3/{file.relative_to(folder).as_posix()}": file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name != "training_args.bin"
    }
    for file in folder.rglob("*.bin"):
        file.unlink()
    reporter.close()
    assert only_run(tmp_path).saved == expected


def test_a_run_of_the_users_takes_his_values_and_ours(loop, new, tmp_path):
    import swanlab

    swanlab.init(project="mine", mode="offline", log_dir=tmp_path / "mine", config={"mine": 7})
    swanlab.log({"before": 1}, step=0)
    reporter = new()
    loop(reporter, learning_rate=0.5).train()
    reporter.close()
    swanlab.log({"after": 1})
    swanlab.finish()
    run = only_run(tmp_path)
    assert values(run, "train/loss") == losses(1, 4)
    assert (values(run, "before"), values(run, "after")) == ([(0, 1.0)], [(5, 1.0)])
    assert {"mine": 7, "learning_rate": 0.5}.items() <= run.config.items()


def test_the_users_calls_in_a_training_land_in_our_run(loop, new, tmp_path):
    import swanlab

    reporter = new()
    training = loop(reporter)
    training.begin(3)
    training.log({"loss": 0.5})
    swanlab.log({"mine": 1})
    swanlab.config["mine"] = 7
    reporter.close()
    run = only_run(tmp_path)
    assert values(run, "mine") == [(4, 1.0)]
    assert run.config["mine"] == 7


def test_a_forked_child_reports_nothing_and_leaves_the_run_open(loop, new, tmp_path):
    reporter = new()
    training = loop(reporter)
    training.begin(1)
    training.log({"loss": 0.5})

    def use_in_child():
        training.log({"loss": 100.0})
        training.fire("on_train_end")
        reporter.close()
        return True

    assert in_forked_child(use_in_child)
    training.state.global_step = 2
    training.log({"loss": 0.25})
    reporter.close()
    assert values(only_run(tmp_path), "train/loss") == [(1, 0.5), (2, 0.25)]


def test_the_rest_of_a_training_is_a_second_folder_with_the_same_id(loop, new, tmp_path):
    first = new()
    with pytest.raises(RuntimeError):
        loop(first, num_train_epochs=2).train(fail_at=7)
    second = new()
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    second.close()
    both = runs_below(tmp_path)
    assert {run.of("start")[0].id for run in both} == {first.tracker_id}
    assert sorted((run.state, [step for step, _ in values(run, "train/loss")]) for run in both) == [
        ("crashed", [1, 2, 3, 4, 5, 6]),
        ("finished", [5, 6, 7, 8]),
    ]


SCRIPT = """
    import sys
    from trackside_swanlab import SwanLabCallback
    from trackside_testkit import FakeLoop

    print("what the program prints")
    loop = FakeLoop([SwanLabCallback(mode="offline")], report_to=[])
    loop.begin(1)
    loop.log({"loss": 0.5})
    if sys.argv[1] == "error":
        raise RuntimeError("no memory")
    if sys.argv[1] == "exit":
        sys.exit(3)
    loop.fire("on_train_end")
"""


@pytest.mark.parametrize(
    ("end", "code", "state"), [("error", 1, "crashed"), ("exit", 3, "crashed"), ("", 0, "finished")]
)
def test_a_program_that_ends_ends_its_run_and_its_secrets_stay_here(tmp_path, end, code, state):
    secret = "plain-looking-secret"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SCRIPT), end, f"--api_key={secret}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    run = only_run(tmp_path)
    assert (run.state, values(run, "train/loss")) == (state, [(1, 0.5)])
    assert "swanlab:" not in done.stdout + done.stderr
    assert "--api_key=***" in run.config["trackside/command"]
    for file in filter(Path.is_file, run.folder.rglob("*")):
        assert secret.encode() not in file.read_bytes(), file
        assert b"what the program prints" not in file.read_bytes(), file


# ---- a server on loopback -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 500])
def test_a_key_that_is_refused_is_told_from_a_server_in_trouble(new, monkeypatch, status):
    reporter = new(mode="online")
    with serving(status) as server:
        monkeypatch.setenv("SWANLAB_API_HOST", server.address)
        monkeypatch.setenv("SWANLAB_API_KEY", "key-of-the-user")
        with pytest.raises((OSError, RuntimeError)) as raised:
            started(reporter)
    assert reporter.is_passing(raised.value) is (status == 500)


@pytest.fixture
def online(new, monkeypatch):
    """A server that takes the user's key."""
    with serving() as server:
        monkeypatch.setenv("SWANLAB_API_HOST", server.address)
        monkeypatch.setenv("SWANLAB_API_KEY", "key-of-the-user")
        yield server


def sent(server, reporter, key):
    return [(step, value) for name, step, value in server.points[reporter.tracker_id] if name == key]


def test_a_run_arrives_at_its_server(loop, new, online, capfd):
    reporter = new(mode="online", project="digits", log_model=True)
    training = loop(reporter, learning_rate=0.5)
    training.train()
    training.log({"least": -math.inf, "note": "half-way"})
    reporter.close()
    assert sent(online, reporter, "train/loss") == losses(1, 4)
    assert sent(online, reporter, "train/least") == [(4, "nan")]
    assert online.states == {reporter.tracker_id: "FINISHED"}
    assert online.config["learning_rate"] == 0.5
    assert online.files["checkpoint-4/model.bin"] == b"weights"
    assert [text for name, text in online.files.items() if name.startswith("media/text/004-")] == [b"half-way"]
    shown = "".join(capfd.readouterr())
    assert f"{online.address}/@me/digits/runs/{reporter.tracker_id}" in shown
    assert "key-of-the-user" not in shown
    assert "swanlab:" not in shown


@pytest.mark.parametrize("status", [403, 503])
def test_a_run_that_is_refused_is_told_from_a_trouble_of_its_server(new, online, monkeypatch, status):
    monkeypatch.setattr("urllib3.util.retry.Retry.sleep", lambda *_, **__: None)
    online.trouble = status
    reporter = new(mode="online")
    with pytest.raises((OSError, RuntimeError), match="Failed to start run") as raised:
        started(reporter)
    assert reporter.is_passing(raised.value) is (status == 503)


def test_a_training_goes_on_in_its_run(loop, new, online, tmp_path, caplog):
    first = new(mode="online")
    with pytest.raises(RuntimeError):
        loop(first, num_train_epochs=2).train(fail_at=7)
    assert online.states == {first.tracker_id: "CRASHED"}
    second = new(mode="online")
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    second.close()
    assert second.tracker_id == first.tracker_id
    assert sent(online, second, "train/loss") == losses(1, 8)
    assert sum("has this run up to step 6" in message for message in caplog.messages) == 1


def test_what_a_server_refuses_is_told_at_the_end(loop, new, online, monkeypatch, caplog):
    monkeypatch.setattr("trackside_swanlab.reporter.FINISH_SECONDS", 5)  # 0.10.0 would try for ever
    reporter = new(mode="online")
    training = loop(reporter)
    training.begin(1)
    online.trouble = 400
    training.log({"loss": 0.5})
    reporter.close()
    assert sum("swanlab: finish failed" in message for message in caplog.messages) == 1


def test_a_server_that_goes_down_does_not_hold_up_the_end(loop, new, online, monkeypatch, capfd):
    monkeypatch.setattr("trackside_swanlab.reporter.FINISH_SECONDS", 0.5)
    reporter = new(mode="online")
    started(reporter)
    online.trouble = 503
    reporter.log_points([Point({"loss": 1.0}, 7, None, 1234.5)])
    with pytest.raises(TimeoutError) as late:
        reporter.finish("finished")
    assert reporter.is_passing(late.value)
    online.trouble = 200
    monkeypatch.setattr("trackside_swanlab.reporter.FINISH_SECONDS", 30)
    reporter.finish("finished")
    assert sent(online, reporter, "loss") == [(7, 1.0)]
    assert "HTTP" not in "".join(capfd.readouterr())


def test_a_replay_learns_where_the_run_is(new, tmp_path):
    reporter = new(workspace="team")
    started(reporter)
    assert reporter.place() == {"mode": "offline", "project": tmp_path.name, "workspace": "team"}
    reporter.finish("finished")


def test_there_is_no_question_at_the_terminal(loop, new):
    with pytest.raises(StartError, match="it has no key"):
        loop(new(mode="online")).begin()


# ---- the fake -------------------------------------------------------------------------------------------------------

SIGNATURES = {
    "swanlab": ("init", "has_run", "get_run", "Text.__init__", "Run.log", "Run.finish"),
    "swanlab.sdk.internal.core_python.client": ("new", "exists", "reset"),
    "swanlab.sdk.internal.pkg.console": ("print", "info", "warning", "error"),
    "swanlab.sdk.internal.settings": ("create_settings",),
}


def signature(module, name):
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(found).parameters.values()
        if parameter.kind not in kinds
    ]


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in SIGNATURES.items() for name in names])
def test_the_fake_has_the_signatures_of_the_real_one(module, name):
    real = signature(module, name)
    with fake_sdk():
        assert signature(module, name) == real


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"project": "my digits"}, "pattern"),
        ({"mode": "onlin"}, "Invalid mode"),
        ({"name": "x" * 513}, "at most 512"),
    ],
)
def test_the_fake_refuses_what_the_real_one_refuses(options, refused, tmp_path):
    for kind in ("real", "fake"):
        with fake_sdk() if kind == "fake" else pytest.MonkeyPatch.context():
            import swanlab

            with pytest.raises(Exception, match=refused):
                swanlab.init(**{"project": "digits", "mode": "offline", "log_dir": tmp_path, **options})
            assert not swanlab.has_run()


def test_the_private_parts_that_we_use_are_there(new):
    reporter = new()
    started(reporter)
    run = reporter.run
    assert run._ctx.core._metrics.get("loss") is None
    reporter.log_points([Point({"loss": 1.0}, 7, None, 1234.5)])
    assert run._ctx._global_step == 7
    reporter.finish("finished")
    assert (run._ctx.core._metrics.get("loss").min_step, list(run._ctx.core._metrics.get("loss").steps)) == (-1, [7])
