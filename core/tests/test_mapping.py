import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackside import Artifact, Limits, Point
from trackside.mapping import Keys, batches, chunks, cut, grouped


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("loss", "train/loss"),
        ("train_loss", "train/train_loss"),
        ("eval_loss", "eval/loss"),
        ("eval_other_accuracy", "eval/other_accuracy"),
        ("test_acc", "test/acc"),
        ("evaluation", "train/evaluation"),
        ("epoch", "train/epoch"),
    ],
)
def test_names_are_grouped_by_one_rule(name, key):
    assert grouped(name) == key


def test_a_user_may_name_keys_by_a_rule_of_his_own():
    assert Keys(Limits(), lambda name: name.upper())("loss") == "LOSS"


def test_names_that_differ_only_in_what_is_cleaned_stay_different():
    keys = Keys(Limits(key=r"\w\-. /"))
    assert keys("recall@10") == "recall_10"
    assert keys("recall_10") != keys("recall@10") != keys("recall(10")
    assert keys("recall@10") == "recall_10"


@pytest.mark.parametrize("name", ["a//b", "/a", "a/", "../a", "a/./b", "a/../b", ".", "..", "..a", ""])
def test_a_name_that_is_no_clean_path_becomes_one(name):
    keys = Keys(Limits(key_is_path=True, key_length=20))
    assert keys("a/b.c") == "a/b.c"
    assert re.fullmatch(r"[ab_.]*_[0-9a-f]{8}", keys(name))
    assert len({keys(name), keys(f"{name}/"), keys("a_b")}) == 3


def test_a_long_name_is_cut_and_ends_in_a_hash():
    keys = Keys(Limits(key_length=20))
    first, second = keys("x" * 30), keys("x" * 31)
    assert len(first) == len(second) == 20
    assert first != second
    assert first.startswith("xxx")


@given(st.lists(st.text(), unique=True), st.sampled_from(["grouped", "raw"]))
def test_different_names_have_different_keys_that_the_tracker_takes(names, style):
    keys = Keys(Limits(key=r"a-z0-9_/", key_length=24), style)
    found = [keys(name) for name in names]
    assert len(set(found)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_/]{1,24}", key) for key in found)
    assert found == [keys(name) for name in names]


def test_a_cut_text_says_how_long_it_was():
    assert cut("x" * 6001, 6000).endswith("... (6001 characters)")
    assert len(cut("x" * 6001, 6000)) == 6000
    assert cut("x" * 6000, 6000) == "x" * 6000
    assert cut("x" * 6001, None) == "x" * 6001


@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers(), min_size=1, max_size=7)), st.integers(1, 5))
def test_batches_hold_all_values_in_order_and_no_more_than_they_may(values, size):
    points = [Point(each, step, None, 0.0) for step, each in enumerate(values)]
    found = list(batches(points, size))
    assert all(0 < sum(len(point.values) for point in batch) <= size for batch in found)
    pairs = [(point.step, item) for batch in found for point in batch for item in point.values.items()]
    assert pairs == [(point.step, item) for point in points for item in point.values.items()]


def test_without_a_limit_there_is_one_batch():
    points = [Point({"a": 1}, 1, None, 0.0), Point({"a": 2}, 2, None, 0.0)]
    assert list(batches(points, None)) == [points]
    assert list(batches([], None)) == []


def test_chunks_cover_a_mapping():
    values = {str(number): number for number in range(150)}
    found = list(chunks(values, 100))
    assert [len(chunk) for chunk in found] == [100, 50]
    assert {key: value for chunk in found for key, value in chunk.items()} == values
    assert list(chunks(values, None)) == [values]
    assert list(chunks({}, 10)) == []


def test_the_files_of_an_artifact_come_with_their_names_and_without_the_pickle_of_all_arguments(tmp_path):
    folder = tmp_path / "checkpoint-5"
    (folder / "optimizer").mkdir(parents=True)
    for name in ("weights.bin", "training_args.bin", "optimizer/rank-0.pt"):
        (folder / name).touch()
    assert [name for _, name in Artifact(str(folder), "checkpoint-5").files()] == ["weights.bin", "optimizer/rank-0.pt"]
    assert list(Artifact(str(folder / "weights.bin"), "weights").files()) == [
        (str(folder / "weights.bin"), "weights.bin")
    ]
