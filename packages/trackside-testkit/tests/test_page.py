"""The page on how a reporter is written: its example keeps the contract, and its tables are complete."""

import os
import re
import subprocess
import sys
from pathlib import Path

from trackside import Reporter

PAGE = (Path(__file__).parents[3] / "docs/reporters.md").read_text("utf-8")
REPORTER, TESTS, _ = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
# What is for users and for the core.
OWNED = {"setup", "close", "leave", "wait_for_end", "sent", "warn_once", "has", "is_passing", "is_duplicate_of"}
OWNED |= {"import_sdk", "measured_of", "say_where"}


def test_the_example_keeps_the_contract(tmp_path):
    (tmp_path / "trackside_jsonl.py").write_text(REPORTER)
    (tmp_path / "test_jsonl.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 70


def test_every_operation_and_every_declaration_is_told_of():
    told = set(re.findall(r"^(?:\| |- \*\*)`(\w+)", PAGE, flags=re.MULTILINE))
    operations = {
        name
        for name, value in vars(Reporter).items()
        if callable(value) and not name.startswith(("_", "on_")) and name not in OWNED
    }
    declared = {name for name, kind in Reporter.__annotations__.items() if kind.startswith("ClassVar")}
    assert told == operations | declared
