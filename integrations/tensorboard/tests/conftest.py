"""A clean environment and a loop for each test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trackside_testkit import FakeLoop


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the developer's shell says, a test starts without it."""
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")  # what a call leaves in the file is seen when it returns


@pytest.fixture
def loop(tmp_path: Path):
    """A function that makes a loop for a reporter, with its output below the test's folder."""

    def make(*callbacks: Any, **arguments: Any) -> FakeLoop:
        return FakeLoop(callbacks, **{"output_dir": tmp_path / "out", **arguments})

    return make


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The folder in which the runs of `loop` get a directory each."""
    return tmp_path / "out" / "runs"
