"""The real comet_ml, offline and with a server on loopback; what has arrived is read by readers of our own."""

from __future__ import annotations

from typing import Any

import pytest
from archives import archives, merged

from trackside_comet_ml import CometCallback
from trackside_testkit import Reported, ReporterContract

pytestmark = pytest.mark.sdk


class TestCometArchives(ReporterContract):
    reporter_class = CometCallback

    def make_reporter(self, **options: Any) -> CometCallback:
        return CometCallback(log_assets=True, online=False, **options)

    def read(self) -> list[Reported]:
        return [merged(parts) for parts in archives(self.folder / "out" / "comet").values()]
