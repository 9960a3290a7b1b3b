"""What a tracker gets of the loop's values and files."""

import copy
import math
from fractions import Fraction

from training import Loop, Notebook

from trackside import Limits


def test_each_kind_of_value_arrives_beside_its_neighbours(caplog):
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    logs = {
        "loss": 1.5,
        "half": Fraction(1, 2),
        "yes": True,
        "phase": "warmup",
        "per": {"a": [1, 2]},
        "none": None,
        0: 7,
    }
    before = copy.deepcopy(logs)
    loop.log(logs, step=3)
    assert logs == before
    assert reporter.points == [
        (
            3,
            {
                "train/loss": 1.5,
                "train/half": 0.5,
                "train/yes": 1,
                "train/per/a/0": 1,
                "train/per/a/1": 2,
                "train/0": 7,
            },
        )
    ]
    assert reporter.told("log_text") == [("train/phase", "warmup", 3)]
    assert "none is left out" in caplog.text


def test_a_number_that_no_float_holds_is_told_as_text():
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    loop.log({"loss": 1.5, "huge": 10**400})
    assert reporter.points == [(0, {"train/loss": 1.5})]
    assert reporter.told("log_text") == [("train/huge", str(10**400), 0)]


def test_a_value_that_is_not_finite_is_named_once_with_its_step(caplog):
    loop = Loop(Notebook(), Notebook())
    loop.begin()
    for step in (6, 7):
        loop.log({"a": 1.0, "b": math.nan, "c": math.inf}, step)
    assert [record.getMessage() for record in caplog.records] == ["b is nan at step 6.", "c is inf at step 6."]


def test_an_evaluation_adds_only_what_its_log_did_not_hold():
    reporter = Notebook()
    loop = Loop(reporter)
    loop.begin()
    metrics = {"eval_loss": 1.0}
    loop.log(dict(metrics))
    metrics["eval_x"] = 1
    loop.fire("on_evaluate", metrics=metrics)
    assert reporter.points == [(0, {"eval/loss": 1.0}), (0, {"eval/x": 1})]


def test_values_of_the_end_go_to_the_summary_where_there_is_one():
    class Summing(Notebook):
        def log_summary(self, values):
            self.note("log_summary", values)

    with_one, without = Summing(), Notebook()
    loop = Loop(with_one, without)
    loop.begin()
    loop.log({"train_loss": 0.5, "epoch": 3.0}, step=9)
    assert with_one.told("log_summary") == [{"train/train_loss": 0.5}]
    assert with_one.points == [(9, {"train/epoch": 3.0})]
    assert without.points == [(9, {"train/train_loss": 0.5, "train/epoch": 3.0})]


def test_limits_are_kept_visibly(caplog):
    class Small(Notebook):
        limits = Limits(param_value=40, params_per_call=3, points_per_call=2, key=r"\w/")
        key_style = "raw"

    reporter = Small()
    loop = Loop(reporter, note="x" * 100)
    loop.begin()
    loop.log({"a@1": 1, "b": 2, "c": 3})
    params = {key: value for chunk in reporter.told("log_params") for key, value in chunk.items()}
    assert params["note"].endswith("(100 characters)")
    assert max(map(len, reporter.told("log_params"))) == 3
    assert reporter.points == [(0, {"a_1": 1, "b": 2}), (0, {"c": 3})]
    assert caplog.text.count("note is cut") == 1


def test_a_text_that_is_cut_is_kept_whole_where_a_tracker_keeps_files(caplog):
    class Filing(Notebook):
        limits = Limits(param_value=40, text=50)
        key_style = "raw"

        def log_file(self, name, text):
            self.note("log_file", (name, text))

    reporter = Filing()
    loop = Loop(reporter, note="x" * 100, short="y" * 40)
    loop.begin()
    loop.log({"story": "z" * 60}, step=7)
    loop.log({"story": "short"}, step=8)
    assert dict(reporter.told("log_file")) == {"params/note.txt": "x" * 100, "texts/story/00000007.txt": "z" * 60}
    assert "note is cut, and whole in the run's file params/note.txt" in caplog.text


def test_checkpoints_are_told_where_a_tracker_takes_files(tmp_path):
    class Filing(Notebook):
        def log_artifact(self, artifact):
            self.note("log_artifact", artifact)

    reporter = Filing()
    loop = Loop(reporter, Notebook(), output_dir=str(tmp_path))
    loop.begin()
    loop.state.global_step = 5
    loop.fire("on_save")
    (tmp_path / "checkpoint-5").mkdir()
    loop.fire("on_save")
    (artifact,) = reporter.told("log_artifact")
    assert artifact.path == str(tmp_path / "checkpoint-5")
    assert artifact.step == 5
