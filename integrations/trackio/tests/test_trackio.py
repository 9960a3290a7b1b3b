"""The contract of a reporter, and what is special in Trackio, against a fake that refuses what the real one refuses."""

from __future__ import annotations

import math
import sqlite3
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from trackside import Configured, StartError
from trackside.records import Point, Run
from trackside_testkit import Reported, ReporterContract
from trackside_testkit.integration import declared_options, documented_options, maker_of
from trackside_testkit.loop import FakeArguments, FakeConfig, FakeModel
from trackside_trackio import TrackioCallback

README = Path(__file__).parents[1] / "README.md"


def database(project="huggingface"):
    from trackio.memory import DATABASES, Database

    return DATABASES.setdefault(project, Database())


def points_of(rows):
    marks = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
    values = [(key, row["step"], value) for row in rows for key, value in row["metrics"].items()]
    return [(key, step, marks.get(value, value)) for key, step, value in values if not isinstance(value, dict)]


def texts_of(rows):
    values = [(key, row["step"], value) for row in rows for key, value in row["metrics"].items()]
    return [(key, step, value["_value"]) for key, step, value in values if isinstance(value, dict)]


class TestTrackio(ReporterContract):
    reporter_class = TrackioCallback

    def make_reporter(self, **options):
        return TrackioCallback(log_artifacts=True, **options)

    def read(self):
        return [self.reported(run_id) for run_id in database().ids()]

    def reported(self, run_id):
        rows, config = database().of(run_id), database().configs[run_id]
        return Reported(
            points=Reported.by_key(points_of(rows)),
            params=config,
            texts=Reported.by_key(texts_of(rows)),
            artifacts={names[0]: sent.files for owner, names, sent in database().artifacts if owner == run_id},
            status=config["trackside/status"],
        )


def test_the_table_of_options_in_the_readme_is_that_of_the_class():
    assert documented_options(README) == declared_options(TrackioCallback)


# ---- what tests look at ---------------------------------------------------------------------------------------------


new = maker_of(TrackioCallback)


@pytest.fixture
def server(monkeypatch):
    """One that takes the token `sesame`, which the environment has."""
    from trackio.remote_client import SERVERS, Server

    monkeypatch.setenv("TRACKIO_WRITE_TOKEN", "sesame")
    return SERVERS.setdefault(ADDRESS, Server("sesame"))


@pytest.fixture
def hub(monkeypatch):
    """The user has a token of Hugging Face, and Spaces are made at once."""
    monkeypatch.setenv("HF_TOKEN", HF_TOKEN)
    from trackio.remote_client import SERVERS

    return SERVERS


@dataclass
class TransformersArguments(FakeArguments):
    """With what `TrainingArguments` of transformers have for Trackio."""

    num_train_epochs: int = 1
    project: str = "huggingface"
    trackio_space_id: str | None = None
    trackio_bucket_id: str | None = None
    trackio_static_space_id: str | bool | None = None
    hub_private_repo: bool | None = None


ADDRESS = "http://127.0.0.1:7860"
HF_TOKEN = "hf_token-of-the-user"
RUN = Run(id="0123456789ab", name="blue", output_dir="out", time=1234.5)


def rows(reporter):
    """Of the run, those that have metrics."""
    return [row for row in database().of(reporter.tracker_id) if row["metrics"]]


def metrics(reporter):
    return [(row["step"], row["metrics"]) for row in rows(reporter)]


def values(reporter, key):
    return [(row["step"], row["metrics"][key]) for row in rows(reporter) if key in row["metrics"]]


def config(reporter):
    return database().configs[reporter.tracker_id]


# ---- rows -----------------------------------------------------------------------------------------------------------


def test_a_row_has_the_step_and_the_time_of_its_log(loop, new, monkeypatch):
    reporter = new()
    training = loop(reporter)
    training.begin()
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5)
    training.log_at(30, loss=1)
    training.log_at(3, eval_loss=0.5)
    assert metrics(reporter) == [
        (30, {"train/loss": 1, "train/epoch": 0}),
        (3, {"eval/loss": 0.5, "train/epoch": 0}),
    ]
    assert {row["timestamp"] for row in rows(reporter)} == {"1970-01-01T00:20:34.500000+00:00"}


