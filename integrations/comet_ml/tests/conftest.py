"""The fake SDK in the place of comet_ml, new for each test; those marked `sdk` use the real one."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trackside_comet_ml import CometCallback
from trackside_testkit.integration import fake_modules, forget_variables, maker_of
from trackside_testkit.integration import loop as loop

FAKE = Path(__file__).parent / "fake"
API_KEY = "an0api0key0of025characters"
SETTINGS = ("COMET_API_KEY", "COMET_CONFIG", "COMET_URL_OVERRIDE", "COMET_LOGGING_CONSOLE", "COMET_AUTO_LOG_CODE")


@contextmanager
def fake_sdk() -> Iterator[None]:
    """`import comet_ml` imports the fake, anew, and afterwards again what it did before."""
    hook, level = sys.excepthook, logging.getLogger("comet_ml").level
    try:
        with fake_modules(FAKE, "comet_ml"):
            yield
    finally:
        sys.excepthook = hook
        logging.getLogger("comet_ml").setLevel(level)


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    forget_variables(monkeypatch, CometCallback, *SETTINGS)
    for home in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(home, str(tmp_path))
    monkeypatch.setenv("COMET_API_KEY", API_KEY)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    if request.node.get_closest_marker("sdk"):
        yield
        return
    with fake_sdk():
        yield


new = maker_of(CometCallback)
