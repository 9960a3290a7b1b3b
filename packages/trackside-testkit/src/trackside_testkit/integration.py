"""What the tests of integrations have in common; the fixtures among it are imported by a `conftest.py`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trackside import Reporter
from trackside.options import options_of
from trackside_testkit.loop import FakeLoop


@contextmanager
def fake_modules(folder: Path, *names: str) -> Iterator[None]:
    """An import of one of these packages takes that in `folder`, anew, and afterwards again the real one."""
    real = _loaded(names)
    for name in real:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in _loaded(names):
            del sys.modules[name]
        sys.modules.update(real)


def _loaded(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] in names}


def forget_variables(monkeypatch: pytest.MonkeyPatch, reporter_class: type[Reporter], *further: str) -> None:
    """Whatever the developer's shell says to a reporter, and in some further variables, a test starts without it."""
    variables = [option.variable for option in options_of(reporter_class).values() if option.variable]
    for variable in (*variables, *further):
        monkeypatch.delenv(variable, raising=False)


def maker_of(make: Callable[..., Reporter]) -> Any:
    """A fixture: a function that makes a reporter by `make`, a class perhaps, which is closed after the test."""

    @pytest.fixture
    def new() -> Iterator[Callable[..., Reporter]]:
        made: list[Reporter] = []

        def make_one(*arguments: Any, **options: Any) -> Reporter:
            made.append(make(*arguments, **options))
            return made[-1]

        yield make_one
        for reporter in made:
            reporter.close()

    return new


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeLoop]:
    """A function that makes a loop of one epoch for reporters, with its output below the test's folder, where it runs.

    What is told arrives at once.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")

    def make(*callbacks: Any, **arguments: Any) -> FakeLoop:
        return FakeLoop(callbacks, **{"output_dir": tmp_path / "out", "num_train_epochs": 1, **arguments})

    return make


def documented_options(readme: Path) -> list[tuple[str, str, str]]:
    """The options in the table of a README: name, environment variable ("" for none), and default as Python has it."""
    row = r"^\| `(\w+)` \| (?:`(\w+)`)? *\| `(.+?)` \|"
    return re.findall(row, readme.read_text("utf-8"), flags=re.MULTILINE)


def declared_options(reporter_class: type[Reporter]) -> list[tuple[str, str, str]]:
    """The options of a class, in the same form."""
    declared = options_of(reporter_class).items()
    return [(name, option.variable or "", repr(option.default)) for name, option in declared]
