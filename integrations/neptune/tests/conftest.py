"""The fake SDK in the place of neptune, new for each test; those marked `sdk` use the real one."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trackside.options import options_of
from trackside_neptune import NeptuneCallback
from trackside_testkit import FakeLoop

FAKE = str(Path(__file__).parent / "fake")


def modules_of_neptune() -> dict[str, Any]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "neptune"}


@contextmanager
def fake_sdk() -> Iterator[None]:
    """`import neptune` imports the fake, anew, and afterwards again what it did before."""
    real = modules_of_neptune()
    for name in real:
        del sys.modules[name]
    sys.path.insert(0, FAKE)
    try:
        yield
    finally:
        sys.path.remove(FAKE)
        for name in modules_of_neptune():
            del sys.modules[name]
        sys.modules.update(real)
        if not real:
            forget_logger()


def forget_logger() -> None:
    """What the import of neptune and we do to its logger is for one test."""
    logger = logging.getLogger("neptune")
    logger.handlers.clear()
    logger.filters.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for option in options_of(NeptuneCallback).values():
        if option.variable:
            monkeypatch.delenv(option.variable, raising=False)
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
