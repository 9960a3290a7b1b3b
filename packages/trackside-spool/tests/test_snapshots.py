import os
import shutil
import threading
from pathlib import Path

import pytest

from trackside import Artifact, TrainerCallback
from trackside_spool import snapshots
from trackside_testkit import FakeLoop, RecordingReporter


class Reading(RecordingReporter):
    """Reads the files of a checkpoint when it is told of it, as an upload does."""

    name = "reading"

    def log_artifact(self, artifact):
        super().log_artifact(artifact)
        self.read = {**getattr(self, "read", {}), artifact.name: sorted(os.listdir(artifact.path))}


class Late(Reading):
    """Cannot be reached until `gate` is set."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()

    def start(self, run):
        self.gate.wait()
        return super().start(run)


@pytest.fixture
def late(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_START_SECONDS", "0")
    return Late()


class Deleting(TrainerCallback):
    """A loop that keeps no checkpoint."""

    def on_save(self, args, state, control, **kwargs):
        shutil.rmtree(os.path.join(args.output_dir, f"checkpoint-{state.global_step}"))


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "checkpoint-1"
    (folder / "deep").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(b"w" * snapshots.LINKED_FROM)
    (folder / "deep" / "state.json").write_text("{}")
    (folder / "training_args.bin").write_bytes(b"secret")
    return folder


def take(checkpoint, delivered=lambda number: False, number=0):
    keeper = snapshots.Snapshots(checkpoint.parent / "kept", delivered)
    return keeper, taken(keeper, checkpoint, number)


def taken(keeper, checkpoint, number):
    artifact = Artifact(str(checkpoint), checkpoint.name)
    keeper.take(artifact, number)
    return snapshots.snapshot_of(artifact, number, checkpoint.parent / "kept")


def test_weights_are_linked_and_small_files_copied(checkpoint):
    _, kept = take(checkpoint)
    assert (kept / "weights.bin").samefile(checkpoint / "weights.bin")
    assert not (kept / "deep" / "state.json").samefile(checkpoint / "deep" / "state.json")


def test_a_snapshot_outlives_its_checkpoint(checkpoint):
    _, kept = take(checkpoint)
    shutil.rmtree(checkpoint)
    assert (kept / "weights.bin").stat().st_size == snapshots.LINKED_FROM
    assert (kept / "deep" / "state.json").read_text() == "{}"


def test_the_pickle_of_all_arguments_is_left_out(checkpoint):
    _, kept = take(checkpoint)
    assert sorted(path.name for path in kept.iterdir()) == ["deep", "weights.bin"]


def test_where_the_disk_knows_no_links_all_is_copied(checkpoint, monkeypatch):
    def refuse(*paths):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    _, kept = take(checkpoint)
    assert (kept / "weights.bin").read_bytes() == (checkpoint / "weights.bin").read_bytes()


def test_what_is_delivered_is_deleted_and_only_the_last_ones_wait(checkpoint, caplog):
    delivered = set()
    keeper, first = take(checkpoint, delivered.__contains__)
    paths = [first, *(taken(keeper, checkpoint, number) for number in (1, 2))]
    assert [path.exists() for path in paths] == [False, True, True]
    assert caplog.text.count("only the last 2 are kept") == 1
    delivered |= {1, 2}
    keeper.tidy()
    assert [path.exists() for path in paths] == [False] * 3


def test_the_best_checkpoint_waits_as_well_as_long_as_it_is_the_best(checkpoint):
    keeper = snapshots.Snapshots(checkpoint.parent / "kept", lambda number: False)
    best = None
    for number in range(5):
        folder = shutil.copytree(checkpoint, checkpoint.parent / f"checkpoint-{number + 10}")
        best = str(folder) if number in (0, 3) else best
        keeper.take(Artifact(str(folder), folder.name), number, best)
        if number == 2:
            assert waiting(checkpoint) == ["0-checkpoint-10", "1-checkpoint-11", "2-checkpoint-12"]
    assert waiting(checkpoint) == ["2-checkpoint-12", "3-checkpoint-13", "4-checkpoint-14"]


def waiting(checkpoint):
    return sorted(path.name for path in (checkpoint.parent / "kept").iterdir() if path.is_dir())


def test_the_best_checkpoint_of_a_loop_reaches_a_tracker_that_was_late(late):
    loop = FakeLoop([late, Deleting], output_dir="out")
    loop.fire("on_train_begin")
    for step in range(1, 5):
        loop.state.global_step = step
        if step == 1:
            loop.state.best_model_checkpoint = "out/checkpoint-1"
        loop.save()
    late.gate.set()
    loop.fire("on_train_end")
    assert set(late.read) == {"checkpoint-1", "checkpoint-3", "checkpoint-4"}


def test_a_linked_file_that_is_rewritten_in_place_is_not_sent_as_what_it_was(checkpoint):
    _, kept = take(checkpoint)
    (checkpoint / "weights.bin").write_bytes(b"x" * (snapshots.LINKED_FROM + 1))
    (checkpoint / "deep" / "state.json").write_text("{...}")
    assert snapshots.take_out_rewritten(kept) == ["weights.bin"]
    assert not (kept / "weights.bin").exists()
    assert (kept / "deep" / "state.json").read_text() == "{}"
    assert snapshots.take_out_rewritten(kept) == []


def test_a_linked_file_that_is_replaced_or_deleted_is_still_what_it_was(checkpoint):
    _, kept = take(checkpoint)
    (checkpoint / "new").write_bytes(b"x" * snapshots.LINKED_FROM)
    os.replace(checkpoint / "new", checkpoint / "weights.bin")
    assert snapshots.take_out_rewritten(kept) == []
    assert (kept / "weights.bin").read_bytes() == b"w" * snapshots.LINKED_FROM


class Rewriting(TrainerCallback):
    """A loop that saves its weights in place."""

    def on_save(self, args, state, control, **kwargs):
        for folder in Path(args.output_dir).glob("checkpoint-*"):
            with open(folder / "weights.bin", "ab") as weights:
                weights.write(b"w" * snapshots.LINKED_FROM)


def test_what_a_loop_rewrites_in_place_is_one_warning(late, caplog):
    loop = FakeLoop([Rewriting, late, Rewriting], output_dir="out")
    loop.fire("on_train_begin")
    for step in (1, 2):
        loop.state.global_step = step
        loop.save()
    late.gate.set()
    loop.fire("on_train_end")
    assert caplog.text.count("rewritten in place since it was saved is left out: weights.bin") == 1
    assert all("weights.bin" not in names for names in late.read.values())


def test_a_snapshot_that_cannot_be_finished_is_no_half_one(checkpoint, monkeypatch, caplog):
    def refuse(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", refuse)
    _, kept = take(checkpoint)
    assert not kept.exists()
    assert caplog.text.count("cannot be kept for the trackers") == 1


def test_a_checkpoint_that_the_loop_deletes_reaches_the_tracker(tmp_path):
    reporter = Reading()
    loop = FakeLoop([reporter, Deleting], output_dir="out", eval_strategy="no")
    loop.train()
    assert set(reporter.read) == {"checkpoint-4", "checkpoint-8"}
    assert all("training_args.bin" not in names for names in reporter.read.values())
    assert not list(Path("out").rglob("artifacts/*"))


def test_a_checkpoint_that_is_gone_is_one_warning(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(snapshots, "_copy", lambda source, target: shutil.rmtree(source))
    reporter = Reading()
    FakeLoop([reporter], output_dir="out", eval_strategy="no").train()
    assert reporter.artifacts == []
    assert caplog.text.count("is gone") == 1
