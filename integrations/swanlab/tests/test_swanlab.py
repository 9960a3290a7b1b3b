"""The contract of a reporter, and what is special in SwanLab, against a fake that drops what the real one drops."""

from __future__ import annotations

import atexit
import copy
import math
import os
import pickle
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from server import serving

from trackside import Configured, Point, Run, StartError
from trackside_swanlab import SwanLabCallback
from trackside_testkit import Reported, ReporterContract
from trackside_testkit.integration import declared_options, documented_options
from trackside_testkit.loop import FakeConfig, FakeModel
from trackside_testkit.workbench import in_forked_child

STATUS = {"running": "running", "success": "finished", "crashed": "failed", "aborted": "killed"}
ONE_VALUE_A_STEP = "SwanLab keeps one value of a metric at a step, and this logs two; a test below logs them apart"


def runs():
    from swanlab.run import RUNS

    return RUNS


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
        return [self.reported(run) for run in runs()]

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
            status=STATUS[run.state],
        )


def test_the_table_of_options_in_the_readme_is_that_of_the_class():
    readme = Path(__file__).parents[1] / "README.md"
    assert documented_options(readme) == declared_options(SwanLabCallback)


# ---- what tests look at ---------------------------------------------------------------------------------------------

RUN = Run(id="0123456789ab", name="blue", output_dir="out", time=1234.5)


def started(reporter, run=RUN):
    """Start a run as the delivery does."""
    reporter.import_sdk()
    reporter.tracker_id = reporter.start(run)


def log(training, step, **values):
    training.state.global_step = step
    training.log(values)


def values(key, run=None):
    return [(step, value) for name, step, value in (run or runs()[-1]).points if name == key]


def warnings(caplog, part):
    return [message for message in caplog.messages if part in message]


# ---- values ---------------------------------------------------------------------------------------------------------


def test_a_value_has_the_step_and_the_time_of_its_log(loop, new, monkeypatch):
    training = loop(new())
    training.begin()
    monkeypatch.setattr("trackside.recorder.time.time", lambda: 1234.5)
    log(training, 30, loss=1)
    log(training, 3, eval_loss=0.5)
    (run,) = runs()
    assert run.points == [
        ("train/loss", 30, 1.0),
        ("train/epoch", 30, 0.0),
        ("eval/loss", 3, 0.5),
        ("train/epoch", 3, 0.0),
    ]
    assert run.times == [1234.5] * 4


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2**70, 1e300, 5e-324, True])
def test_a_number_is_stored_as_it_is(loop, new, value):
    training = loop(new())
    training.begin()
    log(training, 1, loss=value)
    ((step, stored),) = values("train/loss")
    assert (step, type(stored)) == (1, float)
    assert stored == value or (math.isnan(stored) and math.isnan(value))


def test_a_second_value_of_a_step_is_left_out_with_one_warning(loop, new, caplog):
    training = loop(new())
    training.begin()
    for loss in (1.0, 2.0, 3.0):
        log(training, 7, loss=loss)
    log(training, 5, loss=4.0)
    assert values("train/loss") == [(7, 1.0), (5, 4.0)]
    assert len(warnings(caplog, "train/loss has one at step 7")) == 1
    assert warnings(caplog, "train/epoch") == []


def test_a_text_under_the_name_of_a_number_is_kept_beside_it(loop, new):
    training = loop(new())
    training.begin()
    log(training, 1, loss=1.0)
    log(training, 2, loss="diverged")
    log(training, 3, loss=2.0)
    assert values("train/loss") == [(1, 1.0), (3, 2.0)]
    assert runs()[-1].texts == [("train/loss (Text)", 2, "diverged")]


@pytest.mark.parametrize(
    "keys", [("loss", "loss.", "loss/"), ("x", " x", "x\t"), ("cpu", "__swanlab__.cpu"), ("", "/")]
)
def test_names_that_swanlab_would_cut_or_drop_stay_apart(loop, new, keys):
    training = loop(new(key_style="raw"))
    training.begin()
    training.log({key: float(number) for number, key in enumerate(keys)})
    (run,) = runs()
    found = {key: value for key, _, value in run.points if key != "epoch"}
    assert list(found.values()) == [float(number) for number, _ in enumerate(keys)]
    assert {key: found[key] for key in keys[:1] if key} == {key: 0.0 for key in keys[:1] if key}


