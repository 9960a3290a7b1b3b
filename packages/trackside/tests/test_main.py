"""What all commands have in common."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from trackside_command import COMMANDS, main

HEAVY = {"rich", "packaging", "altair", "pyarrow", "tensorboardX"}


def modules_of(*words):
    """What has been imported when a command is done."""
    code = f"""
import sys
from trackside_command import main
try:
    main({list(words)})
finally:
    print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_the_help_imports_no_command():
    assert not modules_of("--help") & {*HEAVY, "trackside", "trackside_spool"}


@pytest.mark.parametrize("words", [("replay", "out"), ("show", "out"), ("export", "out"), ("prune", "out")])
def test_a_command_imports_only_what_it_uses(write_run, words):
    write_run((1, {"loss": 0.5}))
    assert not modules_of(*words) & HEAVY


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_a_help_of_its_own(typed, name):
    code, output = typed(name, "--help")
    assert code == 0
    assert output.startswith(f"Usage: main {name} ")
    assert name in typed("--help")[1]


@pytest.mark.parametrize("words", [("lits",), ("show",), ("show", "nowhere"), ("export", "."), ("list", "--colour")])
def test_what_is_not_understood_is_an_error_of_usage(typed, words):
    code, output = typed(*words)
    is_empty = words == ("export", ".")
    assert code == (1 if is_empty else 2)
    assert output.startswith("Error: " if is_empty else "Usage: ")


def test_its_version_is_that_of_the_umbrella(typed):
    assert typed("--version") == (0, f"{version('trackside')}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_readme_shows_each_command_and_each_of_its_options(name):
    readme = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    options = [option for option in main.get_command(None, name).params if isinstance(option, click.Option)]
    assert f"$ trackside {name}" in readme
    assert [option.opts[0] for option in options if option.opts[0] not in readme] == []
