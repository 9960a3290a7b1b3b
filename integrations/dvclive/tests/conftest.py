"""The fake SDK in the place of dvclive, new for each test; those marked `sdk` use the real one."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from trackside_testkit import Reported
from trackside_testkit.integration import fake_modules
from trackside_testkit.integration import loop as loop

fake_sdk = partial(fake_modules, Path(__file__).parent / "fake", "dvclive")


@pytest.fixture(autouse=True)
def _sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for variable in os.environ:
        if variable.startswith(("DVC", "GIT_", "STUDIO_")):
            monkeypatch.delenv(variable)
    for home in ("HOME", "USERPROFILE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(home, str(tmp_path))
    monkeypatch.setenv("TRACKSIDE_DELIVERY", "inline")
    if request.node.get_closest_marker("sdk"):
        yield
        return
    with fake_sdk():
        yield


class Stored:
    """What the folder of a run holds."""

    def __init__(self, folder: Path, load_yaml: Callable[[str], Any] = json.loads) -> None:
        self.folder, self._load_yaml = folder, load_yaml

    @property
    def summary(self) -> dict[str, Any]:
        """Strictly as JSON has it, which has no nan."""
        text = self.folder.joinpath("metrics.json").read_text("utf-8")
        return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))

    @property
    def params(self) -> dict[str, Any]:
        file = self.folder / "params.yaml"
        return self._load_yaml(file.read_text("utf-8")) if file.exists() else {}

    def rows(self, kind: str = "plots/metrics") -> list[tuple[str, dict[str, str]]]:
        """Each row of each table, with the path of its table."""
        found = []
        for file in sorted(self.folder.joinpath(kind).rglob("*.tsv")):
            key = file.relative_to(self.folder / kind).as_posix().removesuffix(".tsv")
            with open(file, encoding="utf-8", newline="") as opened:
                rows = list(csv.DictReader(opened, delimiter="\t", quoting=csv.QUOTE_NONE))
            found += [(key, row) for row in rows]
        return found

    def values(self, kind: str = "plots/metrics") -> dict[str, list[tuple[int, str]]]:
        return Reported.by_key((key, int(row["step"]), list(row.values())[-1]) for key, row in self.rows(kind))

    @property
    def points(self) -> dict[str, list[tuple[int, float]]]:
        return {key: [(step, float(value)) for step, value in rows] for key, rows in self.values().items()}

    @property
    def texts(self) -> dict[str, list[tuple[int, str]]]:
        return {key: [(step, unescaped(text)) for step, text in rows] for key, rows in self.values("texts").items()}

    @property
    def artifacts(self) -> dict[str, set[str]]:
        files = [file for file in self.folder.glob("artifacts/*/**/*") if file.is_file()]
        found: dict[str, set[str]] = {}
        for file in files:
            name, _, inner = file.relative_to(self.folder / "artifacts").as_posix().partition("/")
            found.setdefault(name, set()).add(inner)
        return found

    def reported(self) -> Reported:
        summary = {"/".join(path): value for path, value in leaves(self.summary)}
        return Reported(self.points, self.params, self.texts, summary, self.artifacts, summary["trackside/status"])


def leaves(tree: dict[str, Any], *above: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, *above, name)
        else:
            yield (*above, name), value


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1]), text)
