"""What loops hand to reporters: every kind of value, keys that do harm, and secrets where users leave them."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any


class Scalar:
    """Like a numpy scalar or a tensor without dimensions: it says its number through `item()` only."""

    shape: tuple[int, ...] = ()

    def __init__(self, value: float) -> None:
        self.value = value

    def item(self) -> float:
        return self.value


class OneElement(Scalar):
    """Like a tensor of one element that has a gradient."""

    shape = (1,)
    requires_grad = True

    def tolist(self) -> list[float]:
        return [self.value]


class Matrix:
    """Like an array of more than one element: it is not one number."""

    shape = (2, 2)

    def item(self) -> float:
        raise ValueError("only one element can be converted to a number")

    def tolist(self) -> list[list[float]]:
        return [[1.0, 2.0], [3.0, 4.0]]


class Broken:
    """An object of which nothing can be learned."""

    def item(self) -> float:
        raise RuntimeError("the device is gone")

    __float__ = item

    def __str__(self) -> str:
        raise RuntimeError("the device is gone")


FINITE: dict[str, tuple[Any, float]] = {
    "an int": (3, 3),
    "a float": (-0.25, -0.25),
    "zero": (0.0, 0),
    "a small float": (1e-30, 1e-30),
    "a bool": (True, 1),
    "an int above 64 bits": (2**70, 2**70),
    "a Decimal": (Decimal("0.125"), 0.125),
    "a Fraction": (Fraction(1, 8), 0.125),
    "a numpy scalar": (Scalar(0.5), 0.5),
    "a tensor of one element": (OneElement(0.75), 0.75),
}

NON_FINITE: dict[str, Any] = {
    "nan": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "a Decimal nan": Decimal("NaN"),
    "a tensor of nan": OneElement(math.nan),
    "a numpy infinity": Scalar(math.inf),
}

NO_NUMBERS: dict[str, Any] = {
    "None": None,
    "a text": "warm-up",
    "an empty text": "",
    "a long text": "long " * 20_000,
    "a text of a number": "1.5",
    "bytes": b"\xff\x00",
    "a list": [1, 2.5, "three"],
    "an empty list": [],
    "a long list": list(range(1000)),
    "a nested dict": {"per_class": {"cat": 0.5, "dog": None}},
    "an empty dict": {},
    "a dict with numbers as keys": {0: 0.5, 1: 0.75},
    "a number that no float holds": 10**400,
    "an array": Matrix(),
    "an object": object(),
    "an object that cannot be read": Broken(),
}

ANY_VALUE: dict[str, Any] = {**{kind: value for kind, (value, _) in FINITE.items()}, **NON_FINITE, **NO_NUMBERS}

KEYS = [
    "",
    " ",
    "/",
    ".",
    "..",
    "a b",
    "a/b",
    "a//b",
    "../up",
    "../../../../../../far-up",
    "C:\\windows",
    "größe",
    "損失",
    "🚂",
    "time(s)",
    "time[s]",
    "time{s}",
    "time_s_",
    "recall@10",
    "recall:10",
    "100%",
    "%s",
    "two\nlines",
    "a tab\t",
    "a quote'",
    'quotes"',
    "x" * 2000,
    "x" * 1999 + "y",
]
"""Keys that a tracker may refuse, confuse with one another, or take for a path."""


SECRETS = {
    "hub_token": "hf_aQxWvUtSrQpOnMlKjIhGfEdC",
    "api_key": "plain-looking-api-key",
    "password": "plain-looking-password",
    "option": "plain-looking-option",
    "argument": "plain-looking-argument",
    "login": "plain-looking-login",
    "config": "plain-looking-config-token",
    "text": "ghp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N",
    "bearer": "plain-looking-bearer-1234",
    "variable": "plain-looking-environment",
}
"""Secrets by where a user leaves them. None may reach a tracker, a file or the console."""
