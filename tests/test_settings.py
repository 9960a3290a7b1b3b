"""The settings of pytest stand in the top pyproject.toml and hold in the folder of every package."""

import re
import shutil
import subprocess
import sys

import pytest
from house import ROOT

FAULTS = """
import socket
import warnings

import pytest


def test_that_reaches_beyond_loopback():
    socket.create_connection(("192.0.2.1", 80), timeout=1)


def test_that_warns():
    warnings.warn("old", stacklevel=1)


@pytest.mark.xfail
def test_that_passes_against_expectation():
    pass


def test_that_stays_on_loopback():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
"""


@pytest.fixture
def package(tmp_path):
    """The folder of a package with a pyproject.toml of its own, in a tree with the settings of this repository."""
    folder = tmp_path / "integrations/comet_ml"
    (folder / "tests").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "trackside-comet-ml"')
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return folder


def run_pytest(package, *arguments):
    command = [sys.executable, "-B", "-m", "pytest", package / "tests", *arguments]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_test_that_reaches_out_or_warns_or_passes_against_expectation_fails(package, workers):
    (package / "tests/test_comet_ml.py").write_text(FAULTS)
    output = run_pytest(package, workers)
    assert set(re.findall(r"^FAILED \S+::(\w+)", output, re.MULTILINE)) == {
        "test_that_reaches_beyond_loopback",
        "test_that_warns",
        "test_that_passes_against_expectation",
    }
    assert "3 failed, 1 passed" in output
    assert sorted(path.name for path in package.rglob("*")) == ["pyproject.toml", "test_comet_ml.py", "tests"]


def test_a_marker_that_nobody_declared_is_an_error(package):
    (package / "tests/test_comet_ml.py").write_text("import pytest\n\n@pytest.mark.skd\ndef test_it(): pass")
    assert "'skd' not found in `markers`" in run_pytest(package)
