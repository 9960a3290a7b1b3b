"""Curves as one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def sparkline(numbers: Sequence[float], width: int) -> str:
    """A bar for each number, or for the mean of neighbours where there are more than `width`; nan leaves a gap.

    A single number is no curve.
    """
    if len(numbers) < 2:
        return ""
    means = [_mean(part) for part in _parts(numbers, min(width, len(numbers)))]
    heights = [mean for mean in means if mean is not None]
    if not heights:
        return ""
    low, high = min(heights), max(heights)
    return "".join(" " if mean is None else _bar(mean, low, high) for mean in means)


def _parts(numbers: Sequence[float], count: int) -> list[Sequence[float]]:
    """The numbers in `count` parts of nearly the same length."""
    length = len(numbers)
    return [numbers[part * length // count : (part + 1) * length // count] for part in range(count)]


def _mean(numbers: Sequence[float]) -> float | None:
    finite = [number for number in numbers if math.isfinite(number)]
    return sum(number / len(finite) for number in finite) if finite else None


def _bar(mean: float, low: float, high: float) -> str:
    if math.isclose(low, high):  # means of equal numbers differ in their last digits
        return BARS[len(BARS) // 2]
    share = (mean / 2 - low / 2) / (high / 2 - low / 2)  # halves, as the whole may be more than a float can hold
    return BARS[min(int(share * len(BARS)), len(BARS) - 1)]