def test_a_text_that_is_not_unicode_harms_nothing(loop, new):
    training = loop(new(), model=FakeModel(FakeConfig(file="caf\udce9")))
    training.begin()
    log(training, 1, note="caf\udce9", **{f"x{byte}": number for number, byte in enumerate("\udce8\udce9")})
    (run,) = runs()
    assert run.texts == [("train/note", 1, "caf?")]
    assert run.config["file"] == "caf?"
    assert sorted(value for key, _, value in run.points if key.startswith("train/x")) == [0.0, 1.0]


def test_parameters_keep_the_sign_of_an_infinity(loop, new):
    odd = {"least": -math.inf, "most": math.inf, "none": math.nan, "nested": [1, -math.inf], "huge": 2**70}
    training = loop(new(), lr_scheduler_kwargs=odd)
    training.begin()
    config = runs()[-1].config
    assert [config[f"lr_scheduler_kwargs/{name}"] for name in odd] == ["-inf", "inf", "nan", [1, "-inf"], 2.0**70]


def test_a_config_says_where_the_run_comes_from(loop, new):
    model = FakeModel()
    model.num_parameters = lambda: 11_689_512
    training = loop(new(), model=model)
    training.state.trial_name, training.state.trial_params = "trial-3", {"lr": {"max": 0.5}}
    training.begin()
    (run,) = runs()
    assert run.config["trackside/python"] == sys.version.split()[0]
    assert run.config["model/num_parameters"] == 11_689_512
    assert (run.config["trial/name"], run.config["trial/lr/max"]) == ("trial-3", 0.5)
    assert run.about["group"] == str(training.args.output_dir)


def test_values_that_could_not_be_written_are_told_at_the_end(loop, new, caplog):
    from swanlab.run import FAILURES

    reporter = new()
    training = loop(reporter)
    training.begin()
    log(training, 1, loss=1.0)
    FAILURES.append("No space left on device")
    log(training, 2, loss=0.5)
    reporter.close()
    assert len(warnings(caplog, "finish failed (RuntimeError: upsert data error: No space left")) == 1
    assert values("train/loss") == [(1, 1.0)]


def test_a_value_that_is_not_taken_is_told_at_the_end(new):
    reporter = new()
    started(reporter)
    reporter.log_points([Point({"train/loss": 0.5}, 2**48 + 1, None, 1234.5)])
    for _ in range(2):  # a courier asks again
        with pytest.raises(RuntimeError, match=f"train/loss at {2**48 + 1}"):
            reporter.finish("finished")
    started(reporter)
    reporter.finish("finished")


# ---- files ----------------------------------------------------------------------------------------------------------


def test_checkpoints_stay_here_unless_they_are_asked_for(loop, new):
    loop(new()).train()
    assert runs()[-1].saved == {}


@pytest.mark.parametrize(("word", "is_kept"), [("false", False), ("0", False), ("checkpoint", True), ("TRUE", True)])
def test_checkpoints_are_asked_for_by_any_word_that_is_not_no(loop, new, monkeypatch, word, is_kept):
    monkeypatch.setenv("SWANLAB_LOG_MODEL", word)
    loop(new()).train()
    assert ("checkpoint-4/model.bin" in runs()[-1].saved) is is_kept


def test_a_file_is_kept_though_the_loop_deletes_its_own(loop, new, tmp_path):
    training = loop(new(log_model=True), output_dir=tmp_path / "out [1]*")
    training.begin(3)
    folder = training.save()
    content = folder.joinpath("model.bin").read_bytes()
    folder.joinpath("model.bin").unlink()
    kept = next(Path(runs()[-1].dir).rglob("model.bin"))
    assert kept.read_bytes() == runs()[-1].saved["checkpoint-3/model.bin"] == content


def test_a_text_beyond_the_limit_is_whole_in_a_file(loop, new, monkeypatch):
    monkeypatch.setattr(SwanLabCallback, "limits", SwanLabCallback.limits._replace(text=100))
    training = loop(new())
    training.begin()
    log(training, 7, note="word " * 100)
    assert len(runs()[-1].texts[0][2]) == 100
    assert runs()[-1].saved["texts/train/note/00000007.txt"].decode() == "word " * 100


# ---- runs -----------------------------------------------------------------------------------------------------------


