import os
import shutil
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
