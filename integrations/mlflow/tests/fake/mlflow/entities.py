"""What is logged, and what a run is."""

from typing import Any, NamedTuple


class Metric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


class Param(NamedTuple):
    key: str
    value: str


class RunTag(NamedTuple):
    key: str
    value: str


class RunInfo:
    def __init__(self, run_id, experiment_id, start_time, run_name):
        self.run_id = run_id
        self.experiment_id = experiment_id
        self.start_time = start_time
        self.run_name = run_name
        self.status = "RUNNING"
        self.end_time = None
        self.lifecycle_stage = "active"


class RunData:
    def __init__(self, tags):
        self.metrics: list[Metric] = []
        self.params: dict[str, str] = {}
        self.tags: dict[str, str] = tags


class Run:
    def __init__(self, info, data):
        self.info = info
        self.data = data


class Experiment(NamedTuple):
    experiment_id: str
    name: str
    tags: Any = None