def test_a_batch_that_is_sent_again_makes_no_doubles(new):
    reporter = new()
    points = [Point({"train/loss": loss}, step, None, 1234.5) for step, loss in enumerate((3.0, 2.0, 2.0))]
    reporter.tracker_id = reporter.start(RUN)
    reporter.log_points(points)
    reporter.log_points([points[2], Point({"eval/loss": 2.0}, 2, None, 1234.5)])
    assert [values(reporter, key) for key in ("train/loss", "eval/loss")] == [
        [(0, 3.0), (1, 2.0), (2, 2.0)],
        [(2, 2.0)],
    ]


@pytest.mark.parametrize(
    ("value", "stored"),
    [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (2**62, 2**62), (2**70, 2.0**70), (True, 1)],
)
def test_a_number_is_stored_as_it_is_or_in_the_words_of_trackio(loop, new, value, stored):
    reporter = new()
    training = loop(reporter)
    training.begin()
    training.log_at(1, loss=value)
    assert values(reporter, "train/loss") == [(1, stored)]


def test_a_metric_gives_way_to_the_columns_of_a_row(loop, new):
    reporter = new(key_style="raw")
    training = loop(reporter)
    training.begin()
    training.log({"step": 7, "time": 8, "__step": 9, "loss": 1})
    assert metrics(reporter) == [(0, {"__step": 7, "__time": 8, "____step": 9, "loss": 1, "epoch": 0})]


def test_a_text_that_is_not_unicode_harms_nothing(loop, new):
    reporter = new()
    training = loop(reporter)
    training.begin()
    training.log({"note": "caf\udce9", **{f"x{byte}": number for number, byte in enumerate("\udce8\udce9")}})
    assert values(reporter, "train/note") == [(0, {"_type": "trackio.markdown", "_value": "caf?"})]
    found = [value for row in rows(reporter) for key, value in row["metrics"].items() if key.startswith("train/x")]
    assert sorted(found) == [0, 1]


def test_a_version_of_an_artifact_has_the_name_of_a_checkpoint_as_its_alias(loop, new):
    reporter = new(log_artifacts=True)
    training = loop(reporter, run_name="a b/c")
    training.begin()
    for step in (1, 2):
        training.state.global_step = step
        training.save()
    sent = database().artifacts
    assert [aliases for _, aliases, _ in sent] == [("checkpoint-1",), ("checkpoint-2",)]
    assert {artifact.name for _, _, artifact in sent} == {f"a_b_c-{reporter.tracker_id[:6]}-checkpoint"}
    assert [artifact.metadata for _, _, artifact in sent] == [{"step": 1}, {"step": 2}]


def test_checkpoints_stay_here_unless_they_are_asked_for(loop, new):
    loop(new()).train()
    assert database().artifacts == []


# ---- configs --------------------------------------------------------------------------------------------------------


def test_a_config_says_where_the_run_comes_from(loop, new):
    reporter = new()
    model = FakeModel()
    model.num_parameters = lambda: 11_689_512
    loop(reporter, model=model, learning_rate=0.5, lr_scheduler_kwargs={"warmup": [1, math.nan]}).train()
    found = config(reporter)
    assert found["learning_rate"] == 0.5
    assert found["lr_scheduler_kwargs/warmup"] == [1, "NaN"]
    assert found["model/num_parameters"] == 11_689_512
    assert found["trackside/python"] == sys.version.split()[0]
    assert found["trackside/run"] == reporter.tracker_id
    assert found["trackside/status"] == "finished"


def test_a_run_that_is_opened_again_has_one_row_for_its_config(loop, new):
    reporter = new()
    training = loop(reporter)
    training.train()
    training.evaluate()
    assert [row["step"] for row in database().of(reporter.tracker_id) if not row["metrics"]] == [0]
    assert config(reporter)["trackside/status"] == "finished"


def test_a_parameter_is_not_hidden_by_its_name(loop, new):
    reporter = new()
    loop(reporter, model=FakeModel(FakeConfig(**{"": 1, ".a": 2}))).train()
    hidden = [key for key in config(reporter) if key.startswith("_")]
    assert sorted(hidden) == ["_Created", "_Username"]
    assert config(reporter)["..a"] == 2


def test_a_trial_is_a_run_in_the_group_of_its_search(loop, new):
    reporter = new()
    training = loop(reporter, run_name="search")
    training.state.trial_name, training.state.trial_params = "trial-3", {"lr": {"max": 0.5}}
    training.fire("on_train_begin")
    assert (reporter.run.group, config(reporter)["trial/name"], config(reporter)["trial/lr/max"]) == (
        "search",
        "trial-3",
        0.5,
    )


