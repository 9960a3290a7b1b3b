"""The fake SDK in the place of swanlab, new for each test; those marked `sdk` use the real one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trackside_testkit import FakeLoop

FAKE = str(Path(__file__).parent / "fake")


def modules_of_sdk() -> dict[str, Any]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "swanlab"}


@contextmanager
def fake_sdk() -> Iterator[None]:
    """`import swanlab` imports the fake, anew, and afterwards again what it did before."""
    real = modules_of_sdk()
    for name in real:
        del sys.modules[name]
    sys.path.insert(0, FAKE)
    try:
        yield
    finally:
        sys.path.remove(FAKE)
        for name in modules_of_sdk():
            del sys.modules[name]
        sys.modules.update(real)


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in [name for name in os.environ if name.startswith("SWANLAB_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")  # what a call leaves behind is seen when it returns
    if request.node.get_closest_marker("sdk"):
        yield
        return
    with fake_sdk():
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the test, where it runs and is at home."""
    monkeypatch.chdir(tmp_path)
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    return tmp_path


@pytest.fixture
def loop(home: Path):
    """A function that makes a loop for a reporter, with its output below the test's folder."""

    def make(*callbacks: Any, **arguments: Any) -> FakeLoop:
        return FakeLoop(callbacks, **{"output_dir": home / "out", "num_train_epochs": 1, **arguments})

    return make


@pytest.fixture
def new(home: Path):
    """A function that makes a reporter, offline unless it says otherwise, which is closed after the test."""
    from trackside_swanlab import SwanLabCallback

    made = []

    def make(**options: Any) -> SwanLabCallback:
        made.append(SwanLabCallback(**{"mode": "offline", **options}))
        return made[-1]

    yield make
    for reporter in made:
        reporter.close()
