"""Each test works in a folder of its own, with the delivery that an installation brings."""

from __future__ import annotations

import shutil
from pathlib import Path

import breaking
import pytest


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("TRACKSIDE_DELIVERY", "TRACKSIDE_START_SECONDS", "TRACKSIDE_DRAIN_SECONDS"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow store that has its tables already, since making them takes seconds."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        source = "from mlflow import MlflowClient; MlflowClient('sqlite:///mlflow.db').search_experiments()"
        assert breaking.run(source, MLFLOW_DISABLE_TELEMETRY="true").code == 0
    return folder / "mlflow.db"


@pytest.fixture
def store(empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An MLflow store in the working directory, to which the environment leads."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "faults")  # the default one keeps its files where the tables were made
    return Path(shutil.copy(empty_store, tmp_path))
