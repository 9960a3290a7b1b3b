"""The fake SDK in the place of clearml, new for each test; those marked `sdk` use the real one, offline."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from trackside_testkit.integration import fake_modules
from trackside_testkit.integration import loop as loop

fake_sdk = partial(fake_modules, Path(__file__).parent / "fake", "clearml")


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for variable in os.environ:
        if variable.startswith("CLEARML_"):
            monkeypatch.delenv(variable)
    for home in ("HOME", "USERPROFILE", "TMPDIR"):
        monkeypatch.setenv(home, str(tmp_path))
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")
    if request.node.get_closest_marker("sdk"):
        yield
        return
    with fake_sdk():
        yield
