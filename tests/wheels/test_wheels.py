"""What a user has who installed every wheel: the session `wheels` runs this in such an environment."""

import importlib
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
WHEELS = sorted(ROOT.glob("dist/*.whl"))
FILES = {wheel: ZipFile(wheel).namelist() for wheel in WHEELS}
INTEGRATIONS = {file.parent.name: file.read_text("utf-8") for file in ROOT.glob("integrations/*/pyproject.toml")}
APART = {name for name, pyproject in INTEGRATIONS.items() if "together = false" in pyproject}
MODULES = sorted(
    {file.partition("/")[0] for files in FILES.values() for file in files if file.endswith(".py")}
    - {f"trackside_{name}" for name in APART}
)
REPORTERS = sorted(entry_points(group="trackside.reporters").names)


def test_every_package_has_a_wheel_and_an_sdist():
    patterns = ("core/pyproject.toml", "packages/*/pyproject.toml", "integrations/*/pyproject.toml")
    projects = [file for pattern in patterns for file in ROOT.glob(pattern)]
    assert len(WHEELS) == len(list(ROOT.glob("dist/*.tar.gz"))) == len(projects)


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: wheel.stem)
def test_a_wheel_holds_a_licence_and_one_typed_module_and_no_tests(wheel):
    folders = {file.partition("/")[0] for file in FILES[wheel]}
    info = next(folder for folder in folders if folder.endswith(".dist-info"))
    modules = folders - {info}
    assert f"{info}/licenses/LICENSE" in FILES[wheel]
    assert len(modules) == 1
    assert all(f"{module}/py.typed" in FILES[wheel] for module in modules)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_imported_from_where_its_wheel_was_installed(module):
    assert Path(importlib.import_module(module).__file__).is_relative_to(sys.prefix)


def test_every_integration_that_lives_with_others_is_registered():
    assert sorted(INTEGRATIONS.keys() - APART) == REPORTERS


@pytest.mark.parametrize("name", REPORTERS)
def test_a_tracker_is_found_by_its_name_and_asked_whether_it_can_start_without_its_sdk(name):
    code = (
        "import sys, trackside\n"
        f"reporter = trackside.installed()[{name!r}].load()()\n"
        "reporter.configured()\n"
        "print(reporter.name, reporter.sdk in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.stderr) == ([name, "False"], "")
