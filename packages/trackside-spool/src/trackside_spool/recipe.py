"""How to make a reporter again, in another process: its class and its options, without secrets."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from trackside.options import options_of
from trackside.reporter import Reporter
from trackside.values import REDACTED, describe, redact
from trackside_spool.folder import Tracker


def tracker_of(key: str, reporter: Reporter) -> Tracker:
    """A tracker that has nothing yet, with how it is reported to: as the user or the environment wants it."""
    kind = type(reporter)
    given = {name: getattr(reporter, name) for name, option in options_of(kind).items()}
    wanted = {name: value for name, value in given.items() if value != options_of(kind)[name].default}
    options = {**wanted, **reporter._as_given()}
    left_out = {"required", *reporter.handles}  # whether the user has named it does not matter in a replay
    plain, withheld = _public({name: value for name, value in options.items() if name not in left_out})
    return Tracker(key, f"{kind.__module__}:{kind.__qualname__}", plain, withheld=withheld)


def note_place(tracker: Tracker, reporter: Reporter) -> None:
    """Add where the run is kept, which a program may have chosen by other means than options."""
    plain, withheld = _public(reporter.place())
    tracker.options = {**tracker.options, **plain}
    tracker.withheld = sorted({*tracker.withheld, *withheld} - plain.keys())


def build(tracker: Tracker) -> Reporter:
    """Make the reporter that a tracker was reported to by.

    Raises:
        ValueError: an option was a secret, and nothing says here what it is.
    """
    module, _, name = tracker.reporter.partition(":")
    kind = importlib.import_module(module)
    for part in name.split("."):
        kind = getattr(kind, part)
    reporter: Reporter = kind(**tracker.options)  # type: ignore[operator]
    for name in tracker.withheld:
        option = options_of(type(reporter)).get(name)
        if option is not None and option.variable and getattr(reporter, name) == option.default:
            raise ValueError(f"{name} of {tracker.key} is a secret and was not written down; set {option.variable}.")
    return reporter


def _public(options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The options that are plain and no secret, and the names of the others."""
    redacted = redact(describe(dict(options)))
    plain = {name: value for name, value in redacted.items() if value == options[name] and value != REDACTED}
    return plain, sorted(options.keys() - plain.keys())