def test_a_forked_child_reports_nothing_and_leaves_the_run_open(loop, new):
    reporter = new()
    training = loop(reporter)
    training.begin()
    log(training, 1, loss=0.5)

    def use_in_child():
        log(training, 2, loss=100.0)
        training.fire("on_train_end")
        reporter.close()
        return values("train/loss") == [(1, 0.5)]

    assert in_forked_child(use_in_child)
    log(training, 2, loss=0.25)
    assert values("train/loss") == [(1, 0.5), (2, 0.25)]


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda reporter: pickle.loads(pickle.dumps(reporter))])
def test_a_copy_reports_a_run_of_its_own(loop, new, clone):
    reporter = new(project="digits")
    training = loop(reporter)
    training.begin()
    log(training, 1, loss=0.5)
    copied = clone(reporter)
    reporter.close()
    assert copied.run is None
    loop(copied).train()
    copied.close()
    first, second = runs()
    assert (first.project, second.project) == ("digits", "digits")
    assert [len(values("train/loss", run)) for run in (first, second)] == [1, 4]


def test_a_run_of_the_users_is_logged_to_and_never_finished(loop, new):
    import swanlab

    users = swanlab.init(project="mine", mode="offline", log_dir="mine")
    users.config["mine"] = 7
    reporter = new(project="other")
    loop(reporter, learning_rate=0.5).train()
    reporter.close()
    assert users.alive
    assert runs() == [users]
    assert len(values("train/loss")) == 4
    assert (users.config["mine"], users.config["learning_rate"]) == (7, 0.5)


@pytest.mark.parametrize("why", ["a trial", "another id"])
def test_there_is_no_second_run_beside_that_of_the_user(loop, new, why):
    import swanlab

    swanlab.init(project="mine", mode="offline", log_dir="mine")
    training = loop(new(resume=RUN.id if why == "another id" else "auto"))
    training.state.trial_name = "trial-3" if why == "a trial" else None
    with pytest.raises(StartError, match=r"swanlab\.finish\(\) it"):
        training.begin()


def test_there_is_no_second_run_beside_one_of_ours(loop, new):
    loop(new(project="one")).begin()
    with pytest.raises(StartError, match="one run at a time in a process"):
        loop(new(project="two")).begin()


def test_calls_of_the_user_go_to_our_run_at_its_next_step(loop, new):
    import swanlab

    training = loop(new())
    training.begin()
    log(training, 7, loss=0.5)
    swanlab.log({"mine": 1.5})
    assert values("mine") == [(8, 1.5)]


def test_a_run_that_the_user_has_finished_is_told_of_once(loop, new, caplog):
    import swanlab

    training = loop(new())
    training.begin()
    swanlab.get_run().finish()
    for step in (1, 2):
        log(training, step, loss=0.5)
    assert len(warnings(caplog, "finished by somebody else")) == 1


@pytest.mark.parametrize(
    ("exception", "state", "error", "status"),
    [
        (RuntimeError("no memory"), "crashed", "The training has failed.", None),
        (KeyboardInterrupt(), "aborted", None, None),
        (type("TrialPruned", (Exception,), {})(), "aborted", None, "pruned"),
    ],
)
def test_a_training_that_did_not_come_to_its_end_says_so(loop, new, exception, state, error, status):
    with pytest.raises(type(exception)):
        loop(new()).train(fail_at=3, exception=exception)
    (run,) = runs()
    assert (run.state, run.error, run.config.get("trackside/status")) == (state, error, status)


def test_hooks_of_the_sdk_are_taken_off(loop, new, monkeypatch):
    unregistered = []
    monkeypatch.setattr(atexit, "unregister", unregistered.append)
    reporter = new()
    handler = signal.getsignal(signal.SIGINT)
    loop(reporter).begin()
    assert reporter.run._handle_atexit in unregistered
    hook = sys.excepthook
    assert "swanlab" not in getattr(hook, "__module__", "")
    reporter.close()
    assert sys.excepthook is hook
    assert signal.getsignal(signal.SIGINT) is handler


def test_only_the_users_own_calls_print(loop, new, capfd):
    import swanlab

    training = loop(new(log_model=True))
    training.begin()
    training.save()
    assert "swanlab:" not in capfd.readouterr().out.replace("Reporting to swanlab", "")
    swanlab.log({"mine": 1.5}, step=-1)
    assert "Step must be a non-negative integer" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        ("offline", "swanlab sync --id {run.id} {run.dir}"),
        ("local", "swanlab watch {run.dir.parent}"),
        ("disabled", None),
    ],
)
def test_the_run_is_shown_by_a_command(new, mode, shown):
    reporter = new(mode=mode)
    started(reporter)
    assert reporter.where() == (shown and shown.format(run=reporter.run))


def test_a_replay_learns_where_the_run_is(new, monkeypatch, tmp_path):
    folder = tmp_path / "digits"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SWANLAB_MODE", "local")
    reporter = new(mode=None, workspace="team")
    started(reporter)
    assert reporter.place() == {"mode": "local", "project": "digits", "workspace": "team"}


