"""Options of a reporter: keyword arguments whose default is an environment variable."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

# How the environment switches something on and off, in letters of any case.
TRUE = ("1", "true", "yes", "on", "y", "t")
FALSE = ("0", "false", "no", "off", "n", "f", "")


class Option:
    """An attribute that is what the user gave, else what the environment says when it is asked, else `default`."""

    def __init__(self, variable: str | None, default: Any, convert: Callable[[str], Any] | None) -> None:
        self.variable = variable
        self.default = default
        self.convert = convert or (_boolean if isinstance(default, bool) else type(default) if default else str)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        if self.name in instance.__dict__:
            return instance.__dict__[self.name]
        text = os.environ.get(self.variable) if self.variable else None
        if text is None:
            return self.default
        try:
            return self.convert(text)
        except ValueError as error:
            raise ValueError(f"{self.variable}={text!r} is not understood: {error}.") from None

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value


def env(variable: str | None, default: Any = None, convert: Callable[[str], Any] | None = None) -> Any:
    """An option named by the attribute it is assigned to, with `variable` as its default from the environment.

    The text of the variable is converted to the type of `default` (yes, on, 1, TRUE ... for a bool) or by `convert`.
    Without a variable (None) it is an option that can only be given as an argument.
    """
    return Option(variable, default, convert)


def words(text: str) -> tuple[str, ...]:
    """Converts a variable that holds a list with commas between its words."""
    return tuple(filter(None, map(str.strip, text.split(","))))


def options_of(owner: type) -> dict[str, Option]:
    """The options that a class and its bases declare, by name."""
    return {
        name: value
        for kind in reversed(owner.__mro__)
        for name, value in vars(kind).items()
        if isinstance(value, Option)
    }


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise ValueError(f"a switch takes one of {', '.join(filter(None, TRUE + FALSE))}")
