"""The fake SDK in the place of comet_ml, new for each test; those marked `sdk` use the real one."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trackside.options import options_of
from trackside_comet_ml import CometCallback
from trackside_testkit import FakeLoop

FAKE = str(Path(__file__).parent / "fake")
API_KEY = "an0api0key0of025characters"
SETTINGS = ("COMET_API_KEY", "COMET_CONFIG", "COMET_URL_OVERRIDE", "COMET_LOGGING_CONSOLE", "COMET_AUTO_LOG_CODE")


def modules_of_comet() -> dict[str, Any]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "comet_ml"}


@contextmanager
def fake_sdk() -> Iterator[None]:
    """`import comet_ml` imports the fake, anew, and afterwards again what it did before."""
    real, hook, level = modules_of_comet(), sys.excepthook, logging.getLogger("comet_ml").level
    for name in real:
        del sys.modules[name]
    sys.path.insert(0, FAKE)
    try:
        yield
    finally:
        sys.path.remove(FAKE)
        for name in modules_of_comet():
            del sys.modules[name]
        sys.modules.update(real)
        sys.excepthook = hook
        logging.getLogger("comet_ml").setLevel(level)


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for variable in (*SETTINGS, *(option.variable for option in options_of(CometCallback).values())):
        if variable:
            monkeypatch.delenv(variable, raising=False)
    for home in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(home, str(tmp_path))
    monkeypatch.setenv("COMET_API_KEY", API_KEY)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    if request.node.get_closest_marker("sdk"):
        yield
        return
    with fake_sdk():
        yield


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that makes a loop for a reporter, with its output below the test's folder, where it runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")

    def make(*callbacks: Any, **arguments: Any) -> FakeLoop:
        return FakeLoop(callbacks, **{"output_dir": tmp_path / "out", "num_train_epochs": 1, **arguments})

    return make


@pytest.fixture
def new() -> Iterator[Any]:
    """A function that makes a reporter, which is closed after the test."""
    made: list[CometCallback] = []

    def make(**options: Any) -> CometCallback:
        made.append(CometCallback(**options))
        return made[-1]

    yield make
    for reporter in made:
        reporter.close()
