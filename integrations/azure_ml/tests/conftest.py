"""A service in this process and the fake SDK that speaks to it; tests marked `sdk` use the real one."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure_service import Service

from trackside_azure_ml import AzureMLCallback
from trackside_testkit.integration import fake_modules, forget_variables
from trackside_testkit.integration import loop as loop

FAKE = Path(__file__).parent / "fake"


@contextmanager
def fake_sdk(service: Service) -> Iterator[None]:
    """`import azureml.core` imports the fake, anew, and afterwards again what it did before."""
    with fake_modules(FAKE, "azureml"):
        importlib.import_module("azureml.core.run").SERVICE = service
        yield


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_variables(monkeypatch, AzureMLCallback, "AZUREML_RUN_ID")
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
