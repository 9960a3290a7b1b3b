"""Every test works in a folder of its own, with short waits."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from trackside import Run
from trackside_spool import courier

settings.register_profile("busy", deadline=None)  # a busy machine is no failure
settings.load_profile("busy")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACKSIDE_DELIVERY", raising=False)
    monkeypatch.setattr(courier, "POLL_SECONDS", 0.01)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(id="0123456789ab", name="baseline", output_dir=str(tmp_path / "out"), args={"lr": 0.1})