def test_the_project_is_that_of_the_user_or_of_the_loop(loop, new, monkeypatch):
    loop(new(), args=TransformersArguments(project="digits")).train()
    monkeypatch.setenv("TRACKIO_PROJECT", "letters")
    loop(new(run_name="blue", group="team"), args=TransformersArguments(project="digits")).train()
    assert len(database("digits").ids()) == 1
    ((row, *_),) = [database("letters").of(run_id) for run_id in database("letters").ids()]
    assert row["run_name"] == "blue"


def test_a_project_that_trackio_does_not_take_is_an_error(loop, new):
    with pytest.raises(StartError, match="'registry-x' is not allowed"):
        loop(new(project="registry-x")).begin()


def test_an_empty_variable_is_none(loop, new, monkeypatch):
    for variable in ("TRACKIO_SERVER_URL", "TRACKIO_SPACE_ID", "TRACKIO_PROJECT"):
        monkeypatch.setenv(variable, "")
    reporter = new()
    assert reporter.configured()
    loop(reporter).train()
    assert database().ids() == [reporter.tracker_id]


# ---- runs of the user's, and his calls ------------------------------------------------------------------------------


def test_a_run_of_the_users_is_logged_to_and_never_finished(loop, new):
    import trackio

    users = trackio.open_for("mine", "run")
    users.config["mine"] = 7
    reporter = new(project="other")
    loop(reporter, learning_rate=0.5).train()
    reporter.close()
    assert not users.is_finished
    assert len(database("mine").of(users.id)) == 1 + 4 + 1 + 1  # the config, the logs, an evaluation, the summary
    found = database("mine").configs[users.id]
    assert (found["mine"], found["learning_rate"]) == (7, 0.5)
    assert "trackside/status" not in found
    assert database("other").ids() == []


@pytest.mark.parametrize("why", ["a trial", "another id"])
def test_a_run_of_ones_own_beside_that_of_the_user(loop, new, why):
    import trackio

    users = trackio.open_for("huggingface", "run")
    users.log({"mine": 1})
    other = new()
    other.tracker_id = other.start(RUN)
    other.finish("finished")
    reporter = new(resume=RUN.id if why == "another id" else "auto")
    training = loop(reporter)
    training.state.trial_name = "trial-3" if why == "a trial" else None
    training.begin()
    training.log_at(1, loss=0.5)
    training.fire("on_train_end")
    assert reporter.tracker_id != users.id
    assert len(database().of(users.id)) == 1
    assert trackio.context_vars.current_run.get() is users


def test_the_users_calls_in_the_training_go_to_our_run_at_its_latest_step(loop, new):
    import trackio

    reporter = new()
    training = loop(reporter)
    before = trackio.config
    training.begin()
    trackio.config["batch"] = 3
    training.log_at(7, loss=0.5)
    trackio.log({"mine": 1})
    training.fire("on_train_end")
    assert values(reporter, "mine") == [(8, 1)]
    assert config(reporter)["batch"] == 3
    assert trackio.config is before
    with pytest.raises(RuntimeError, match="before trackio"):
        trackio.log({"mine": 2})


def test_what_the_user_has_opened_meanwhile_stays_his(loop, new):
    import trackio

    reporter = new()
    training = loop(reporter)
    training.begin()
    users = trackio.open_for("mine", "run")
    training.fire("on_train_end")
    assert trackio.context_vars.current_run.get() is users


# ---- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exception", "alerts"),
    [
        (RuntimeError("no memory"), [("Training failed", "error", 2)]),
        (KeyboardInterrupt(), [("Training killed", "warn", 2)]),
        (type("TrialPruned", (Exception,), {})(), []),
    ],
)
def test_a_training_that_did_not_come_to_its_end_is_an_alert_once(loop, new, exception, alerts):
    reporter = new()
    training = loop(reporter)
    with pytest.raises(type(exception)):
        training.train(fail_at=3, exception=exception)
    training.evaluate()
    assert [alert[1:] for alert in database().alerts] == alerts


def test_a_run_that_is_sent_twice_is_stored_and_alerted_once(new):
    for _ in range(2):
        reporter = new()
        reporter.tracker_id = reporter.start(RUN)
        reporter.log_points([Point({"train/loss": 0.5}, 1, None, 1235.5)])
        reporter.finish("failed")
    assert metrics(reporter) == [(1, {"train/loss": 0.5})]
    assert len(database().alerts) == 1


