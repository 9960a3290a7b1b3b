"""The fake SDK in the place of trackio, new for each test; those marked `sdk` use the real one."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from trackside_testkit.integration import fake_modules
from trackside_testkit.integration import loop as loop

fake_sdk = partial(fake_modules, Path(__file__).parent / "fake", "trackio", "huggingface_hub")


@pytest.fixture(scope="session")
def trackio_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the real SDK keeps its databases, as it is told when it is imported."""
    folder = tmp_path_factory.mktemp("trackio")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TRACKIO_DIR", str(folder))
        monkeypatch.setenv("HF_HOME", str(folder / "hub"))
        importlib.import_module("trackio")
    return folder


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for variable in os.environ:
        if variable.startswith(("TRACKIO_", "HF_", "HUGGING_FACE")):
            monkeypatch.delenv(variable)
    for home in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(home, str(tmp_path))
    if request.node.get_closest_marker("sdk"):
        request.getfixturevalue("trackio_dir")
        yield
        return
    with fake_sdk():
        yield
