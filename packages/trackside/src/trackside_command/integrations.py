"""What can be known of the integrations without a network, and without the import of an SDK."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, PackageNotFoundError, version
from typing import NamedTuple

from packaging.requirements import Requirement

from trackside.delivery import reason_of
from trackside.registry import configured, install_line, installed, known
from trackside.values import redact

OURS = "trackside-"


class Needed(NamedTuple):
    """A package that an integration needs: the `version` that is there, None if there is none, and which it takes."""

    name: str
    version: str | None
    takes: str
    fits: bool

    @property
    def is_unfit(self) -> bool:
        """Whether it is there in a version that the integration does not take."""
        return self.version is not None and not self.fits


@dataclass(frozen=True)
class Integration:
    """An integration as it is found: its `version` is None if it is not installed.

    Attributes:
        missing: why it cannot report, empty if it can.
        line: what to type to have what is not installed.
    """

    name: str
    version: str | None = None
    needed: list[Needed] = field(default_factory=list)
    missing: str = ""
    line: str = ""

    @property
    def is_ready(self) -> bool:
        return not self.missing


def survey() -> list[Integration]:
    """Every integration that is known."""
    points = installed()
    return [_look_at(points[name]) if name in points else _absent(name) for name in known()]


def needs(point: EntryPoint) -> list[Needed]:
    """The packages of others that an integration needs: mostly one, the SDK of its tracker."""
    return list(_needs(point))


def version_of(point: EntryPoint) -> str | None:
    return point.dist.version if point.dist else None


def _absent(name: str) -> Integration:
    line = install_line(name)
    return Integration(name, missing=f"not installed; type: {line}", line=line)


def _look_at(point: EntryPoint) -> Integration:
    needed = needs(point)
    absent = [one.name for one in needed if one.version is None]
    line = install_line(point.name) if absent else ""
    lacks = [f"{name} is not installed; type: {line}" for name in absent]
    lacks += [f"{one.name} {one.version} does not fit, it takes {one.takes}" for one in needed if one.is_unfit]
    if not absent:
        lacks += _answer(point.name)
    return Integration(point.name, version_of(point), needed, "; ".join(lacks), line)


def _answer(name: str) -> list[str]:
    """Why an integration could not start, in its own words."""
    try:
        answer = configured(name, is_named=False)
    except Exception as error:  # whatever is wrong with it
        return [reason_of(error)]
    return [] if answer else [str(redact(answer.why))]


def _needs(point: EntryPoint) -> Iterator[Needed]:
    for text in (point.dist and point.dist.requires) or ():
        requirement = Requirement(text)
        is_meant = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_meant and not requirement.name.startswith(OURS):
            there = _version(requirement.name)
            fits = there is not None and requirement.specifier.contains(there, prereleases=True)
            takes = ",".join(sorted(map(str, requirement.specifier), reverse=True))  # >=1,<2
            yield Needed(requirement.name, there, takes, fits)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
