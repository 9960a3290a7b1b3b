"""The fake SDK in the place of swanlab, new for each test; those marked `sdk` use the real one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from trackside_swanlab import SwanLabCallback
from trackside_testkit.integration import fake_modules, maker_of
from trackside_testkit.integration import loop as loop

fake_sdk = partial(fake_modules, Path(__file__).parent / "fake", "swanlab")


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for home in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(home, str(tmp_path))
    for variable in [name for name in os.environ if name.startswith("SWANLAB_")]:
        monkeypatch.delenv(variable)
    if request.node.get_closest_marker("sdk"):
        yield
        return
    with fake_sdk():
        yield


def _offline(**options: Any) -> SwanLabCallback:
    return SwanLabCallback(**{"mode": "offline", **options})


new = maker_of(_offline)
