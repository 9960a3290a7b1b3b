"""The fake SDK in the place of mlflow, new for each test; those marked `sdk` use the real one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trackside.options import options_of
from trackside_mlflow import MLflowCallback
from trackside_testkit import FakeLoop

FAKE = str(Path(__file__).parent / "fake")


def modules_of_mlflow() -> dict[str, Any]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "mlflow"}


@contextmanager
def fake_sdk() -> Iterator[None]:
    """`import mlflow` imports the fake, anew, and afterwards again what it did before."""
    real = modules_of_mlflow()
    for name in real:
        del sys.modules[name]
    sys.path.insert(0, FAKE)
    try:
        yield
    finally:
        sys.path.remove(FAKE)
        for name in modules_of_mlflow():
            del sys.modules[name]
        sys.modules.update(real)


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("MLFLOW_DISABLE_TELEMETRY", *(option.variable for option in options_of(MLflowCallback).values())):
        if variable:
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")  # what a call leaves in the store is seen when it returns
    if request.node.get_closest_marker("sdk"):
        yield
        return
    with fake_sdk():
        yield


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that makes a loop for a reporter, with its output below the test's folder, where it runs."""
    monkeypatch.chdir(tmp_path)

    def make(*callbacks: Any, **arguments: Any) -> FakeLoop:
        return FakeLoop(callbacks, **{"output_dir": tmp_path / "out", "num_train_epochs": 1, **arguments})

    return make
