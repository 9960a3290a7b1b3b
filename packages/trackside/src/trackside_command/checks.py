"""What can keep a tracker from reporting, looked at one by one."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from trackside import Reporter
from trackside.deadline import within
from trackside.delivery import reason_of
from trackside.options import options_of
from trackside.recorder import DELIVERIES, wanted_delivery
from trackside.registry import install_line, installed
from trackside.reporter import is_disabled
from trackside.values import redact
from trackside_command.integrations import Needed, needs, version_of
from trackside_command.tiny_run import make_tiny_run

HERE = "here"
ONLINE_SECONDS = 60


class Finding(NamedTuple):
    """What was found `where` (at a tracker, or here) of one thing, and what to do if that is not right."""

    where: str
    what: str
    is_ok: bool
    found: str
    is_late: bool = False


def look_around() -> Iterator[Finding]:
    """What all trackers have in common."""
    yield _folder(HERE, "working folder", ".")
    yield _folder(HERE, "home", os.path.expanduser("~"))
    try:
        yield _folder(HERE, "temporary folder", tempfile.gettempdir())
    except FileNotFoundError:
        yield Finding(HERE, "temporary folder", False, "there is none that can be written to; set TMPDIR")
    yield _delivery()
    if not installed():
        yield Finding(HERE, "integrations", False, "none is installed; see what there is with: trackside list")


def examine(name: str, is_named: bool, online: bool) -> Iterator[Finding]:
    """What there is to find of one tracker, up to where it makes no sense to go on."""
    point = installed().get(name)
    if point is None:
        yield Finding(name, "integration", False, f"not installed; type: {install_line(name)}")
        return
    try:
        reporter: Reporter = point.load()()
    except Exception as error:  # whatever is wrong with it
        yield Finding(name, "integration", False, f"{reason_of(error)}; install it again")
        return
    reporter.required = is_named
    yield Finding(name, "integration", True, f"version {version_of(point) or 'unknown'}")
    versions = list(_versions(point))
    findings = [*versions, _settings(reporter), *_folders(reporter)]
    yield from findings
    if not all(version.is_ok for version in versions):
        return
    imported = _attempt(name, "import", reporter.import_sdk, "install its package again")
    yield imported
    if online and all(finding.is_ok for finding in (*findings, imported)):
        tiny_run = partial(within, ONLINE_SECONDS, partial(make_tiny_run, reporter))
        yield _attempt(name, "tiny run", tiny_run, "see that its server can be reached and takes the key")


def _delivery() -> Finding:
    wanted = wanted_delivery()
    if is_disabled():
        return Finding(HERE, "delivery", False, "TRACKSIDE_DISABLED switches all reporting off; unset it")
    if wanted not in DELIVERIES:
        return Finding(HERE, "delivery", False, f"TRACKSIDE_DELIVERY takes one of {', '.join(DELIVERIES)}")
    if wanted == "inline":
        return Finding(HERE, "delivery", True, "inline: no journal is kept, and each log call waits for the trackers")
    if find_spec("fcntl") is None:
        return Finding(HERE, "delivery", True, "no journal is kept, as this system has no file locks")
    return Finding(HERE, "delivery", True, f"by {wanted}, from a journal in the run's own folder")


def _versions(point: EntryPoint) -> Iterator[Finding]:
    for needed in needs(point):
        yield Finding(point.name, "package", needed.fits, _fit(point, needed))


def _fit(point: EntryPoint, needed: Needed) -> str:
    if needed.version is None:
        return f"{needed.name} is not installed; type: {install_line(point.name)}"
    if needed.is_unfit:
        line = f'pip install "{needed.name}{needed.takes}"'
        return f"{needed.name} {needed.version} is none of those that are known to work; type: {line}"
    return f"{needed.name} {needed.version}" + (f" (takes {needed.takes})" if needed.takes else "")


def _settings(reporter: Reporter) -> Finding:
    """Whether it has what only the user can give. What a variable holds is shown to nobody."""
    try:
        for name in options_of(type(reporter)):
            getattr(reporter, name)
        is_ok, why = reporter.configured()
    except Exception as error:  # a variable that is not understood
        return Finding(reporter.name, "settings", False, reason_of(error))
    if not is_ok:
        return Finding(reporter.name, "settings", False, str(redact(why)))
    variables = ", ".join(_variables(reporter))
    return Finding(reporter.name, "settings", True, f"complete, with {variables}" if variables else "complete")


def _variables(reporter: Reporter) -> list[str]:
    """The environment variables that are set, among those of its options and those that begin with its name."""
    own = {option.variable for option in options_of(type(reporter)).values()}
    prefix = reporter.name.partition("_")[0].upper()
    return sorted(name for name in os.environ if name in own or name.startswith(prefix))


def _folders(reporter: Reporter) -> Iterator[Finding]:
    """The folders that its options name."""
    for name in options_of(type(reporter)):
        if name.endswith(("dir", "directory")):
            try:
                given = getattr(reporter, name)
            except ValueError:  # said already
                continue
            if given and "://" not in str(given):
                yield _folder(reporter.name, name, str(given))


def _folder(where: str, what: str, folder: str) -> Finding:
    """Whether a folder can be written to, or made, which is tried by a file that has no name."""
    try:
        nearest = next(path for path in (Path(folder), *Path(folder).absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=nearest):
            return Finding(where, what, True, f"{folder} can be written to")
    except OSError as error:
        return Finding(where, what, False, f"{folder} cannot be written to ({error.strerror}); choose another one")


def _attempt(where: str, what: str, call: Callable[[], object], remedy: str) -> Finding:
    began = time.monotonic()
    try:
        call()
    except Exception as error:  # whatever an SDK raises
        return Finding(where, what, False, f"{reason_of(error)}; {remedy}", isinstance(error, TimeoutError))
    return Finding(where, what, True, f"done in {time.monotonic() - began:.1f} s")
