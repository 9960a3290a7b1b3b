"""Writes trackers.md: all trackers side by side, from what their packages say of themselves."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

if sys.version_info < (3, 11):
    import tomli as tomllib
else:
    import tomllib

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/trackers.md"
SHOWN = {
    "log_points": "scalars",
    "log_summary": "summary values",
    "log_params": "params",
    "log_text": "texts",
    "log_artifact": "checkpoints",
}
LIMITS = {
    "key_length": "{} characters of a key",
    "param_value": "{} of a param",
    "text": "{} of a text",
    "params_per_call": "{} params a call",
    "points_per_call": "{} values a call",
}
HEAD = """# All trackers side by side

Made by `python docs/make_trackers.py` from the packages themselves; each name leads to the page of its package.
"""


def page() -> str:
    """The whole page."""
    trackers = [Tracker(folder) for folder in sorted((ROOT / "integrations").iterdir())]
    overview = table(
        ["tracker", "SDK", "shows", "keys", "offline", "resume", "limits"],
        [
            [one.link, one.sdk, one.shows, one.keys, one.said["offline"], one.said["resume"], one.limits]
            for one in trackers
        ],
    )
    options = table(
        ["tracker", "option", "variable", "default"],
        [[one.link, *option] for one in trackers for option in one.options],
    )
    return f"{HEAD}\n{overview}\n## Options\n\n{options}"


class Tracker:
    """What an integration says of itself: in its class, and in `[tool.trackside]` of its pyproject.toml."""

    def __init__(self, folder: Path) -> None:
        pyproject = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
        self._requires = pyproject["project"]["dependencies"]
        self.said: dict[str, str] = pyproject["tool"]["trackside"]
        ((self.name, target),) = pyproject["project"]["entry-points"]["trackside.reporters"].items()
        module, _, kind = target.partition(":")
        sys.path[:0] = [str(ROOT / "core/src"), str(folder / "src")]
        self._class: Any = getattr(importlib.import_module(module), kind)

    @property
    def link(self) -> str:
        return f"[{self.name}](../integrations/{self.name})"

    @property
    def sdk(self) -> str:
        needs = [Requirement(line) for line in self._requires if not line.startswith("trackside-")]
        return ", ".join(f"`{need}`" for need in needs)

    @property
    def shows(self) -> str:
        shown = ", ".join(what for operation, what in SHOWN.items() if self._class.has(operation))
        return self.said.get("shows", shown)

    @property
    def keys(self) -> str:
        if self._class.live:
            return ""
        style = self._class().key_style
        return {"grouped": "`train/loss`, `eval/loss`", "raw": "`loss`, `eval_loss`"}[style]

    @property
    def limits(self) -> str:
        limits = self._class.limits
        numbers = [text.format(getattr(limits, name)) for name, text in LIMITS.items() if getattr(limits, name)]
        letters = [f"keys of `{limits.key}`"] if limits.key and "\\w" in limits.key else []
        return "; ".join([*letters, *numbers]) or "none"

    @property
    def options(self) -> list[list[str]]:
        from trackside.options import options_of

        return [
            [f"`{name}`", f"`{option.variable}`" if option.variable else "", f"`{option.default!r}`"]
            for name, option in options_of(self._class).items()
        ]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(re.sub(r" +", " ", f"| {' | '.join(line)} |") + "\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
