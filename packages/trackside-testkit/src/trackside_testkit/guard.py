"""Catches a callback that changes what belongs to the loop or to its user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trackside.records import STATE_KEY


class Guard:
    """Stands before a callback in the loop, hands each event on to it, and looks at everything before and after.

    Lists, dicts and objects have to hold the very same things, in the same order, at every depth. The one exception
    are the ids of runs that reporters keep in the state.
    """

    def __init__(self, callback: Any) -> None:
        self._callback = callback

    def __getattr__(self, event: str) -> Callable[..., None]:
        if not event.startswith("on_"):
            raise AttributeError(event)
        method = getattr(self._callback, event)

        def guarded(args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            held = {"args": args, "state": state, "control": control, **kwargs}
            before = {name: contents(value) for name, value in held.items()}
            method(args, state, control, **kwargs)
            for name, value in held.items():
                assert contents(value) == before[name], f"{event} has changed {name}"

        return guarded


class Same:
    """Equal to nothing but itself; and it keeps what it holds, so that no other takes its address."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


def contents(value: Any, above: tuple[int, ...] = ()) -> Any:
    """What `value` is and holds, to be compared by identity; private attributes are its own business."""
    if id(value) in above:
        return Same(value)
    if isinstance(value, Mapping):
        held = dict(value)
    elif isinstance(value, (list, tuple)):
        held = dict(enumerate(value))
    else:
        held = {name: item for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    above = (*above, id(value))
    return Same(value), [(key, contents(item, above)) for key, item in held.items() if key != STATE_KEY]
