"""Which integrations there are, and which of them `report_to` asks for."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trackside.reporter import Configured, Reporter, is_disabled

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

logger = logging.getLogger(__name__)

GROUP = "trackside.reporters"

ReportTo = str | type[Reporter] | Reporter | Mapping[str, Any] | Iterable[Any] | None


class NotInstalledError(ImportError):
    """An integration that was asked for, or its SDK, is not installed."""


class NotConfiguredError(RuntimeError):
    """An integration that was asked for lacks something that only the user can give."""


def resolve(report_to: ReportTo) -> list[Reporter]:
    """The reporters that `report_to` asks for, each of them once, in its order.

    `report_to` is a name, a comma-separated string, a class, an instance, a dict `{name: options}`, or a list of any of
    these. "all" stands for each installed integration that is configured; None, [] and "none" for nothing. Where
    several mean the same integration, an instance is taken before a name, and a name before "all". No SDK is imported.

    Raises:
        ValueError: a name that nobody knows, or "none" beside others.
        NotInstalledError: an integration or its SDK is missing; the message holds the line to type.
        NotConfiguredError: a named integration cannot start as it is.
        TypeError: something that names no integration, or an option that it does not have.
    """
    wanted = list(_entries(report_to))
    if any(entry == "none" for entry, _ in wanted):
        if any(entry != "none" for entry, _ in wanted):
            raise ValueError(f"report_to={report_to!r} asks for nothing and for something; leave one of them out.")
        return []
    if is_disabled():
        return []
    made = [
        (entry, reporter)
        for entry, options in wanted
        for reporter in (_all() if entry == "all" else [_make(entry, options)])
    ]
    given = {type(reporter) for entry, reporter in made if entry is reporter}
    named = {type(reporter) for entry, reporter in made if entry != "all"}
    chosen: list[Reporter] = []
    for entry, reporter in made:
        is_replaced = entry is not reporter and type(reporter) in (named if entry == "all" else given)
        if not is_replaced and not any(reporter.is_duplicate_of(other) for other in chosen):
            chosen.append(reporter)
    return chosen


def installed() -> dict[str, EntryPoint]:
    """The integrations that are installed, by name. None of them is imported."""
    from importlib.metadata import entry_points

    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def known() -> list[str]:
    """The names of all integrations that the umbrella package offers or that are installed."""
    return sorted({*_offered(), *installed()})


def configured(name: str, is_named: bool = True) -> Configured:
    """Whether an installed integration could start now, named by the user or by "all", and if not, what is missing."""
    reporter = _load(installed()[name])()
    reporter.required = is_named
    return _readiness(reporter)


def install_line(name: str) -> str:
    """What to type for an integration or its SDK that is missing."""
    dist = f'"trackside[{name}]"' if name in _offered() else _dist_of(name)
    return f"pip install {dist}"


def normalize(name: str) -> str:
    """The one spelling of an integration's name: `Comet-ML` is `comet_ml`."""
    return name.strip().lower().replace("-", "_")


def _entries(report_to: Any) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """All forms of `report_to` as pairs of a name, class or instance and its options."""
    if report_to is None:
        return
    if isinstance(report_to, str):
        yield from ((name, {}) for name in map(normalize, report_to.split(",")) if name)
    elif isinstance(report_to, Mapping):
        yield from ((entry, _options(name, given)) for name, given in report_to.items() for entry, _ in _entries(name))
    elif isinstance(report_to, Reporter) or (isinstance(report_to, type) and issubclass(report_to, Reporter)):
        yield report_to, {}
    elif isinstance(report_to, Iterable):
        for entry in report_to:
            yield from _entries(entry)
    else:
        raise TypeError(f"report_to takes names, reporters, or a dict of options, not {report_to!r}.")


def _options(name: Any, given: Any) -> Mapping[str, Any]:
    if given is None or isinstance(given, Mapping):
        return given or {}
    found = type(given).__name__  # and not its value, which may be a key
    raise TypeError(
        f"report_to has a {found} where options of {name!r} belong; type {{{name!r}: {{'option': value}}}}."
    )


def _all() -> list[Reporter]:
    reporters = []
    for name, point in installed().items():
        try:
            reporter = _load(point)()
            reporter.required = False
            answer = _readiness(reporter)
        except Exception as error:  # whatever is wrong with one that nobody named
            logger.warning("%s is left out: %s", name, error)
            continue
        if answer:
            reporters.append(reporter)
        else:
            logger.warning("%s is installed but left out: %s.", name, answer.why)
    return reporters


def _make(entry: Any, options: Mapping[str, Any]) -> Reporter:
    if isinstance(entry, Reporter):
        return entry
    reporter: Reporter = (entry if isinstance(entry, type) else _class_of(entry))(**options)
    if _lacks_sdk(reporter):
        raise NotInstalledError(
            f"report_to asks for {reporter.name!r}, whose package {reporter.sdk!r} is not installed; "
            f"type: {install_line(reporter.name)}"
        )
    if not (answer := reporter.configured()):
        raise NotConfiguredError(f"report_to asks for {reporter.name!r}, which is not configured: {answer.why}.")
    return reporter


def _class_of(name: str) -> type[Reporter]:
    points = installed()
    if name in points:
        return _load(points[name])
    present = ", ".join(points) or "none"
    if name in _offered():
        raise NotInstalledError(
            f"report_to asks for {name!r}, which is not installed (installed: {present}); type: {install_line(name)}"
        )
    from difflib import get_close_matches

    guess = "".join(f", did you mean {near!r}?" for near in get_close_matches(name, known(), 1))
    raise ValueError(
        f"report_to asks for {name!r}, but no integration of that name is installed{guess} (installed: {present})."
    )


def _load(point: EntryPoint) -> type[Reporter]:
    try:
        integration: type[Reporter] = point.load()
    except Exception as error:
        raise ImportError(f"The integration {point.name!r} is installed but broken ({error!r}).") from error
    return integration


def _readiness(reporter: Reporter) -> Configured:
    """Whether a reporter could start now, its SDK included."""
    if _lacks_sdk(reporter):
        return Configured(False, f"its package {reporter.sdk!r} is not installed")
    return reporter.configured()


def _lacks_sdk(reporter: Reporter) -> bool:
    if reporter.sdk is None or reporter.sdk in sys.modules:
        return False
    from importlib.util import find_spec

    try:
        spec = find_spec(reporter.sdk)
    except ModuleNotFoundError:  # the package that it is in
        return True
    return spec is None or spec.origin is None  # a mere folder of that name, as trackers leave them behind


def _offered() -> list[str]:
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        umbrella = metadata("trackside")
    except PackageNotFoundError:
        return []
    required = {re.split(r"[^\w-]", requirement)[0] for requirement in umbrella.get_all("Requires-Dist") or []}
    return [name for name in map(normalize, umbrella.get_all("Provides-Extra") or []) if _dist_of(name) in required]


def _dist_of(name: str) -> str:
    return f"trackside-{name.replace('_', '-')}"
