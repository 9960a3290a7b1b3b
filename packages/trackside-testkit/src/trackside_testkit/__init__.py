"""What reporting is tested with: a contract for integrations, a reporter that records, a loop that only pretends."""

import pytest

pytest.register_assert_rewrite("trackside_testkit.contract", "trackside_testkit.guard", "trackside_testkit.workbench")

from trackside_testkit.contract import ReporterContract, leave_out  # noqa: E402
from trackside_testkit.loop import FakeArguments, FakeConfig, FakeLoop, FakeModel  # noqa: E402
from trackside_testkit.recording import RecordingReporter  # noqa: E402
from trackside_testkit.workbench import Reported  # noqa: E402

__all__ = [
    "FakeArguments",
    "FakeConfig",
    "FakeLoop",
    "FakeModel",
    "RecordingReporter",
    "Reported",
    "ReporterContract",
    "leave_out",
]