def test_only_the_users_own_calls_print(loop, new, capfd):
    import trackio

    loop(new(log_artifacts=True)).train()
    with pytest.raises(RuntimeError):
        loop(new()).train(fail_at=2)
    assert "rackio" not in capfd.readouterr().out.replace("Reporting to trackio", "").replace("trackio show", "")
    trackio.open_for("mine", "run")
    assert "Trackio opens a run" in capfd.readouterr().out


def test_the_dashboard_is_named_by_its_command(loop, new, capfd):
    reporter = new(project="my digits")
    loop(reporter).train()
    reporter.close()
    assert "trackio show --project 'my digits'" in "".join(capfd.readouterr())
    assert reporter.where() == "trackio show --project 'my digits'"


@pytest.mark.parametrize(("age", "measures"), [(1, True), (3600, False)])
def test_the_machine_is_measured_while_the_training_runs_and_not_in_a_replay(new, age, measures):
    reporter = new(auto_log_gpu=False)
    reporter.start(replace(RUN, time=time.time() - age))
    assert reporter.run.measures == {"gpu": False, "cpu": measures}


# ---- resume ---------------------------------------------------------------------------------------------------------


def test_a_training_that_goes_on_notes_what_has_changed(loop, new, tmp_path):
    first = new()
    with pytest.raises(RuntimeError):
        loop(first, num_train_epochs=2, learning_rate=0.5, seed=7).train(fail_at=7)
    second = new()
    loop(second, num_train_epochs=2, learning_rate=0.25, seed=7).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert second.tracker_id == first.tracker_id
    assert config(second)["trackside/changed_params"]["learning_rate"] == [0.5, 0.25]
    assert "seed" not in config(second)["trackside/changed_params"]
    assert {row["run_name"] for row in rows(second)} == {rows(first)[0]["run_name"]}
    assert [step for step, _ in values(second, "train/loss")] == [1, 2, 3, 4, 5, 6, 5, 6, 7, 8]


def test_a_branch_from_a_finished_run_is_a_run_that_names_it(loop, new, tmp_path):
    first = new()
    loop(first, num_train_epochs=2).train()
    second = new()
    loop(second, num_train_epochs=3).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert second.tracker_id != first.tracker_id
    assert config(second)["trackside/continues"] == first.tracker_id
    assert [step for step, _ in values(second, "train/loss")] == [5, 6, 7, 8, 9, 10, 11, 12]


def test_a_run_that_is_gone_is_followed_by_another_one(loop, new, tmp_path, caplog):
    first = new()
    loop(first).train()
    database().rows.clear()
    second = new()
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert config(second)["trackside/continues"] == first.tracker_id
    assert sum("another one is started" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("by", ["id", "name"])
def test_a_run_that_the_user_names_is_continued_wherever_it_was(loop, new, by):
    first = new()
    loop(first, run_name="blue").train()
    second = new(resume={"id": first.tracker_id, "name": "blue"}[by])
    loop(second, run_name="green").train()
    assert second.tracker_id == first.tracker_id
    assert len(values(second, "train/loss")) == 8


def test_a_run_that_the_user_names_and_that_is_not_there_is_refused(loop, new):
    with pytest.raises(StartError, match="no run mine in the project huggingface"):
        loop(new(resume="mine")).begin()


# ---- databases and inboxes ------------------------------------------------------------------------------------------


def test_on_a_network_file_system_rows_go_to_the_inbox(loop, new, monkeypatch, tmp_path):
    from trackio.fragments import INBOX

    monkeypatch.setenv("TRACKIO_STORAGE_MODE", "jsonl")
    first = new()
    loop(first, run_name="blue").train()
    second = new()
    loop(second, num_train_epochs=2, run_name="blue").train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert {(row["run_id"], row["run"]) for row in INBOX} == {(first.tracker_id, "blue")}
    steps = [row["step"] for row in INBOX if "train/loss" in row["metrics"]]
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8]
    assert INBOX[-1]["config"]["trackside/status"] == "finished"
    assert database().rows == []


@pytest.mark.parametrize(
    ("error", "is_passing"),
    [
        (sqlite3.OperationalError("database is locked"), True),
        (OSError("Could not acquire database lock after 10 seconds"), True),
        (sqlite3.OperationalError("unable to open database file"), False),
        (PermissionError(13, "Permission denied", "/home/trackio"), False),
    ],
)
def test_a_database_in_use_is_waited_for_and_one_that_cannot_be_written_is_an_error(new, error, is_passing):
    from trackio.sqlite_storage import FAILURES

    FAILURES.append(error)
    reporter = new()
    with pytest.raises(type(error)) as raised:
        reporter.start(RUN)
    assert reporter.is_passing(raised.value) is is_passing
    opened = reporter.run
    assert reporter.start(RUN) == RUN.id
    assert reporter.run is opened


