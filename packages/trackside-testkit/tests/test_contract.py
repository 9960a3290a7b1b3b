"""The contract holds for a complete reporter, and each of its tests fails for one that breaks its promise."""

from dataclasses import replace
from types import MappingProxyType

import pytest
from faulty import FAULTY, install
from in_memory import LIBRARY, Book, InMemoryContract, InMemoryReporter

from trackside import Reporter
from trackside_testkit import Reported, ReporterContract, leave_out
from trackside_testkit.contract import contract_tests

pytest_plugins = ["pytester"]


class TestInMemory(InMemoryContract):
    @pytest.fixture(autouse=True)
    def _install(self, tmp_path, monkeypatch):
        install("in_memory", "in_memory:InMemoryReporter", tmp_path, monkeypatch)


class OnceOnly(InMemoryReporter):
    """A tracker whose runs are closed for good, and which knows two ways to end."""

    reopenable = False

    def start(self, run):
        return super().start(replace(run, tracker_id=None))

    def finish(self, status):
        self.run.status = "finished" if status == "finished" else "failed"


class TestOnceOnly(InMemoryContract):
    reporter_class = OnceOnly
    nearest_status = MappingProxyType({"killed": "failed", "pruned": "failed"})


class Plain(Reporter):
    """As little as a reporter can be: it keeps points, under raw names, of runs that cannot be opened again."""

    name = "plain"
    key_style = "raw"
    scope = "node"

    def start(self, run):
        self.run = Book(run.name)
        LIBRARY[id(self.run)] = self.run

    def log_points(self, points):
        for point in points:
            self.run.points += [(key, point.step, value) for key, value in point.values.items()]

    def finish(self, status):
        self.run = None


class TestPlain(InMemoryContract):
    reporter_class = Plain

    def read(self):
        return [Reported(run.points) for run in super().read()]


def test_each_broken_promise_is_noticed(pytester):
    contracts = ", ".join(sorted({contract for _, contract in FAULTY}))
    file = pytester.makepyfile(test_faulty=f"from faulty import {contracts}")
    chosen = [f"{file}::{contract}::{test}" for test, contract in FAULTY]
    reports = pytester.inline_run(
        *chosen, "-o", "python_classes=*", "-p", "no:cacheprovider", "--tb=no", "-q"
    ).getreports("pytest_runtest_logreport")
    failed = {tuple(report.nodeid.partition("[")[0].split("::")[:0:-1]) for report in reports if report.failed}
    assert set(FAULTY) - failed == set()
    assert [report.nodeid for report in reports if report.failed and report.when != "call"] == []


def test_there_is_a_faulty_reporter_for_each_test():
    assert {test for test, _ in FAULTY} == set(contract_tests())


def test_a_contract_test_cannot_be_overridden():
    with pytest.raises(TypeError, match="overrides test_other_ranks_are_silent of the contract"):

        class Lenient(ReporterContract):
            def test_other_ranks_are_silent(self):
                pass


def test_a_contract_test_cannot_be_overridden_by_a_mixin():
    class Mixin:
        test_other_ranks_are_silent = None

    with pytest.raises(TypeError, match="test_other_ranks_are_silent"):
        type("Lenient", (Mixin, ReporterContract), {})


def test_what_is_left_out_is_skipped_for_its_reason(pytester):
    pytester.makepyfile(
        """
        from in_memory import InMemoryContract
        from trackside_testkit import leave_out

        @leave_out("test_an_evaluation_alone_is_a_run", "it makes runs for trainings only")
        class TestInMemory(InMemoryContract):
            left_out = {"test_a_prediction_arrives": "it knows no predictions"}
        """
    )
    result = pytester.runpytest_inprocess("-rs", "-k", "evaluation_alone or prediction_arrives or logged_after")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines_random(["*it makes runs for trainings only", "*it knows no predictions"])


@pytest.mark.parametrize("left_out", [{"test_a_prediction_arrives": " "}, {"test_of_something_else": "it is slow"}])
def test_only_tests_of_the_contract_are_left_out_and_only_for_a_reason(left_out):
    with pytest.raises(TypeError, match=next(iter(left_out))):
        type("Hasty", (InMemoryContract,), {"left_out": left_out})
    with pytest.raises(TypeError, match=next(iter(left_out))):
        leave_out(*next(iter(left_out.items())))(type("Hasty", (InMemoryContract,), {}))


def test_leaving_out_a_test_of_one_contract_leaves_it_in_others():
    contract = type("Hasty", (InMemoryContract,), {})
    leave_out("test_a_prediction_arrives", "it knows no predictions")(contract)
    assert contract.left_out == {"test_a_prediction_arrives": "it knows no predictions"}
    assert InMemoryContract.left_out == {}


def test_a_contract_that_cannot_read_says_what_is_missing():
    with pytest.raises(NotImplementedError, match="must say in `read`"):
        ReporterContract().read()
