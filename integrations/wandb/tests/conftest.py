"""The fake SDK in the place of wandb, new for each test; those marked `sdk` use the real one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from trackside_testkit.integration import fake_modules
from trackside_testkit.integration import loop as loop

fake_sdk = partial(fake_modules, Path(__file__).parent / "fake", "wandb")


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for home in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(home, str(tmp_path / "home"))
    for variable in [name for name in os.environ if name.startswith("WANDB_") and name != "WANDB_SERVICE"]:
        monkeypatch.delenv(variable)
    if request.node.get_closest_marker("sdk"):
        yield
        return
    with fake_sdk():
        yield
