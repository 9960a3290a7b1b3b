"""The fake SDK in the place of neptune, new for each test; those marked `sdk` use the real one."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trackside_neptune import NeptuneCallback
from trackside_testkit.integration import fake_modules, forget_variables
from trackside_testkit.integration import loop as loop

FAKE = Path(__file__).parent / "fake"


@contextmanager
def fake_sdk() -> Iterator[None]:
    """`import neptune` imports the fake, anew, and afterwards again what it did before."""
    is_imported = "neptune" in sys.modules
    try:
        with fake_modules(FAKE, "neptune"):
            yield
    finally:
        if not is_imported:
            forget_logger()


def forget_logger() -> None:
    """What the import of neptune and we do to its logger is for one test."""
    logger = logging.getLogger("neptune")
    logger.handlers.clear()
    logger.filters.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    forget_variables(monkeypatch, NeptuneCallback)
    if request.node.get_closest_marker("sdk"):
        yield
        return
    with fake_sdk():
        yield
