"""What the tests of the contract are made of: reporters, loops, and what has arrived of them."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from trackside import Reporter, Status
from trackside.mapping import Keys
from trackside_testkit.integration import forget_variables
from trackside_testkit.loop import FakeLoop


@dataclass
class Reported:
    """One run as its tracker holds it, under the tracker's own keys. A part that it has no place for is None.

    Attributes:
        points: the steps and values of each key, in the tracker's order.
        params: flat, with `/` between the names of nested ones; values as they are kept, if need be as text.
        texts: the steps and texts of each key.
        summary: what is one value for the whole run, by key.
        artifacts: for each artifact by name, the files in it, relative to its folder.
        status: "running", or how the run has ended.
    """

    points: Mapping[str, Sequence[tuple[int, float]]] | None
    params: Mapping[str, Any] | None = None
    texts: Mapping[str, Sequence[tuple[int, str]]] | None = None
    summary: Mapping[str, float] | None = None
    artifacts: Mapping[str, Iterable[str]] | None = None
    status: str | None = None

    @staticmethod
    def by_key(rows: Iterable[tuple[str, int, Any]]) -> dict[str, list[tuple[int, Any]]]:
        """Rows of key, step and value in the form of `points` and `texts`."""
        found: dict[str, list[tuple[int, Any]]] = {}
        for key, step, value in rows:
            found.setdefault(key, []).append((step, value))
        return found


class Workbench:
    """What the author of an integration says, and what the contract works with."""

    reporter_class: ClassVar[type[Reporter]]
    nearest_status: ClassVar[Mapping[Status, str]] = {}
    tolerance: ClassVar[float] = 1e-6

    folder: Path
    around: Path
    """A folder far above `folder`, with nothing beside it on the way."""
    reporters: list[Reporter]
    """All that the test has made, copies included."""

    # ---- what a subclass says ---------------------------------------------------------------------------------

    def make_reporter(self, **options: Any) -> Reporter:
        """A reporter that can start in a test: configured, and in need of no network."""
        return self.reporter_class(**options)

    def read(self) -> list[Reported]:
        """All runs that the tracker holds by now, in any order; one that is still open with what has arrived of it."""
        raise NotImplementedError(f"{type(self).__name__} must say in `read` what has arrived at the tracker.")

    # ---- what tests are made of; also for further tests of a subclass -----------------------------------------

    def reporter(self, **options: Any) -> Reporter:
        """A reporter that is closed after the test."""
        return self.closed_later(self.make_reporter(**options))

    def closed_later(self, reporter: Reporter) -> Reporter:
        """A reporter that a test has come by otherwise; it is closed after the test too."""
        self.reporters.append(reporter)
        return reporter

    def loop(self, callback: Any, **arguments: Any) -> FakeLoop:
        """A loop of 4 steps an epoch that logs each step, and evaluates and saves after each epoch."""
        return FakeLoop([callback], output_dir=self.folder / "out", **arguments)

    def short_training(self, loop: FakeLoop) -> None:
        """All that can be reported, once, at step 1."""
        loop.begin(1)
        loop.log({"loss": 0.5, "note": "half-way"})
        loop.save()
        loop.log({"train_loss": 0.25})
        loop.fire("on_train_end")

    def run_with(self, logs: Mapping[Any, Any]) -> Reported:
        """A run that logs `logs` at step 1, as it has arrived."""
        reporter = self.reporter()
        loop = self.loop(reporter)
        loop.begin(1)
        loop.log(dict(logs))
        loop.fire("on_train_end")
        return self.only_run(reporter)

    def only_run(self, reporter: Reporter) -> Reported:
        """The one run that the tracker holds, after it was closed."""
        reporter.close()
        runs = self.read()
        assert len(runs) == 1, f"there are {len(runs)} runs, not one"
        return runs[0]

    def part(self, run: Reported, name: str) -> Any:
        """A part of a run; a test of what the tracker has no place for ends here."""
        value = getattr(run, name)
        if value is None:
            pytest.skip(f"{self.reporter_class.__name__} has no place for: {name}")
        return value

    def key(self, name: str) -> str:
        """The tracker's key for a name in the loop's logs."""
        reporter = self.make_reporter()
        return Keys(reporter.limits, reporter.key_style)(name)

    def status(self, status: Status) -> str:
        """What the tracker says for a status."""
        return self.nearest_status.get(status, status)

    def points_of(self, run: Reported, name: str) -> list[tuple[int, float]]:
        """The steps and values of a name in the loop's logs."""
        return list(self.part(run, "points").get(self.key(name), []))

    def latest(self, run: Reported, name: str) -> dict[int, float]:
        """The value of each step; the last one where there are several."""
        return dict(self.points_of(run, name))

    def assert_points(self, run: Reported, name: str, expected: list[tuple[int, float]]) -> None:
        found: Any = self.points_of(run, name)
        assert found == [(step, pytest.approx(value, rel=self.tolerance)) for step, value in expected], name

    def assert_params(self, run: Reported, expected: Mapping[str, Any]) -> None:
        """By the names of arguments; a tracker may keep values as text."""
        params, clean = self.part(run, "params"), Keys(self.reporter_class.limits)
        found = {name: str(params.get(clean(name))) for name in expected}
        assert found == {name: str(value) for name, value in expected.items()}

    def assert_neighbours_of_odd(self, run: Reported) -> None:
        self.assert_points(run, "loss", [(1, 0.5)])
        self.assert_points(run, "later", [(1, 2.5)])

    def files(self) -> list[Path]:
        """All files in the folder."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def let_fail(
        self,
        reporter: Reporter,
        operation: str,
        monkeypatch: pytest.MonkeyPatch,
        error: Exception,
        times: int | None = None,
    ) -> None:
        """Let an operation raise, each time or the first few times. What closes something does so nevertheless."""
        original = getattr(reporter, operation)
        raised = 0

        def failing(*arguments: Any) -> Any:
            nonlocal raised
            if operation in ("flush", "finish", "detach") or raised == times:
                original(*arguments)
            if raised != times:
                raised += 1
                raise error

        monkeypatch.setattr(reporter, operation, failing)

    def count(self, reporter: Reporter, operations: Iterable[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """A list to which each call of one of the operations adds its name."""
        called: list[str] = []

        def counted(operation: str) -> Callable[..., Any]:
            original = getattr(reporter, operation)

            def call(*arguments: Any) -> Any:
                called.append(operation)
                return original(*arguments)

            return call

        for operation in operations:
            monkeypatch.setattr(reporter, operation, counted(operation))
        return called

    # ---- how pytest runs it -----------------------------------------------------------------------------------

    @pytest.fixture(autouse=True, name="folder")
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An empty folder, deep below one that holds nothing else, as home and working directory."""
        self.around = tmp_path / "around"
        self.folder = self.around.joinpath(*"123456", "work")
        self.folder.mkdir(parents=True)
        monkeypatch.chdir(self.folder)
        for home in ("HOME", "USERPROFILE"):
            monkeypatch.setenv(home, str(self.folder))
        ours = [variable for variable in os.environ if variable.startswith("TRACKSIDE_")]
        forget_variables(monkeypatch, self.reporter_class, *ours)
        monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")  # what is told is looked at as soon as it was told
        return self.folder

    @pytest.fixture(autouse=True)
    def _reporters(self, folder: Path) -> Iterator[None]:
        """Close those that the test has made, whatever became of it."""
        self.reporters = []
        yield
        for reporter in self.reporters:
            reporter.close()


def losses(first: int, last: int) -> list[tuple[int, float]]:
    """What a `FakeLoop` logs as its loss from one step to another."""
    return [(step, 1 / (step + 1)) for step in range(first, last + 1)]


def in_forked_child(action: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether `action` says so in a child process that is forked for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: a fork beside threads, which users do
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if action() else 1
        finally:
            os._exit(code)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False
