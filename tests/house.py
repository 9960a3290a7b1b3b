"""The packages of a tree, found by their folders, and what can be read of them without importing anything."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

if sys.version_info < (3, 11):
    import tomli as tomllib
else:
    import tomllib

ROOT = Path(__file__).parents[1]
REPORTERS = "trackside.reporters"


@dataclass(frozen=True)
class Package:
    """A folder with a `pyproject.toml` that is built, tested and released by itself."""

    folder: Path

    @property
    def is_integration(self) -> bool:
        return self.folder.parent.name == "integrations"

    @property
    def lives_with_others(self) -> bool:
        """Whether it and its SDK can be installed beside all others; one that cannot says so."""
        return self.pyproject.get("tool", {}).get("trackside", {}).get("together", True)

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        return tomllib.loads((self.folder / "pyproject.toml").read_text("utf-8"))

    @property
    def project(self) -> dict[str, Any]:
        return self.pyproject["project"]

    @property
    def dist(self) -> str:
        return self.project["name"]

    @property
    def requires(self) -> set[str]:
        return {Requirement(line).name for line in self.project.get("dependencies", [])}

    @property
    def modules(self) -> list[str]:
        return sorted(file.parent.name for file in self.folder.glob("src/*/__init__.py"))

    @property
    def sources(self) -> list[Path]:
        return sorted(self.folder.glob("src/**/*.py"))


def packages(root: Path = ROOT) -> list[Package]:
    patterns = ("core/pyproject.toml", "packages/*/pyproject.toml", "integrations/*/pyproject.toml")
    return [Package(file.parent) for pattern in patterns for file in sorted(root.glob(pattern))]


def source_folders(package: Package, root: Path = ROOT) -> list[Path]:
    """The `src` folders of a package and of those of ours that it needs."""
    needed = [other for other in packages(root) if other.dist in package.requires]
    return [package.folder / "src", *(folder for other in needed for folder in source_folders(other, root))]


@dataclass(frozen=True)
class Import:
    """One module that a file imports, and where."""

    module: str
    line: int
    within: tuple[str, ...]  # the classes and functions around it, outermost first
    runs_at_import: bool


def imports(source: Path) -> list[Import]:
    finder = _ImportFinder()
    finder.visit(ast.parse(source.read_text("utf-8"), source))
    return finder.found


class _ImportFinder(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[Import] = []
        self._within: list[str] = []
        self._deferred = 0

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and node.module:
            self._add(node.module, node)

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func)
        if re.fullmatch(r"(importlib\.)?(import_module|__import__)", called) and isinstance(node.args[0], ast.Constant):
            self._add(node.args[0].value, node)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            self._visit_deferred(node.body)
            node.body = []
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._within.append(node.name)
        self._visit_deferred(node.body)
        self._within.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._within.append(node.name)
        self.generic_visit(node)
        self._within.pop()

    def _visit_deferred(self, body: list[ast.stmt]) -> None:
        self._deferred += 1
        for statement in body:
            self.visit(statement)
        self._deferred -= 1

    def _add(self, module: str, node: ast.Import | ast.ImportFrom | ast.Call) -> None:
        top = module.partition(".")[0]
        self.found.append(Import(top, node.lineno, tuple(self._within), runs_at_import=not self._deferred))


def class_attribute(sources: list[Path], class_name: str, attribute: str) -> object:
    """The literal that a class is given for an attribute, or None."""
    for node in _statements_of_class(sources, class_name):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == attribute for target in targets):
            return ast.literal_eval(node.value)
    return None


def _statements_of_class(sources: list[Path], class_name: str) -> Iterator[ast.stmt]:
    for source in sources:
        for node in ast.parse(source.read_text("utf-8"), source).body:
            if isinstance(node, ast.ClassDef) and node.name == class_name:
                yield from node.body
