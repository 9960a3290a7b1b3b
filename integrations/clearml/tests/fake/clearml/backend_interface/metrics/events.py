"""Events of a task."""

import math
import time


class Event:
    kind = ""

    def __init__(self, timestamp=None):
        if timestamp is not None and type(timestamp) is not int:
            raise TypeError("timestamp: expected an integer")
        self._timestamp = timestamp or int(time.time() * 1000)

    def as_sent(self, task_id, offset):
        return {"type": self.kind, "task": task_id, "timestamp": self._timestamp}


class ScalarEvent(Event):
    kind = "training_stats_scalar"

    def __init__(self, metric, variant, value, iter, **kwargs):  # noqa: A002 - the real name
        super().__init__(**kwargs)
        if type(iter) is not int or not isinstance(value, (int, float)):
            raise TypeError("iter: expected an integer, value: a number")
        if not isinstance(metric, str) or not isinstance(variant, str):
            raise TypeError("metric and variant: expected a text")
        self._event = {"metric": metric, "variant": variant}
        self._value = value if math.isfinite(value) else 0.0
        self._iter = iter

    def as_sent(self, task_id, offset):
        return {**super().as_sent(task_id, offset), **self._event, "value": self._value, "iter": self._iter + offset}


class ConsoleEvent(Event):
    kind = "log"

    def __init__(self, message, level, worker, **kwargs):
        super().__init__(**kwargs)
        self._event = {"msg": str(message), "level": level, "worker": worker}

    def as_sent(self, task_id, offset):
        return {**super().as_sent(task_id, offset), **self._event}
