"""Comet's server, as far as experiments reach it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KNOWN_KEY = "an0api0key0of025characters"


@dataclass
class Stored:
    """What Comet shows of one experiment."""

    metrics: list[dict[str, Any]] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    texts: list[dict[str, Any]] = field(default_factory=list)
    assets: dict[str, bytes] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    graph: str | None = None
    is_running: bool = True
    has_crashed: bool = False
    workspace: str | None = None
    project: str | None = None

    def add(self, other: Stored) -> None:
        """Add what an archive of the same experiment holds, as its upload does."""
        self.metrics += other.metrics
        self.params |= other.params
        self.others |= other.others
        self.texts += other.texts
        self.assets |= other.assets
        self.tags += other.tags
        self.graph = other.graph or self.graph
        self.is_running, self.has_crashed = False, other.has_crashed


class Server:
    def __init__(self) -> None:
        self.experiments: dict[str, Stored] = {}
        self.archives: list[tuple[str, str]] = []
        """The folder and the experiment of each archive; their content counts as uploaded."""
        self.is_reachable = True


SERVER = Server()
