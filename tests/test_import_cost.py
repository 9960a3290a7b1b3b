"""Importing costs nothing: no package beside the standard library, nothing said, nothing started."""

import subprocess
import sys
from pathlib import Path

import pytest
from house import ROOT, packages, source_folders

INTEGRATIONS = [package for package in packages() if package.is_integration]
DEFERRED = {"torch", "numpy", "transformers", "tqdm", "importlib.metadata"}


def modules_after_import(module: str, *folders: Path) -> set[str]:
    """The modules that one import loads in a Python that has the standard library and these folders only."""
    code = f"""
import sys
sys.path[:0] = {[str(folder) for folder in folders]}
before = set(sys.modules)
import {module}
print(*set(sys.modules) - before)
import threading
assert threading.active_count() == 1, threading.enumerate()
"""
    command = [sys.executable, "-S", "-E", "-B", "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode or done.stderr:
        raise ImportError(done.stderr)
    return set(done.stdout.split())


def foreign(modules: set[str]) -> set[str]:
    """Those that are neither ours nor the standard library's."""
    return {module for module in modules if module.partition(".")[0] not in {*sys.stdlib_module_names, "trackside"}}


def test_importing_trackside_loads_the_standard_library_only():
    loaded = modules_after_import("trackside", ROOT / "core/src")
    assert "trackside.callbacks" in loaded
    assert foreign(loaded) == set()
    assert loaded & DEFERRED == set()


@pytest.mark.parametrize("integration", INTEGRATIONS, ids=lambda package: package.folder.name)
def test_an_integration_is_imported_without_its_sdk(integration):
    module = f"trackside_{integration.folder.name}"
    assert module in modules_after_import(module, *source_folders(integration))


def test_an_import_that_is_not_deferred_is_seen(tmp_path):
    (tmp_path / "eager.py").write_text("import importlib.metadata\nimport local_package")
    (tmp_path / "local_package.py").write_text("")
    loaded = modules_after_import("eager", tmp_path)
    assert loaded & DEFERRED == {"importlib.metadata"}
    assert foreign(loaded) == {"eager", "local_package"}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import pytest", "No module named 'pytest'"),
        ("import warnings; warnings.warn('old')", "old"),
        ("import sys; print('hello', file=sys.stderr)", "hello"),
        ("import threading, time; threading.Thread(target=time.sleep, args=(1,)).start()", "AssertionError"),
    ],
)
def test_an_import_that_does_more_than_importing_is_seen(tmp_path, code, said):
    (tmp_path / "eager.py").write_text(code)
    with pytest.raises(ImportError, match=said):
        modules_after_import("eager", tmp_path)
