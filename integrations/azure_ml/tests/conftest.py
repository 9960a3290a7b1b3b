"""A service in this process and the fake SDK that speaks to it; tests marked `sdk` use the real one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure_service import Service

from trackside.options import options_of
from trackside_azure_ml import AzureMLCallback
from trackside_testkit import FakeLoop

FAKE = str(Path(__file__).parent / "fake")


def modules_of_azureml() -> dict[str, Any]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "azureml"}


@contextmanager
def fake_sdk(service: Service) -> Iterator[None]:
    """`import azureml.core` imports the fake, anew, and afterwards again what it did before."""
    real = modules_of_azureml()
    for name in real:
        del sys.modules[name]
    sys.path.insert(0, FAKE)
    importlib.import_module("azureml.core.run").SERVICE = service
    try:
        yield
    finally:
        sys.path.remove(FAKE)
        for name in modules_of_azureml():
            del sys.modules[name]
        sys.modules.update(real)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in options_of(AzureMLCallback).values():
        if option.variable:
            monkeypatch.delenv(option.variable, raising=False)
    monkeypatch.delenv("AZUREML_RUN_ID", raising=False)
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")  # what is told is looked at as soon as it was told


@pytest.fixture
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A workspace, and a job in it that this process is."""
    if request.node.get_closest_marker("sdk"):
        yield request.getfixturevalue("remote_service")
        return
    monkeypatch.setenv("AZUREML_RUN_ID", "job-1")
    service = Service()
    with fake_sdk(service):
        yield service


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that makes a loop for a reporter, with its output below the test's folder, where it runs."""
    monkeypatch.chdir(tmp_path)

    def make(*callbacks: Any, **arguments: Any) -> FakeLoop:
        return FakeLoop(callbacks, **{"output_dir": tmp_path / "out", "num_train_epochs": 1, **arguments})

    return make
