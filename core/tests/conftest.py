"""Every test works in a folder of its own."""

import logging
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("busy", deadline=None)  # a busy machine is no failure
settings.load_profile("busy")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")  # where the spool is installed as well


@pytest.fixture(autouse=True)
def _warnings_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
