"""What a run is given."""

import time
from dataclasses import dataclass


class Timestamp:
    def __init__(self):
        self.seconds = time.time()

    def FromNanoseconds(self, nanos):
        self.seconds = nanos / 1e9


@dataclass
class FileSaveEvent:
    source_path: str
    name: str
    policy: str


@dataclass
class MetricLogEvent:
    data: dict
    step: int
    timestamp: Timestamp