def test_a_run_is_switched_off_by_its_mode(loop, new, caplog, monkeypatch):
    monkeypatch.setenv("SWANLAB_MODE", "disabled")
    reporter = new(mode="disabled", log_model=True)
    loop(reporter).train()
    assert runs() == []
    assert len(warnings(caplog, "switched off by SWANLAB_MODE")) == 1
    assert reporter.configured()
    reporter.required = False
    assert reporter.configured() == Configured(False, "SWANLAB_MODE switches it off")


# ---- options --------------------------------------------------------------------------------------------------------


def test_variables_reach_the_sdk(loop, new, monkeypatch, tmp_path):
    said = {"SWANLAB_PROJECT": "digits", "SWANLAB_WORKSPACE": "team", "SWANLAB_RUN_ID": "x", "SWANLAB_RESUME": "must"}
    said |= {"SWANLAB_MODE": "local", "SWANLAB_LOG_DIR": str(tmp_path / "logs"), "SWANLAB_TAGS": "a, b"}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    training = loop(SwanLabCallback())
    training.begin()
    training.fire("on_train_end")
    (run,) = runs()
    found = (run.project, run.about["workspace"], run.id, run.about["resume"], run.mode, run.dir.parent)
    assert found == ("digits", "team", "x", "must", "local", tmp_path / "logs")
    assert run.about["tags"] == ["a", "b"]
    assert os.environ["SWANLAB_PROJECT"] == "digits"


def test_what_is_not_set_is_the_folder_and_a_run_that_can_be_continued(loop, new, tmp_path, monkeypatch):
    folder = tmp_path / "my digits"
    folder.mkdir()
    reporter = new()
    training = loop(reporter, run_name="blue")
    monkeypatch.chdir(folder)
    training.begin()
    (run,) = runs()
    assert (run.project, run.name, run.id, run.about["resume"]) == ("my_digits", "blue", reporter.tracker_id, "allow")
    assert run.dir.parent == tmp_path / "out" / "_swanlab"


@pytest.mark.parametrize(("name", "value"), [("SWANLAB_MODE", "onlin"), ("SWANLAB_RESUME", "always")])
def test_a_word_that_nobody_knows_is_refused(loop, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises((StartError, ValueError), match=f"{name}='{value}' is not understood"):
        loop(SwanLabCallback(**({} if name == "SWANLAB_MODE" else {"mode": "offline"}))).begin()


@pytest.mark.parametrize(("age", "measured"), [(1, None), (3600, False)])
def test_neither_command_lines_nor_output_are_sent_nor_the_machine_of_a_replay(new, monkeypatch, age, measured):
    monkeypatch.setattr("trackside_swanlab.opening.time.time", lambda: RUN.time + age)
    reporter = new()
    started(reporter)
    given = reporter.run.settings.given
    assert (given["probe"]["runtime"], given["probe"]["git"], given["terminal"]["proxy_type"]) == (False, False, "none")
    assert given["probe"].get("monitor") is measured


def test_what_the_user_says_of_the_probe_is_left_to_him(new, monkeypatch):
    monkeypatch.setenv("SWANLAB_PROBE_GIT", "true")
    reporter = new()
    started(reporter)
    assert "git" not in reporter.run.settings.given["probe"]


# ---- online ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def online(new, monkeypatch):
    """A function that makes a reporter whose server takes its key."""
    with serving(200) as server:
        monkeypatch.setenv("SWANLAB_API_HOST", server.address)
        monkeypatch.setenv("SWANLAB_API_KEY", "key-of-the-user")
        yield lambda **options: new(mode="online", **options)


def test_a_run_is_shown_by_its_address(loop, online, capfd):
    loop(online(project="digits")).train()
    assert "https://swanlab.test/@me/digits/runs/" in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("status", "error", "is_passing"),
    [(401, "refuses the key; type: swanlab login", False), (503, "503", True), (429, "429", True)],
)
def test_a_trouble_of_the_server_is_told_from_a_wrong_key(new, monkeypatch, status, error, is_passing):
    monkeypatch.setenv("SWANLAB_API_KEY", "key-of-the-user")
    reporter = new(mode="online")
    with serving(status) as server:
        monkeypatch.setenv("SWANLAB_API_HOST", server.address)
        with pytest.raises((OSError, RuntimeError), match=error) as raised:
            started(reporter)
    assert reporter.is_passing(raised.value) is is_passing
    assert server.asked == [("/api/login/api_key", "key-of-the-user")]


