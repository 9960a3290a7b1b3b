"""A complete integration, of a tracker that is a list, and the contract for it: an example to start from."""

import os
from dataclasses import dataclass, field

import pytest

from trackside import Limits, Reporter, env
from trackside_testkit import Reported, ReporterContract


@dataclass
class Book:
    """A run as this tracker keeps it."""

    name: str
    status: str = "running"
    points: list = field(default_factory=list)
    params: dict = field(default_factory=dict)
    texts: list = field(default_factory=list)
    summary: dict = field(default_factory=dict)
    artifacts: dict = field(default_factory=dict)


LIBRARY: dict[str, Book] = {}


class InMemoryReporter(Reporter):
    """Reports to `LIBRARY`."""

    name = "in_memory"
    reopenable = True
    limits = Limits(key=r"\w\-. /", key_length=100, param_value=500, params_per_call=20)

    shelf = env("IN_MEMORY_SHELF", "A")

    def start(self, run):
        number = run.tracker_id or f"{self.shelf}{len(LIBRARY)}"
        self.run = LIBRARY.setdefault(number, Book(run.name))
        self.run.status = "running"
        return number

    def log_points(self, points):
        for point in points:
            self.run.points += [(key, point.step, value) for key, value in point.values.items()]

    def log_params(self, params):
        self.run.params.update(params)

    def log_text(self, key, text, step, time):
        self.run.texts.append((key, step, text))

    def log_summary(self, values):
        self.run.summary.update(values)

    def log_file(self, name, text):
        self.run.artifacts[name] = [os.path.basename(name)]

    def log_artifact(self, artifact):
        self.run.artifacts[artifact.name] = [name for _, name in artifact.files()]

    def finish(self, status):
        self.run.status = status


class InMemoryContract(ReporterContract):
    """In a package of its own this is called `TestInMemory`."""

    reporter_class = InMemoryReporter

    @pytest.fixture(autouse=True)
    def _empty_library(self):
        LIBRARY.clear()

    def read(self):
        return [
            Reported(
                points=Reported.by_key(book.points),
                params=book.params,
                texts=Reported.by_key(book.texts),
                summary=book.summary,
                artifacts=book.artifacts,
                status=book.status,
            )
            for book in LIBRARY.values()
        ]
