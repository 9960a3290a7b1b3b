"""What the benchmarks share: the shortest of several runs, and a table with the ratio that matters."""

from __future__ import annotations

import timeit
from collections.abc import Callable

Row = tuple[str, float, float, str]


def best(function: Callable[[], object], number: int, repeat: int = 7) -> float:
    """Seconds of one call: the fastest of `repeat` rounds of `number` calls, which other work disturbed least."""
    return min(timeit.repeat(function, number=number, repeat=repeat)) / number


def table(title: str, unit: str, rows: list[Row]) -> None:
    """Print a table of (what, ours, theirs, target for ours/theirs)."""
    print(f"\n{title}")
    print(f"  {'':40} {'trackside':>12} {'transformers':>13} {'ratio':>9}  target")
    for what, ours, theirs, target in rows:
        print(f"  {what:40} {ours:10.2f} {unit} {theirs:10.2f} {unit} {_ratio(ours, theirs):>9}  {target}")


def _ratio(ours: float, theirs: float) -> str:
    return f"1/{theirs / ours:.1f}" if ours < theirs else f"{ours / theirs:.2f}"
