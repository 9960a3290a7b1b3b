"""The fake SDK in the place of codecarbon, new for each test; those marked `sdk` use the real one."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from trackside_testkit import FakeLoop
from trackside_testkit.integration import fake_modules

fake_sdk = partial(fake_modules, Path(__file__).parent / "fake", "codecarbon")


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No settings of whoever runs the tests, a folder for lock files, and the console as it was."""
    for variable in [name for name in os.environ if name.lower().startswith("codecarbon_")]:
        monkeypatch.delenv(variable)
    locks = tmp_path / "locks"
    locks.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(locks))
    log = logging.getLogger("codecarbon")
    before = log.handlers, log.level, log.propagate
    if request.node.get_closest_marker("sdk"):
        yield
    else:
        with fake_sdk():
            yield
    log.handlers, log.level, log.propagate = before


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that makes a loop for reporters, with its output below the test's folder, where it runs."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for home in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(home, str(tmp_path))

    def make(*callbacks: Any, **arguments: Any) -> FakeLoop:
        return FakeLoop(callbacks, **{"output_dir": "out", "num_train_epochs": 1, **arguments})

    return make
