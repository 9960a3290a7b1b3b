"""What somebody may have meant who typed a name that is not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

# Below it come names that merely begin or end alike.
_ALIKE = 0.83

Checked = TypeVar("Checked", bound="ChecksArguments")


def closest(name: str, names: Iterable[str]) -> str | None:
    """The name that is spelled like `name`, or else the first one that has all its words; None if there is none."""
    from difflib import get_close_matches

    known = list(names)
    words = set(name.split("_"))
    alike = get_close_matches(name, known, 1, _ALIKE)
    return next(iter([*alike, *(other for other in known if words <= set(other.split("_")))]), None)


class ChecksArguments:
    """Says what was meant by keyword arguments that the constructor does not take.

    `instead` tells what to do in place of arguments that are known from elsewhere.
    """

    instead: ClassVar[Mapping[str, str]] = {}

    def __new__(cls: type[Checked], *args: Any, **kwargs: Any) -> Checked:
        if kwargs:
            _refuse_unknown(cls, kwargs)
        return super().__new__(cls)


def _refuse_unknown(cls: type[ChecksArguments], given: Iterable[str]) -> None:
    from inspect import Parameter, signature

    taken = dict(list(signature(cls.__init__).parameters.items())[1:])
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in taken.values()):
        return
    unknown = [f"{name} ({_advice(cls, name, taken)})" for name in given if name not in taken]
    if unknown:
        raise TypeError(f"{cls.__name__} has no argument {', '.join(unknown)}.")


def _advice(cls: type[ChecksArguments], name: str, taken: Iterable[str]) -> str:
    if name in cls.instead:
        return cls.instead[name]
    near = closest(name, taken)
    return f"did you mean {near}?" if near else "leave it out"