@pytest.mark.parametrize(("status", "is_passing"), [(403, False), (429, True), ("unknown code", True)])
def test_a_run_that_is_refused_is_told_from_a_trouble_of_its_server(online, status, is_passing):
    from swanlab.run import ANSWERS

    ANSWERS.append(status)
    reporter = online()
    with pytest.raises((OSError, RuntimeError), match="Failed to start run") as raised:
        started(reporter)
    assert reporter.is_passing(raised.value) is is_passing
    started(reporter)
    assert reporter.run.alive


def test_a_server_that_is_not_there_ends_nothing(loop, new, monkeypatch, caplog):
    with serving(200) as server:
        monkeypatch.setenv("SWANLAB_API_HOST", server.address)
    monkeypatch.setenv("SWANLAB_API_KEY", "key-of-the-user")
    training = loop(new(mode="online"))
    training.train()
    assert training.state.global_step == 4
    assert len(warnings(caplog, "swanlab cannot be reached")) == 1


def test_a_key_is_found_wherever_swanlab_finds_it(loop, new, monkeypatch, tmp_path):
    loop()
    reporter = new(mode=None)
    assert reporter.configured().why.startswith("it has no key; type: swanlab login")
    with pytest.raises(StartError, match="it has no key"):
        loop(reporter).begin()
    for file, text in ((".env", "SWANLAB_API_KEY=x"), (".swanlab/.netrc", "machine x"), ("swanlab.yaml", "api_key: x")):
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        assert reporter.configured(), file
        path.unlink()
    monkeypatch.setenv("SWANLAB_API_KEY", "x")
    assert reporter.configured()


def test_a_training_goes_on_in_its_run_and_says_what_the_server_does_not_take(loop, online, tmp_path, caplog):
    first = online()
    with pytest.raises(RuntimeError):
        loop(first, num_train_epochs=2).train(fail_at=7)
    second = online()
    training = loop(second, num_train_epochs=2)
    training.loss = lambda step: 10.0 * step
    training.train(resume_from=tmp_path / "out" / "checkpoint-4")
    before, after = runs()
    assert (before.id, before.state) == (after.id, "crashed")
    assert [step for step, _ in values("train/loss", before)] == [1, 2, 3, 4, 5, 6]
    assert values("train/loss", after) == [(7, 70.0), (8, 80.0)]
    assert warnings(caplog, "has one at step") == []
    assert len(warnings(caplog, "swanlab has this run up to step 6")) == 1


@pytest.mark.parametrize(("answers", "is_lost"), [((503, 429), False), ((503, 400), True)])
def test_what_a_server_refuses_for_good_is_told_at_the_end(online, capfd, answers, is_lost):
    from swanlab.run import ANSWERS

    reporter = online()
    started(reporter)
    ANSWERS.extend(answers)
    if is_lost:
        with pytest.raises(RuntimeError, match="POST /house/metrics -> 400"):
            reporter.finish("finished")
    else:
        reporter.finish("finished")
    assert "HTTP" not in "".join(capfd.readouterr())


def test_an_end_that_hangs_is_given_up_and_waited_for_by_the_next_try(online, monkeypatch):
    from swanlab.run import UPLOADS

    monkeypatch.setattr("trackside_swanlab.reporter.FINISH_SECONDS", 0.05)
    reporter = online()
    started(reporter)
    UPLOADS.clear()
    for again in (reporter.finish, reporter.finish, lambda _: started(reporter)):
        with pytest.raises(TimeoutError) as late:
            again("finished")
        assert reporter.is_passing(late.value)
    UPLOADS.set()
    monkeypatch.setattr("trackside_swanlab.reporter.FINISH_SECONDS", 20)
    reporter.finish("finished")
    assert runs()[-1].state == "success"
    started(reporter)
    assert [run.state for run in runs()] == ["success", "running"]


def test_a_start_that_hangs_is_given_up_and_what_comes_of_it_is_closed(new, monkeypatch):
    monkeypatch.setattr("trackside_swanlab.reporter.START_SECONDS", 0.05)
    may_go_on, ended = threading.Event(), threading.Event()
    from swanlab.run import Run as FakeRun

    monkeypatch.setattr("trackside_swanlab.opening._project", lambda *_: may_go_on.wait(20) and "digits")
    finish = FakeRun.finish
    monkeypatch.setattr(FakeRun, "finish", lambda run, **said: (finish(run, **said), ended.set()))
    reporter = new()
    with pytest.raises(TimeoutError) as late:
        started(reporter, replace(RUN, tracker_id="gone"))
    assert reporter.is_passing(late.value)
    may_go_on.set()
    assert ended.wait(20)
    assert runs()[-1].state == "aborted"