# ---- servers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [ADDRESS, f"{ADDRESS}?write_token=sesame"])
def test_a_run_goes_to_a_server(loop, new, server, url, capfd):
    reporter = new(server_url=url)
    loop(reporter).train()
    stored = server.databases["huggingface"]
    losses = [row["step"] for row in stored.of(reporter.tracker_id) if "train/loss" in row["metrics"]]
    assert losses == [1, 2, 3, 4]
    assert stored.configs[reporter.tracker_id]["trackside/status"] == "finished"
    assert database().rows == []
    shown = "".join(capfd.readouterr())
    assert ADDRESS in shown
    assert "sesame" not in shown


def test_a_training_goes_on_in_its_run_at_a_server(loop, new, server, tmp_path):
    first = new(server_url=ADDRESS)
    loop(first, num_train_epochs=1).train()
    second = new(server_url=ADDRESS)
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out" / "checkpoint-4")
    assert server.databases["huggingface"].ids() == [first.tracker_id]


def test_a_replay_learns_where_a_run_is_but_no_token(new, server):
    reporter = new(server_url=f"{ADDRESS}?write_token=sesame")
    reporter.start(RUN)
    assert reporter.place() == {"project": "huggingface", "server_url": ADDRESS}


def test_a_wrong_token_is_refused_in_a_sentence(loop, new, server):
    with pytest.raises(StartError, match=r"answers 400: A write_token is required"):
        loop(new(server_url=ADDRESS, write_token="guess")).begin()


def test_a_server_needs_a_token(loop, new, monkeypatch):
    monkeypatch.setenv("TRACKIO_SERVER_URL", ADDRESS)
    assert TrackioCallback().configured() == Configured(False, "its server needs a token; set TRACKIO_WRITE_TOKEN")
    assert TrackioCallback(server_url=f"{ADDRESS}?write_token=sesame").configured()
    with pytest.raises(StartError, match="needs a token; set TRACKIO_WRITE_TOKEN"):
        loop(new()).begin()


def test_a_server_that_is_not_there_ends_nothing(loop, new, caplog):
    training = loop(new(server_url=ADDRESS, write_token="sesame"))
    training.train()
    assert training.state.global_step == 4
    assert sum("trackio cannot be reached" in message for message in caplog.messages) == 1


def test_a_trouble_of_a_server_is_told_from_a_refusal(new, server):
    from trackio.remote_client import Answer, HTTPStatusError, TransportError

    reporter = new(server_url=ADDRESS)
    reporter.start(RUN)
    troubles = [HTTPStatusError(Answer(429, "slowly")), HTTPStatusError(Answer(502, "")), TransportError("timed out")]
    server.troubles += [*troubles, HTTPStatusError(Answer(413, "too large"))]
    point = Point({"train/loss": 0.5}, 1, None, 1234.5)
    found = []
    for _ in range(4):
        with pytest.raises((ConnectionError, RuntimeError)) as raised:
            reporter.log_points([point])
        found.append((str(raised.value), reporter.is_passing(raised.value)))
    assert found == [
        (f"{ADDRESS} answers 429: slowly", True),
        (f"{ADDRESS} answers 502: Trouble", True),
        (f"{ADDRESS} does not answer (timed out)", True),
        (f"{ADDRESS} answers 413: too large", False),
    ]
    reporter.log_points([point])
    assert server.databases["huggingface"].rows[-1]["metrics"] == {"train/loss": 0.5}


def test_a_start_that_hangs_is_given_up_and_what_comes_of_it_is_for_the_next_try(new, monkeypatch):
    monkeypatch.setattr("trackside_trackio.reporter.START_SECONDS", 0.05)
    may_go_on, reporter = threading.Event(), new()
    monkeypatch.setattr("trackside_trackio.opening.find", lambda *_: may_go_on.wait(20) and None)
    with pytest.raises(TimeoutError) as late:
        reporter.start(replace(RUN, tracker_id="gone"))
    assert reporter.is_passing(late.value)
    may_go_on.set()
    deadline = time.monotonic() + 20
    while reporter.run is None and time.monotonic() < deadline:
        time.sleep(0.01)
    opened = reporter.run
    monkeypatch.setattr("trackside_trackio.reporter.START_SECONDS", 20)
    reporter.start(replace(RUN, tracker_id="gone"))
    assert reporter.run is opened is not None


