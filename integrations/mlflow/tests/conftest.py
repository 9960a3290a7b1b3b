"""The fake SDK in the place of mlflow, new for each test; those marked `sdk` use the real one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from trackside_mlflow import MLflowCallback
from trackside_testkit.integration import fake_modules, forget_variables
from trackside_testkit.integration import loop as loop

fake_sdk = partial(fake_modules, Path(__file__).parent / "fake", "mlflow")


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    forget_variables(monkeypatch, MLflowCallback, "MLFLOW_DISABLE_TELEMETRY")
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")  # what a call leaves in the store is seen when it returns
    if request.node.get_closest_marker("sdk"):
        yield
        return
    with fake_sdk():
        yield
