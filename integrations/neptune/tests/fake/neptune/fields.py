"""Fields as the client has them: each keeps the type that it was made with."""

from __future__ import annotations

import math
import warnings
from typing import Any

from neptune.exceptions import NeptuneUserApiInputException, TypeDoesNotSupportAttributeException
from neptune.types import FileSet

NAMESPACE: dict[str, Any] = {}  # the real one is a mapping of its fields
ATOMS = ("Boolean", "Integer", "Float", "String")


def verify_type(name: str, value: Any, kinds: Any) -> None:
    if not isinstance(value, kinds):
        raise TypeError(f"{name} must be a {kinds} (was {type(value)})")


class Field:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.value: Any = None
        self.rows: list[tuple[float, Any, float]] = []
        self.received = 0
        self.is_cleared = False
        self.uploaded: Any = None

    @staticmethod
    def kind_of(value: Any) -> str | None:
        kinds = {bool: "Boolean", int: "Integer", float: "Float", str: "String", FileSet: "FileSet"}
        return kinds.get(type(value))

    def seen(self) -> Field:
        """The field as another client has it, which knows the type and has sent nothing to it."""
        field = Field(self.kind)
        field.value = field.uploaded = self.value
        return field

    def assign(self, value: Any) -> None:
        getattr(self, f"_assign_to_{self.kind.lower()}")(value)

    def _assign_to_boolean(self, value: Any) -> None:
        self.value = bool(value)

    def _assign_to_integer(self, value: Any) -> None:
        if -(2**31) <= int(value) < 2**31:
            self.value = int(value)

    def _assign_to_float(self, value: Any) -> None:
        if math.isfinite(float(value)):
            self.value = float(value)
        else:
            warnings.warn(f"a nonstandard float value ({value})", stacklevel=4)

    def _assign_to_string(self, value: Any) -> None:
        verify_type("value", value, str)
        self.value = value[:16384]

    def _assign_to_file(self, value: Any) -> None:
        self.value = value

    def _assign_to_fileset(self, value: Any) -> None:
        self.value = value.file_globs

    def _assign_to_floatseries(self, value: Any) -> None:
        raise TypeError("`values` is not a collection")

    _assign_to_stringseries = _assign_to_floatseries

    def clear(self) -> None:
        self.rows, self.received, self.is_cleared = [], 0, True

    def extend(self, values: list[Any], steps: list[float], timestamps: list[float]) -> None:
        if not self.kind.endswith("Series"):
            raise TypeDoesNotSupportAttributeException(self.kind)
        if not len(values) == len(steps) == len(timestamps):
            raise NeptuneUserApiInputException("Number of steps must be equal to number of values")
        for number in (*steps, *timestamps):
            if type(number) not in (int, float):
                raise TypeError("elements of collection must be a float or int")
        self.rows += zip(steps, map(self._element, values), timestamps, strict=True)

    def _element(self, value: Any) -> Any:
        if self.kind == "StringSeries":
            len(value)
            return value[:1000]
        if not math.isfinite(float(value)):
            warnings.warn(f"a non-standard float value ({value})", stacklevel=4)
        return float(value)
