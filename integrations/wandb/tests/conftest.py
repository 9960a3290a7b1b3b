"""What all tests need: none of wandb's variables, and loops."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from trackside_testkit import FakeLoop


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("WANDB_") and name != "WANDB_SERVICE"]:
        monkeypatch.delenv(variable)


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that makes a loop for a reporter, with its output below the test's folder, where it runs."""
    monkeypatch.chdir(tmp_path)

    def make(*callbacks: Any, **arguments: Any) -> FakeLoop:
        return FakeLoop(callbacks, **{"output_dir": tmp_path / "out", "num_train_epochs": 1, **arguments})

    return make
