"""Makes the package of an integration from the template: its class, a fake SDK, tests, README and metadata."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template
from typing import Literal

Home = Literal["repository", "project"]

TEMPLATE = Path(__file__).parent / "template"
FILLED = ".in"  # a file that ends so has placeholders; others are taken as they are

LONGEST_NAME = 24  # so that no line of the package is too long
TAKEN = {"core", "spool", "testkit", "torch", "command", "trackside"}  # packages of ours
TAKEN |= {"all", "none", "plot", "parquet"}  # other words of report_to and of the extras
TAKEN |= {"fake", "pytest", "sdk"}  # what tests import or are called


def check_name(name: str) -> None:
    """Raise a ValueError of one sentence if an integration cannot be called `name`."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise ValueError(f"{name!r} is no name: it takes lower-case letters and digits, in words with one _ between.")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"{name!r} is too long for a name: it takes {LONGEST_NAME} characters at most.")
    if name in TAKEN:
        raise ValueError(f"{name!r} already means something else here: take another name.")
    if keyword.iskeyword(name) or name in sys.stdlib_module_names:
        raise ValueError(f"{name!r} is a word of Python or a module of its library: take another name.")


def dist_of(name: str) -> str:
    return f"trackside-{name.replace('_', '-')}"


def make(name: str, folder: Path, home: Home) -> list[Path]:
    """Make the package of an integration in a new folder: for the repository of Trackside, or a project of its own.

    Returns:
        The files that were written.

    Raises:
        ValueError: it cannot have that name.
        FileExistsError: the folder is there already.
    """
    check_name(name)
    contents = dict(_files(name, home))
    folder.mkdir(parents=True)
    for path, text in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return [folder / path for path in contents]


def _files(name: str, home: Home) -> Iterator[tuple[str, str]]:
    """Each file of the package with its text, to which what its home needs is added at the end."""
    fill = _filler(name, home)
    for source in sorted(TEMPLATE.glob("package/**/*")):
        if source.is_file():
            path = source.relative_to(TEMPLATE / "package")
            text = source.read_text("utf-8")
            if (addition := TEMPLATE / home / path).is_file():
                text += addition.read_text("utf-8")
            if path.suffix == FILLED:
                text = _sorted_imports(fill(text))
            yield path.as_posix().removesuffix(FILLED).replace("NAME", name), text


def _filler(name: str, home: Home) -> Callable[[str], str]:
    words = name.split("_")
    dist = dist_of(name)
    values = {
        "name": name,
        "dist": dist,
        "kind": "".join(word.capitalize() for word in words),
        "title": " ".join(word.capitalize() for word in words),
        "variable": name.upper(),
        "install": f'"trackside[{name}]"' if home == "repository" else dist,
    }
    return lambda text: Template(text).substitute(values)


def _sorted_imports(text: str) -> str:
    """Imports of ours that follow each other, in the order in which they stand under this name."""
    return re.sub(r"(?:^from trackside.*\n)+", lambda block: _sorted_lines(block[0]), text, flags=re.MULTILINE)


def _sorted_lines(block: str) -> str:
    return "".join(sorted(block.splitlines(keepends=True)))
