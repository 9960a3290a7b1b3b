"""The fake SDK in the place of trackio, new for each test; those marked `sdk` use the real one."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trackside_testkit import FakeLoop
from trackside_testkit.loop import FakeArguments

FAKE = str(Path(__file__).parent / "fake")
SDK = ("trackio", "huggingface_hub")


def modules_of_sdk() -> dict[str, Any]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] in SDK}


@contextmanager
def fake_sdk() -> Iterator[None]:
    """`import trackio` imports the fake, anew, and afterwards again what it did before."""
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
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in os.environ:
        if variable.startswith(("TRACKIO_", "HF_", "HUGGING_FACE")):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")  # what a call leaves in the store is seen when it returns
    if request.node.get_closest_marker("sdk"):
        request.getfixturevalue("trackio_dir")
        yield
        return
    with fake_sdk():
        yield


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that makes a loop for a reporter, with its output below the test's folder, where it runs."""
    monkeypatch.chdir(tmp_path)
    for home in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(home, str(tmp_path))

    def make(*callbacks: Any, model: Any = None, kind: type[FakeArguments] = FakeArguments, **arguments: Any):
        args = kind(**{"output_dir": tmp_path / "out", "num_train_epochs": 1, **arguments})
        return FakeLoop(callbacks, args, model)

    return make


@dataclass
class TransformersArguments(FakeArguments):
    """What `TrainingArguments` of transformers have for Trackio."""

    project: str = "huggingface"
    trackio_space_id: str | None = None
    trackio_bucket_id: str | None = None
    trackio_static_space_id: str | bool | None = None
    hub_private_repo: bool | None = None
