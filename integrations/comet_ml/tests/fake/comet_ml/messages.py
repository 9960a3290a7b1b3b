import math
import time


class MetricMessage:
    def __init__(self, context=None, timestamp=None, message_id=None):
        if not isinstance(timestamp, (int, type(None))):
            raise TypeError("a timestamp is an int, in milliseconds")
        self.context = context
        self.local_timestamp = round(time.time() * 1000) if timestamp is None else timestamp
        self.metric = None

    def set_metric(self, name, value, step=None, epoch=None):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"a metric is a number, not {value!r}")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise OverflowError("a server takes 64 bits")
        if not isinstance(step, int):
            raise TypeError("a step is an int")
        if not isinstance(name, str) or not 0 < len(name) <= 100:
            raise ValueError("a name has 1 to 100 characters")
        if isinstance(value, float) and not math.isfinite(value):
            value = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        self.metric = {"metricName": name, "metricValue": value, "step": step, "epoch": epoch}
