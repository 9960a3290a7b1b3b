"""The fake SDK in the place of wandb, new for each test; those marked `sdk` use the real one."""

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


def modules_of_wandb() -> dict[str, Any]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "wandb"}


@contextmanager
def fake_sdk() -> Iterator[None]:
    """`import wandb` imports the fake, anew, and afterwards again what it did before."""
    real = modules_of_wandb()
    for name in real:
        del sys.modules[name]
    sys.path.insert(0, FAKE)
    try:
        yield
    finally:
        sys.path.remove(FAKE)
        for name in modules_of_wandb():
            del sys.modules[name]
        sys.modules.update(real)


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in [name for name in os.environ if name.startswith("WANDB_") and name != "WANDB_SERVICE"]:
        monkeypatch.delenv(variable)
    if request.node.get_closest_marker("sdk"):
        yield
        return
    with fake_sdk():
        yield


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that makes a loop for a reporter, with its output below the test's folder, where it runs."""
    for home in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(home, str(tmp_path / "home"))
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")
    monkeypatch.chdir(tmp_path)

    def make(*callbacks: Any, **arguments: Any) -> FakeLoop:
        return FakeLoop(callbacks, **{"output_dir": tmp_path / "out", "num_train_epochs": 1, **arguments})

    return make
