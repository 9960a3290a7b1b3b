"""What the tests of integrations have in common leaves nothing behind, and compares what it says that it compares."""

import os
import sys

import pytest
from in_memory import LIBRARY, InMemoryReporter

from trackside_testkit.integration import (
    declared_options,
    documented_options,
    fake_modules,
    forget_variables,
    maker_of,
)
from trackside_testkit.integration import loop as loop

new = maker_of(InMemoryReporter)


@pytest.fixture
def fake(tmp_path):
    package = tmp_path / "fake" / "colorsys"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from colorsys.more import BLUE\n")
    (package / "more.py").write_text("BLUE = object()\n")
    return package.parent


def test_an_import_takes_the_fake_anew_each_time_and_afterwards_the_real_one(fake):
    import colorsys as real

    path = list(sys.path)
    seen = []
    for _ in range(2):
        with fake_modules(fake, "colorsys"):
            import colorsys

            seen.append(colorsys.BLUE)
    import colorsys

    assert seen[0] is not seen[1]
    assert colorsys is real
    assert "colorsys.more" not in sys.modules
    assert sys.path == path


def test_the_real_one_is_there_again_after_a_test_that_fails(fake):
    import colorsys as real

    with pytest.raises(ZeroDivisionError), fake_modules(fake, "colorsys"):
        _ = 1 / 0
    assert sys.modules["colorsys"] is real


def test_variables_of_the_reporter_and_further_ones_are_forgotten(monkeypatch):
    for variable in ("IN_MEMORY_SHELF", "IN_MEMORY_KEY"):
        monkeypatch.setenv(variable, "of the developer")
    forget_variables(monkeypatch, InMemoryReporter, "IN_MEMORY_KEY", "NEVER_SET")
    assert InMemoryReporter().shelf == "A"
    assert "IN_MEMORY_KEY" not in os.environ


@pytest.fixture
def status_after_the_test():
    LIBRARY.clear()
    yield
    assert [book.status for book in LIBRARY.values()] == ["finished"]


def test_what_is_made_for_a_test_is_closed_after_it(status_after_the_test, new, loop):
    training = loop(new(shelf="B"))
    training.begin()
    assert [(number, book.status) for number, book in LIBRARY.items()] == [("B0", "running")]


def test_a_loop_runs_in_the_folder_of_the_test_where_its_output_goes(loop, new, tmp_path):
    loop(new()).train()
    assert os.getcwd() == str(tmp_path)
    assert [path.name for path in tmp_path.glob("out/*")] == ["checkpoint-4"]


README = """
| option | variable | default | |
|---|---|---|---|
| `resume` | | `'auto'` | a sentence |
| `key_style` | | `'grouped'` | a sentence |
| `shelf` | `IN_MEMORY_SHELF` | `'A'` | a sentence |
"""


@pytest.mark.parametrize(("old", "other"), [("", ""), ("'A'", "'B'"), ("IN_MEMORY_", ""), ("`shelf`", "`floor`")])
def test_a_table_that_says_something_else_than_the_class_is_found(tmp_path, old, other):
    readme = tmp_path / "README.md"
    readme.write_text(README.replace(old, other))
    is_right = documented_options(readme) == declared_options(InMemoryReporter)
    assert is_right == (old == "")
