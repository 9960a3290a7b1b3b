"""The contract of a reporter, and what is special in DVCLive, against a fake that refuses what the real one refuses."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import Stored

from trackside import StartError
from trackside.records import Point, Run
from trackside_dvclive import DVCLiveCallback
from trackside_testkit import Reported, ReporterContract
from trackside_testkit.integration import declared_options, documented_options, maker_of

README = Path(__file__).parents[1] / "README.md"
RUN = Run(id="0123456789ab", name="blue", output_dir="out", time=1234.5)

new = maker_of(DVCLiveCallback)


class TestDVCLive(ReporterContract):
    reporter_class = DVCLiveCallback

    def make_reporter(self, **options):
        return DVCLiveCallback(log_model="all", **options)

    def read(self) -> list[Reported]:
        return [Stored(file.parent).reported() for file in self.folder.glob("out/dvclive/*/metrics.json")]


def test_the_table_of_options_in_the_readme_is_that_of_the_class():
    assert documented_options(README) == declared_options(DVCLiveCallback)


# ---- what tests look at ---------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path):
    """The test runs in a repository of Git and DVC."""
    for folder in (".git", ".dvc"):
        (tmp_path / folder).mkdir()
    from dvclive.repository import EXPERIMENTS

    return EXPERIMENTS


def load_yaml(path):
    return json.loads(Path(path).read_text("utf-8"))


def stored(reporter):
    return Stored(Path(reporter.tracker_id))


def point(step, time=1234.5, **values):
    return Point({f"train/{name}": value for name, value in values.items()}, step, None, time)


@pytest.fixture
def started(tmp_path, monkeypatch, new):
    """A function that makes a reporter and starts it, without a loop."""
    monkeypatch.chdir(tmp_path)
    made = []

    def start(run=RUN, **options):
        made.append(new(**options))
        made[-1].tracker_id = made[-1].start(run)
        return made[-1]

    yield start
    for reporter in made:
        reporter.flush()


# ---- rows -----------------------------------------------------------------------------------------------------------


def test_a_row_has_the_time_and_the_step_of_its_log(started):
    reporter = started()
    reporter.log_points([point(30, 1234.5678, loss=1), point(3, 1235, loss=0.5)])
    assert stored(reporter).rows() == [
        ("train/loss", {"timestamp": "1234568", "step": "30", "loss": "1"}),
        ("train/loss", {"timestamp": "1235000", "step": "3", "loss": "0.5"}),
    ]


def test_more_metrics_than_files_can_be_open_are_all_written(started, monkeypatch):
    monkeypatch.setattr("trackside_dvclive.tables.MOST_OPEN_FILES", 2)
    reporter = started()
    for step in (1, 2):
        reporter.log_points([point(step, **dict.fromkeys("abcde", step))])
    assert stored(reporter).points == {f"train/{name}": [(1, 1), (2, 2)] for name in "abcde"}


def test_a_batch_that_fails_half_way_leaves_nothing_and_can_be_sent_again(started, monkeypatch):
    from trackside_dvclive.tables import Table

    reporter = started()
    reporter.log_points([point(1, loss=3.0)])
    append = Table.append

    def fill_the_disk(table, rows):
        append(table, rows)
        if "late" in table.path:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Table, "append", fill_the_disk)
    with pytest.raises(OSError, match="No space") as raised:
        reporter.log_points([point(2, loss=2.0, late=1.0)])
    monkeypatch.setattr(Table, "append", append)
    assert reporter.is_passing(raised.value)
    assert stored(reporter).points == {"train/loss": [(1, 3.0)]}
    reporter.log_points([point(2, loss=2.0, late=1.0)])
    assert stored(reporter).points == {"train/loss": [(1, 3.0), (2, 2.0)], "train/late": [(2, 1.0)]}


def test_a_text_stands_in_one_line(loop, new):
    text = 'a "quoted"\ttext,\r\nof \\n two lines'
    reporter = new()
    training = loop(reporter)
    training.begin(3)
    training.log({"note": text, "byte": "caf\udce9"})
    (tables,) = Path(reporter.tracker_id, "texts").iterdir()
    assert tables.joinpath("note.tsv").read_bytes().count(b"\n") == 2
    assert stored(reporter).texts == {"train/note": [(3, text)], "train/byte": [(3, "caf?")]}


def test_names_of_files_are_measured_in_bytes(loop, new):
    names = ["損" * 100 + ending for ending in "ab"]
    reporter = new()
    training = loop(reporter)
    training.begin()
    training.log({name: number for number, name in enumerate(names)})
    found = {rows[0][1] for key, rows in stored(reporter).points.items() if "損" in key}
    assert found == {0, 1}


@pytest.mark.parametrize("first", ["a", "a/b"])
def test_a_metric_beside_one_that_is_its_folder_keeps_its_value(started, first):
    reporter = started(key_style="raw")
    second = {"a": "a/b", "a/b": "a"}[first]
    for step, key in enumerate((first, second, first, second), 1):
        reporter.log_points([Point({key: step, "step": 7, "a.tsv/c": 8}, step, None, 1234.5)])
    reporter.flush()
    summary = stored(reporter).summary
    assert summary["step"] == 4
    assert summary["step_"] == 7
    assert (summary["a"], summary["a_"]) == ((3, {"b": 4}) if first == "a" else ({"b": 3}, 4))
    assert stored(reporter).points[first] == [(1, 1), (3, 3)]


@pytest.mark.parametrize(("value", "kept"), [(math.nan, "nan"), (math.inf, "inf"), (2**70, 2**70), (0.5, 0.5)])
def test_the_summary_has_the_latest_value_in_words_of_dvclive(started, value, kept):
    reporter = started()
    reporter.log_points([point(1, loss=9.0), point(2, loss=value)])
    reporter.flush()
    assert stored(reporter).summary["train"] == {"loss": kept}


def test_the_summary_follows_now_and_then_and_not_each_log(started, monkeypatch):
    reporter = started()
    written = []
    monkeypatch.setattr(reporter.run, "next_step", lambda: written.append(reporter.run.step))
    for step in range(1, 100):
        reporter.log_points([point(step, loss=step)])
    assert written == []
    reporter._refresh_at = 0
    reporter.log_points([point(100, loss=100)])
    assert written == [99]


def test_what_is_new_is_shown_also_while_nothing_is_logged(started, monkeypatch):
    reporter = started()
    written = []
    monkeypatch.setattr(reporter.run, "next_step", lambda: written.append(reporter.run.step))
    reporter.log_points([point(1, loss=0.5)])
    reporter._refresh_at = 0
    for _ in range(3):
        reporter.flush()
    assert written == [1]


def test_what_shows_a_run_is_said_when_it_begins(loop, new, capfd):
    loop(new(), run_name="blue").train()
    assert "dvc plots show -x step" in "".join(capfd.readouterr())


def test_a_run_that_is_not_yet_over_is_running(started):
    assert stored(started()).summary["trackside"] == {"run": RUN.id, "status": "running"}


# ---- params ---------------------------------------------------------------------------------------------------------


def test_params_say_where_the_run_comes_from(loop, new):
    reporter = new()
    training = loop(reporter, learning_rate=0.5)
    training.state.trial_name, training.state.trial_params = "trial-3", {"depth": 2}
    training.model.num_parameters = lambda: 11_689_512
    training.begin()
    params = stored(reporter).params
    assert params["learning_rate"] == 0.5
    assert params["trial/name"] == "trial-3"
    assert params["trial/depth"] == 2
    assert params["model/num_parameters"] == 11_689_512
    assert params["trackside/run"] == stored(reporter).summary["trackside"]["run"]


def test_a_param_that_is_not_unicode_harms_no_other(started):
    reporter = started()
    reporter.log_params({"name": "caf\udce9", "list": [1, "\udce9"], "seed": 7})
    params = stored(reporter).params
    assert (params["name"], params["list"], params["seed"]) == ("caf?", [1, "?"], 7)


# ---- folders --------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_taken_is_left_to_its_run(loop, new, tmp_path):
    for loss in (0.5, 0.25):
        training = loop(new(dir="mine"))
        training.begin()
        training.log({"loss": loss})
        training.fire("on_train_end")
    points = [Stored(tmp_path / name).points["train/loss"] for name in ("mine", "mine-2")]
    assert points == [[(0, 0.5)], [(0, 0.25)]]


def test_a_start_that_is_tried_again_takes_the_same_folder(started):
    first = started()
    first.log_points([point(1, loss=0.5)])
    first.log_text("note", "half-way", 1, 1234.5)
    second = started()
    assert second.tracker_id == first.tracker_id
    assert (stored(second).points, stored(second).texts) == ({}, {})


def test_dvc_is_told_of_each_thing_once(started):
    reporter = started()
    reporter.finish("finished")
    found = load_yaml(os.path.join(reporter.tracker_id, "dvc.yaml"))
    assert found == {"params": ["params.yaml"], "metrics": ["metrics.json"], "plots": ["plots"]}


def test_a_dvcyaml_of_the_users_is_added_to(started, tmp_path):
    (tmp_path / "dvc.yaml").write_text('{"stages": {"train": {}}}')
    started(dvcyaml="dvc.yaml").finish("finished")
    found = load_yaml(tmp_path / "dvc.yaml")
    assert found["stages"] == {"train": {}}
    assert found["metrics"] == ["out/dvclive/blue/metrics.json"]
    assert not (tmp_path / "out/dvclive/blue/dvc.yaml").exists()


@pytest.mark.parametrize(("option", "value"), [("dvcyaml", "my.yaml"), ("report", "pdf"), ("log_model", "some")])
def test_a_wrong_option_is_refused_at_the_start(loop, new, option, value):
    with pytest.raises(StartError, match=option):
        loop(new(**{option: value})).begin()


@pytest.mark.parametrize(("age", "measures"), [(1, True), (3600, False)])
def test_the_machine_is_measured_while_the_training_runs_and_not_in_a_replay(started, age, measures):
    reporter = started(replace(RUN, time=time.time() - age), monitor_system=True)
    assert reporter.run.is_monitoring is measures


# ---- repositories ---------------------------------------------------------------------------------------------------


def test_in_a_repository_a_run_goes_where_dvclive_has_it_and_is_an_experiment(loop, new, repository, tmp_path):
    reporter = new()
    training = loop(reporter, run_name="blue")
    training.train()
    assert reporter.tracker_id == str(tmp_path / "dvclive")
    assert repository["blue"]["step"] == 4
    assert (tmp_path / "dvc.yaml").exists()


def test_what_is_evaluated_afterwards_belongs_to_the_same_experiment(loop, new, repository, caplog):
    reporter = new(log_model="all")
    training = loop(reporter, run_name="blue", eval_strategy="no")
    training.train()
    training.evaluate()
    assert list(repository) == ["blue"]
    assert repository["blue"]["eval"]["loss"] == 0.2
    assert list(load_yaml("dvc.yaml")["artifacts"]) == ["checkpoint-4"]
    assert caplog.messages == []


def test_another_process_goes_on_with_the_experiment_of_a_run(started, repository, caplog):
    first = started()
    first.finish("failed")
    second = started(replace(RUN, tracker_id=first.tracker_id, step=1))
    second.finish("finished")
    assert {name: summary["trackside"]["status"] for name, summary in repository.items()} == {"blue": "finished"}
    assert caplog.messages == []


def test_a_second_run_in_a_repository_takes_the_place_of_the_first(loop, new, repository, tmp_path):
    training = loop(new(), run_name="blue")
    training.begin(1)
    training.log({"loss": 0.5, "note": "half-way"})
    training.fire("on_train_end")
    loop(new(), run_name="green", num_train_epochs=2).train()
    folder = Stored(tmp_path / "dvclive")
    assert [step for step, _ in folder.points["train/loss"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert folder.texts == {}
    assert list(repository) == ["blue", "green"]


def test_a_run_that_is_removed_before_its_end_is_a_warning(loop, started, new, repository, caplog):
    started()
    loop(new()).train()
    loop(new()).train()
    assert sum("has not come to its end, and is removed" in message for message in caplog.messages) == 1


def test_a_run_whose_place_another_has_taken_is_followed_by_another_one(loop, new, repository, tmp_path, caplog):
    first = new()
    loop(first, run_name="blue", num_train_epochs=2).train()
    loop(new(), run_name="green", output_dir=tmp_path / "other").train()
    second = new()
    loop(second, run_name="red", num_train_epochs=2).train(resume_from=tmp_path / "out/checkpoint-4")
    assert [step for step, _ in stored(second).points["train/loss"]] == [5, 6, 7, 8]
    assert sum("another one is started" in message for message in caplog.messages) == 1


@pytest.mark.parametrize(("wanted", "made"), [(None, False), (True, True)])
def test_where_there_is_only_git_it_stays_so_unless_an_experiment_is_wanted(loop, new, tmp_path, wanted, made):
    (tmp_path / ".git").mkdir()
    loop(new(save_dvc_exp=wanted), run_name="blue").train()
    assert (tmp_path / ".dvc").exists() is made
    assert (tmp_path / "dvclive").exists() is made
    assert (tmp_path / "out/dvclive/blue").exists() is not made


def test_a_worktree_of_git_is_a_repository_too(loop, new, repository, tmp_path):
    (tmp_path / ".git").rmdir()
    (tmp_path / ".git").write_text("gitdir: elsewhere")
    loop(new(), run_name="blue").train()
    assert list(repository) == ["blue"]


def test_an_experiment_that_is_not_wanted_is_not_saved(loop, new, repository, tmp_path):
    loop(new(save_dvc_exp=False)).train()
    assert repository == {}
    assert (tmp_path / "dvclive/metrics.json").exists()


def test_an_experiment_that_cannot_be_saved_is_a_warning(loop, new, caplog):
    loop(new(save_dvc_exp=True)).train()
    assert sum("saves no experiment" in message for message in caplog.messages) == 1


def test_a_folder_outside_of_the_repository_is_none_of_its(loop, new, repository, tmp_path, monkeypatch):
    reporter = new(dir=tmp_path / "elsewhere")
    training = loop(reporter)
    (tmp_path / "inside").mkdir()
    for folder in (".git", ".dvc"):
        (tmp_path / folder).rename(tmp_path / "inside" / folder)
    monkeypatch.chdir(tmp_path / "inside")
    training.train()
    assert reporter.tracker_id == str(tmp_path / "elsewhere")
    assert repository == {}


def test_studio_gets_the_address_of_the_repository_without_a_token(loop, new, repository, monkeypatch):
    from dvclive.studio import POSTED

    monkeypatch.setenv("DVC_STUDIO_TOKEN", "of the user")
    loop(new()).train()
    assert {event for event, _ in POSTED} == {"start", "data", "done"}
    assert {address for _, address in POSTED} == {"https://git.example/me/digits.git"}


def test_studio_that_is_slow_is_told_of_the_rest_at_the_end(started, repository, monkeypatch):
    from dvclive.studio import POSTED

    monkeypatch.setenv("DVC_STUDIO_TOKEN", "of the user")
    reporter = started()
    reporter.run._studio_queue = SimpleNamespace(unfinished_tasks=1)
    POSTED.clear()
    reporter.run.next_step()
    assert POSTED == []
    reporter.finish("finished")
    assert [event for event, _ in POSTED] == ["data", "done"]


def test_studio_without_a_repository_is_told_nothing(loop, new, monkeypatch):
    from dvclive.studio import POSTED

    monkeypatch.setenv("DVC_STUDIO_TOKEN", "of the user")
    loop(new()).train()
    assert POSTED == []


# ---- checkpoints ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("all", {"checkpoint-4", "checkpoint-8"}),
        ("TRUE", {"last"}),
        ("1", {"last"}),
        ("false", set()),
        ("", set()),
        (None, set()),
    ],
)
def test_a_word_says_which_checkpoints_are_kept(loop, new, monkeypatch, word, kept):
    if word is not None:
        monkeypatch.setenv("HF_DVCLIVE_LOG_MODEL", word)
    reporter = new()
    loop(reporter, num_train_epochs=2).train()
    assert set(stored(reporter).artifacts) == kept


def test_a_word_that_nobody_knows_is_refused(loop, new, monkeypatch):
    monkeypatch.setenv("HF_DVCLIVE_LOG_MODEL", "some")
    with pytest.raises(StartError, match="HF_DVCLIVE_LOG_MODEL='some' is not understood"):
        loop(new()).begin()


def test_the_final_model_is_the_last_checkpoint_that_was_saved(loop, new):
    reporter = new(log_model=True)
    training = loop(reporter, save_strategy="no")
    training.begin(1)
    training.save()
    training.state.global_step = 3
    training.fire("on_train_end")
    assert stored(reporter).artifacts == {"last": {"model.bin", "trainer_state.json"}}


def test_the_final_model_is_the_best_one_where_the_loop_ends_with_it(loop, new, tmp_path):
    reporter = new(log_model=True)
    training = loop(reporter, load_best_model_at_end=True)
    training.begin(1)
    training.state.best_model_checkpoint = str(training.save())
    training.state.global_step = 2
    training.save().joinpath("model.bin").write_text("worse")
    training.fire("on_train_end")
    assert Path(reporter.tracker_id, "artifacts/best/model.bin").read_text() == "weights"


def test_a_final_model_that_was_not_saved_is_a_warning(loop, new, caplog):
    loop(new(log_model=True), save_strategy="no").train()
    assert sum("no checkpoint was saved" in message for message in caplog.messages) == 1


def test_a_checkpoint_in_a_repository_goes_to_dvc(loop, new, repository, tmp_path):
    reporter = new(log_model="all")
    training = loop(reporter)
    training.begin(1)
    training.save()
    copy = tmp_path / "dvclive/artifacts/checkpoint-1"
    assert [Path(path).absolute() for path in reporter.run._dvc_repo.added] == [copy]
    assert reporter.run._artifacts["checkpoint-1"]["type"] == "model"


# ---- a Live of the user's -------------------------------------------------------------------------------------------


def test_a_live_of_the_users_is_logged_to_and_never_ended(loop, new, tmp_path, monkeypatch):
    from dvclive import Live

    monkeypatch.chdir(tmp_path)
    live = Live("mine", save_dvc_exp=False)
    live.log_metric("train/loss", 9.0)
    monkeypatch.setattr(live, "end", lambda: pytest.fail("it is the user's to end it"))
    reporter = new(live)
    loop(reporter).train()
    reporter.close()
    found = Stored(tmp_path / "mine")
    assert found.values()["train/loss"][:2] == [(0, "9.0"), (1, "0.5")]
    assert "trackside" not in found.summary
    assert found.summary["train"]["loss"] == 0.2
    live.log_metric("mine", 1.5)
    assert found.values()["mine"] == [(4, "1.5")]


def test_something_else_than_a_live_is_refused(loop, new):
    with pytest.raises(StartError, match=r"takes a dvclive\.Live, not 'dvclive'"):
        loop(new("dvclive")).begin()


def test_what_the_user_logs_to_our_run_stays(loop, new):
    reporter = new()
    training = loop(reporter)
    training.begin(7)
    training.log({"loss": 0.5})
    reporter.run.log_metric("train/mine", 1.5)
    training.log_at(8, loss=0.25)
    training.fire("on_train_end")
    assert stored(reporter).values()["train/mine"] == [(7, "1.5")]
    assert stored(reporter).summary["train"] == {"loss": 0.25, "epoch": 0, "mine": 1.5}


# ---- resume ---------------------------------------------------------------------------------------------------------


def test_a_training_that_goes_on_has_one_row_for_each_step_and_notes_what_has_changed(loop, new, tmp_path):
    first = new()
    with pytest.raises(RuntimeError):
        loop(first, num_train_epochs=2, learning_rate=0.5, seed=7).train(fail_at=7)
    mine = Path(first.tracker_id, "plots/metrics/mine.tsv")
    mine.write_text("step\tmine\n4\t'a text\nof two lines'\n5\tlater\n")
    second = new()
    loop(second, num_train_epochs=2, learning_rate=0.25, seed=7).train(resume_from=tmp_path / "out/checkpoint-4")
    assert second.tracker_id == first.tracker_id
    assert mine.read_text() == "step\tmine\n4\t'a text\nof two lines'\n"
    mine.unlink()
    assert [step for step, _ in stored(second).points["train/loss"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    changed = stored(second).params["trackside/changed_params"]
    assert changed["learning_rate"] == [0.5, 0.25]
    assert "seed" not in changed
    assert stored(second).summary["trackside"]["status"] == "finished"


def test_a_branch_from_a_finished_run_is_a_run_that_names_it(loop, new, tmp_path):
    first = new()
    loop(first, num_train_epochs=2, run_name="blue").train()
    branches = [new(), new()]
    for branch in branches:
        loop(branch, num_train_epochs=3, run_name="blue").train(resume_from=tmp_path / "out/checkpoint-4")
        assert stored(branch).params["trackside/continues"] == first.tracker_id
        assert [step for step, _ in stored(branch).points["train/loss"]] == [5, 6, 7, 8, 9, 10, 11, 12]
    assert len({first.tracker_id, *(branch.tracker_id for branch in branches)}) == 3
    assert len(stored(first).points["train/loss"]) == 8


def test_a_run_that_is_gone_is_followed_by_another_one(loop, new, tmp_path, caplog):
    first = new()
    loop(first).train()
    shutil.rmtree(first.tracker_id)
    second = new()
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out/checkpoint-4")
    assert [step for step, _ in stored(second).points["train/loss"]] == [5, 6, 7, 8]
    assert sum("another one is started" in message for message in caplog.messages) == 1


def test_a_run_that_the_user_names_is_continued_and_keeps_its_rows(loop, new):
    first = new()
    loop(first).train()
    second = new(resume=first.tracker_id)
    loop(second).train()
    assert second.tracker_id == first.tracker_id
    assert len(stored(second).points["train/loss"]) == 8


def test_a_run_that_the_user_names_goes_on_from_the_checkpoint_it_is_given(loop, new, tmp_path):
    first = new()
    with pytest.raises(RuntimeError):
        loop(first, num_train_epochs=2).train(fail_at=7)
    second = new(resume=os.path.relpath(first.tracker_id))
    loop(second, num_train_epochs=2).train(resume_from=tmp_path / "out/checkpoint-4")
    assert [step for step, _ in stored(second).points["train/loss"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "trackside/continues" not in stored(second).params


def test_a_run_that_the_user_names_and_that_is_not_there_is_refused(loop, new):
    with pytest.raises(StartError, match=r"there is no folder .*nowhere"):
        loop(new(resume="nowhere")).begin()


def test_what_is_delivered_again_after_the_last_safe_position_is_there_once(started):
    first = started()
    first.log_points([point(1, loss=0.5)])
    position = first.flush()
    first.log_points([point(2, loss=0.25, late=1)])
    first.log_text("train/note", "half-way", 2, 1234.5)
    first.run.log_metric("mine", 1.5)
    first.flush()
    second = started(replace(RUN, tracker_id=first.tracker_id, position=json.loads(json.dumps(position))))
    assert stored(second).points == {"train/loss": [(1, 0.5)], "mine": [(2, 1.5)]}
    assert stored(second).texts == {}
    second.log_points([point(2, loss=0.25, late=1)])
    assert stored(second).points["train/loss"] == [(1, 0.5), (2, 0.25)]
