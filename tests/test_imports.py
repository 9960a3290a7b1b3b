"""Who may import whom: the table of the design, enforced by reading every import of every package."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from house import ROOT, Import, Package, imports, packages

# What a package may import beside the standard library, `trackside` and itself.
# A package that is new under packages/ gets its row here; an integration needs none.
ALLOWED = {
    "trackside-core": set(),
    "trackside": {
        "trackside_spool",
        "trackside_testkit",
        "click",
        "rich",
        "packaging",
        "altair",
        "vl_convert",
        "pyarrow",
    },
    "trackside-spool": {"orjson"},
    "trackside-testkit": {"pytest"},
    "trackside-torch": {"torch"},
}
NOT_FOR_INTEGRATIONS = {"trackside_testkit", "trackside_spool", "trackside_torch", "transformers"}


def violations(root: Path) -> list[str]:
    """Every import that the table forbids, as a sentence."""
    return [
        f"{source.relative_to(root)}:{found.line} imports {found.module}: {reason}"
        for package in packages(root)
        for source in package.sources
        for found in imports(source)
        for reason in objections(package, found, packages(root))
    ]


def objections(package: Package, found: Import, everyone: list[Package]) -> Iterator[str]:
    if found.module in {*sys.stdlib_module_names, "trackside", *package.modules}:
        return
    if package.is_integration:
        yield from objections_to_an_integration(package, found, everyone)
    elif package.dist not in ALLOWED:
        yield f"{package.dist} has no row in the table of tests/test_imports.py"
    elif found.module not in ALLOWED[package.dist] and not is_tqdm_of_the_progress_bar(package, found):
        yield f"{package.dist} may not"


def objections_to_an_integration(package: Package, found: Import, everyone: list[Package]) -> Iterator[str]:
    undeclared = {
        module
        for other in everyone
        if other.is_integration and other.dist not in package.requires
        for module in other.modules
    }
    if found.module in undeclared:
        yield "an integration never imports another one that it does not declare"
    elif found.module in NOT_FOR_INTEGRATIONS:
        yield "an integration never does"
    elif found.runs_at_import and not found.module.startswith("trackside_"):
        yield "an integration imports its SDK inside functions only"


def is_tqdm_of_the_progress_bar(package: Package, found: Import) -> bool:
    in_progress_bar = found.within[:1] == ("ProgressCallback",) and not found.runs_at_import
    return package.dist == "trackside-core" and found.module == "tqdm" and in_progress_bar


def test_every_package_imports_only_what_it_may():
    assert "\n".join(violations(ROOT)) == ""


@pytest.fixture
def tree(tmp_path):
    """A function that adds a package with one source file to a small tree."""

    def add(folder: str, dist: str, module: str, code: str, dependencies: str = "[]") -> Path:
        source = tmp_path / folder / "src" / module / "__init__.py"
        source.parent.mkdir(parents=True)
        source.write_text(code)
        project = f'[project]\nname = "{dist}"\ndependencies = {dependencies}\n'
        (tmp_path / folder / "pyproject.toml").write_text(project)
        return tmp_path

    return add


@pytest.mark.parametrize(
    "code",
    [
        "import torch",
        "from numpy.typing import NDArray",
        "def f():\n    import transformers",
        "import tqdm",
        "def f():\n    from tqdm import tqdm",
        "class ProgressCallback:\n    import tqdm",
        "import importlib\nimportlib.import_module('torch')",
        "import trackside_wandb",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch",
    ],
)
def test_the_core_is_caught_importing_more_than_the_standard_library(tree, code):
    assert len(violations(tree("core", "trackside-core", "trackside", code))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "import json\nfrom os import path\nfrom . import values\nfrom trackside import state",
        "class ProgressCallback:\n    def bar(self):\n        from tqdm.auto import tqdm",
    ],
)
def test_the_core_may_import_the_standard_library_and_tqdm_for_its_progress_bar(tree, code):
    assert violations(tree("core", "trackside-core", "trackside", code)) == []


@pytest.mark.parametrize(
    "code",
    [
        "import wandb",
        "try:\n    import wandb\nexcept ImportError:\n    wandb = None",
        "class WandbCallback:\n    from wandb import Settings",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import wandb",
        "def start():\n    import trackside_mlflow",
        "def start():\n    import trackside_testkit",
        "def start():\n    from trackside_spool import journal",
        "def start():\n    import transformers",
    ],
)
def test_an_integration_is_caught_importing_what_it_may_not(tree, code):
    tree("integrations/mlflow", "trackside-mlflow", "trackside_mlflow", "")
    assert len(violations(tree("integrations/wandb", "trackside-wandb", "trackside_wandb", code))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "from trackside import Reporter\nfrom .settings import x\nfrom trackside_wandb import y",
        "def start():\n    import wandb",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from wandb import Run",
    ],
)
def test_an_integration_may_import_trackside_and_inside_functions_its_sdk(tree, code):
    assert violations(tree("integrations/wandb", "trackside-wandb", "trackside_wandb", code)) == []


def test_an_integration_may_build_on_another_one_that_it_declares(tree):
    tree("integrations/mlflow", "trackside-mlflow", "trackside_mlflow", "")
    code = "from trackside_mlflow import MLflowCallback"
    root = tree("integrations/dagshub", "trackside-dagshub", "trackside_dagshub", code, '["trackside-mlflow>=0.1"]')
    assert violations(root) == []


@pytest.mark.parametrize(
    ("dist", "module", "code"),
    [
        ("trackside-torch", "trackside_torch", "import transformers"),
        ("trackside-torch", "trackside_torch", "def f():\n    import accelerate"),
        ("trackside-testkit", "trackside_testkit", "import trackside_tensorboard"),
        ("trackside-spool", "trackside_spool", "import numpy"),
    ],
)
def test_other_packages_are_caught_importing_what_has_no_place_in_their_row(tree, dist, module, code):
    assert violations(tree(f"packages/{dist}", dist, module, code)) == [
        f"packages/{dist}/src/{module}/__init__.py:{code.count(chr(10)) + 1} imports {code.split()[-1]}: {dist} may not"
    ]


def test_a_package_without_a_row_is_named(tree):
    found = violations(
        tree("packages/trackside-lightning", "trackside-lightning", "trackside_lightning", "import lightning")
    )
    assert len(found) == 1
    assert "has no row" in found[0]


def test_other_packages_may_import_what_their_row_says(tree):
    tree("packages/trackside-testkit", "trackside-testkit", "trackside_testkit", "import pytest, trackside")
    assert violations(tree("packages/trackside-torch", "trackside-torch", "trackside_torch", "import torch.nn")) == []
