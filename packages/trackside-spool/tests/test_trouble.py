"""Folders, disks and trackers that do not do what they should."""

import logging
import sys
from pathlib import Path

import pytest

from trackside_testkit import FakeLoop, RecordingReporter

EXPECTED = [(step, 1 / (step + 1)) for step in range(1, 9)]


@pytest.fixture(autouse=True)
def _warnings_only(caplog):
    caplog.set_level(logging.WARNING)


def train(*reporters, **changes):
    loop = FakeLoop(list(reporters), **{"output_dir": "out", "eval_strategy": "no", "save_strategy": "no", **changes})
    loop.train()
    return loop


def losses(reporter):
    return reporter.points.get("train/loss", [])


def put_a_file_in_the_way(monkeypatch):
    Path("out").write_text("no folder")


def take_file_locks_away(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)


@pytest.mark.parametrize("trouble", [put_a_file_in_the_way, take_file_locks_away])
def test_where_no_journal_can_be_kept_one_warning_says_so_and_the_tracker_gets_everything(trouble, monkeypatch, caplog):
    trouble(monkeypatch)
    reporters = RecordingReporter(), RecordingReporter()
    train(*reporters)
    for reporter in reporters:
        assert losses(reporter) == EXPECTED
    assert caplog.text.count("No journal can be kept") == 1