def test_an_end_that_hangs_is_given_up(new, monkeypatch):
    monkeypatch.setattr("trackside_trackio.reporter.FINISH_SECONDS", 0.05)
    may_go_on, reporter = threading.Event(), new()
    reporter.start(RUN)
    monkeypatch.setattr(reporter.run, "finish", lambda: may_go_on.wait(20))
    with pytest.raises(TimeoutError):
        reporter.finish("finished")
    may_go_on.set()


# ---- Spaces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bucket", "mounted"), [(None, "me/digits-bucket-free"), ("me/own", "me/own")])
def test_a_space_is_made_with_its_bucket_and_takes_the_run(loop, new, hub, bucket, mounted, capfd):
    reporter = new(space_id="digits", bucket_id=bucket)
    loop(reporter).train()
    assert len(hub["me/digits"].databases["huggingface"].ids()) == 1
    assert (reporter.place(), "https://huggingface.co/spaces/me/digits" in "".join(capfd.readouterr())) == ({}, True)
    reporter.start(RUN)
    assert reporter.place() == {"project": "huggingface", "space_id": "me/digits", "bucket_id": mounted}


def test_the_arguments_of_transformers_name_a_space(loop, new, hub):
    from trackio import PUBLISHED

    arguments = {"trackio_space_id": "me/mine", "trackio_bucket_id": "me/b", "trackio_static_space_id": "me/copy"}
    reporter = new()
    loop(reporter, args=TransformersArguments(project="digits", **arguments)).train()
    assert hub["me/mine"].databases["digits"].ids() == [reporter.tracker_id]
    assert PUBLISHED[0] == {"from": "me/mine", "project": "digits", "to": "me/copy"}


def test_a_space_that_takes_no_rows_is_refused(loop, new, hub, monkeypatch):
    from trackio.deploy import FROZEN

    FROZEN.add("me/old")
    with pytest.raises(StartError, match="because it has been frozen"):
        loop(new(space_id="me/old")).begin()
    monkeypatch.setenv("HF_TOKEN", "of somebody else")
    with pytest.raises(StartError, match="Invalid user token"):
        loop(new(space_id="me/old")).begin()


def test_a_space_needs_a_token_of_hugging_face(loop, new, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    reporter = new(space_id="me/digits")
    assert reporter.configured() == Configured(False, "a Space needs a token; type: hf auth login")
    with pytest.raises(StartError, match="type: hf auth login"):
        loop(reporter).begin()
    (tmp_path / "token").write_text("a token")
    assert reporter.configured()


@pytest.mark.parametrize(
    ("option", "argument", "published"),
    [
        (None, None, "my-digits-static-"),
        (None, "me/copy", "me/copy"),
        (None, False, None),
        (True, False, "my-digits-static-"),
        ("me/other", "me/copy", "me/other"),
        (False, "me/copy", None),
    ],
)
def test_a_static_space_is_made_with_a_push_as_it_is_wanted(loop, new, option, argument, published):
    from trackio import PUBLISHED

    model = FakeModel()
    model.model_tags = ["vision", "trackio", "trackio:https://huggingface.co/spaces/me/old"]
    args = TransformersArguments(project="My Digits!", trackio_static_space_id=argument)
    training = loop(new(static_space_id=option), model=model, args=args)
    training.train()
    training.fire("on_push_begin")
    if published is None:
        assert PUBLISHED == []
        assert "trackio:https://huggingface.co/spaces/me/old" in model.model_tags
        return
    (copy,) = PUBLISHED
    assert copy["project"] == "My Digits!"
    assert copy["to"].startswith(published)
    assert model.model_tags == ["vision", "trackio", f"trackio:https://huggingface.co/spaces/me/{copy['to']}"]


def test_a_loop_that_knows_no_static_space_publishes_nothing(loop, new):
    from trackio import PUBLISHED

    training = loop(new())
    training.train()
    training.fire("on_push_begin")
    assert PUBLISHED == []


def test_what_cannot_be_published_is_a_warning(loop, new, caplog):
    training = loop(new(static_space_id=True, private=True))
    training.train()
    training.fire("on_push_begin")
    assert sum("was not published" in message and "private=True" in message for message in caplog.messages) == 1
