# ruff: noqa: A002 - the names are those of the real one
"""A run: what it refuses, what it drops, and what it has taken."""

import atexit
import glob
import math
import os
import re
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

from swanlab.sdk.internal.bus.events import MetricLogEvent, Timestamp
from swanlab.sdk.internal.core_python import client
from swanlab.sdk.internal.pkg import console

RUNS = []
ON_SERVER = {}  # the last step of each metric, by the id of its run
UPLOADS = threading.Event()
UPLOADS.set()
FAILURES = []  # of the run's file

_current = None


def has_run():
    return _current is not None and _current.alive


def get_run():
    if _current is None:
        raise RuntimeError("No active Run. Call swanlab.init() first.")
    return _current


class Callback:
    pass


class Text:
    def __init__(self, content, caption=None):
        content.encode()
        self.content, self.caption = content, caption


class Config(dict):
    def update(self, __m=None, **kwargs):
        for key, value in {**(__m or {}), **kwargs}.items():
            str(key).encode("utf-8")
            self[str(key)] = self._parsed(value)

    def _parsed(self, value):
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Inf"
        if isinstance(value, str):
            value.encode("utf-8")
        return value


class Metric:
    def __init__(self, kind, min_step):
        self.kind, self.min_step, self.steps = kind, min_step, set()


class Context:
    def __init__(self, metrics):
        self._global_step = max([metric.min_step for metric in metrics.values()], default=-1)
        self.core = SimpleNamespace(_metrics=metrics)

    def next_step(self, user_step=None):
        if user_step is None:
            self._global_step += 1
            return self._global_step
        self._global_step = max(self._global_step, user_step)
        return user_step


class Run:
    def __init__(self, id, mode, log_dir, about, settings, callbacks):
        global _current
        self.id, self.mode, self.about, self.settings = id, mode, about, settings
        self.name, self.project = about["name"], about["project"]
        self.dir = Path(log_dir, f"run-20261201_120000-{id}-{len(RUNS)}")
        self.config, self.callbacks = Config(), callbacks or []
        self.points, self.texts, self.times, self.saved = [], [], [], {}
        self.state, self.error, self._pid = "running", None, os.getpid()
        before = ON_SERVER.get(id, {}) if mode == "online" else {}
        self._ctx = Context({key: Metric(float, step) for key, step in before.items()})
        self._components = SimpleNamespace(emitter=SimpleNamespace(emit=self._take))
        self._api_lock = threading.RLock()
        self._origin = sys.excepthook
        sys.excepthook = self._handle_except
        atexit.register(self._handle_atexit)
        _current = self
        if mode != "disabled":
            self.dir.mkdir(parents=True)
            RUNS.append(self)

    @property
    def alive(self):
        return self.state == "running" and self._pid == os.getpid()

    @property
    def url(self):
        if self.mode != "online":
            raise ValueError("Run url is unavailable")
        return f"https://swanlab.test/@me/{self.project}/runs/{self.id}"

    def log(self, data, step=None):
        self._check()
        if step is not None and (not isinstance(step, int) or step < 0):
            console.error(f"Step must be a non-negative integer, but got {step}. SwanLab will ignore this log.")
            return
        self._take(MetricLogEvent(data=dict(data), step=self._ctx.next_step(step), timestamp=Timestamp()))

    def save(self, glob_str, base_path=None, policy="live"):
        self._check()
        assert policy in ("now", "end", "live")
        found = [Path(path) for path in glob.glob(str(glob_str))]
        for path in found:
            self.saved[path.relative_to(base_path).as_posix()] = path.read_bytes()
        return [str(path) for path in found]

    def finish(self, state="success", error=None, async_log_timeout=None):
        global _current
        if not self.alive:
            console.warning("SwanLab Run has already finished or has not started.")
            return
        if state not in ("success", "crashed", "aborted"):
            console.error(f"Invalid state: {state}")
            return
        self.state, self.error = state, error or ("unknown" if state == "crashed" else None)
        if self.mode == "online":
            UPLOADS.wait(20)
            last = {key: max(metric.steps, default=metric.min_step) for key, metric in self._metrics.items()}
            ON_SERVER[self.id] = {**ON_SERVER.get(self.id, {}), **last}
            if client.exists():
                client.reset()
        sys.excepthook = self._origin
        _current = None

    @property
    def _metrics(self):
        return self._ctx.core._metrics

    def _take(self, event):
        """What is wrong with a value is printed by a thread of the real one, and its neighbours are kept."""
        taken = []
        for key, value in event.data.items():
            if (
                re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", key)
                or key != key.strip(" \t\n\r./")
                or not 0 < len(key) <= 512
            ):
                console.error(f"SwanLab dropped an invalid metric {key!r}")
            elif key.startswith("__swanlab__") or type(event.step) is not int or event.step > 2**48:
                console.warning(f"Metric {key!r} at step {event.step} skipped")
            elif type(value) not in (float, Text):
                console.error(f"Error when parsing metric {key!r}: {type(value).__name__}")
            else:
                taken.append(SimpleNamespace(key=key, step=event.step, value=value))
        if FAILURES:
            console.error(f"Error when flushing batch: {FAILURES.pop(0)}")
            return
        for record in taken:
            self._keep(record, event.timestamp.seconds)
        for callback in self.callbacks:
            callback.on_scalar_flush([record for record in taken if type(record.value) is float])
            callback.on_media_flush([record for record in taken if type(record.value) is Text])

    def _keep(self, record, seconds):
        metric = self._metrics.setdefault(record.key, Metric(type(record.value), -1))
        is_new = record.step > metric.min_step and record.step not in metric.steps
        if not is_new or metric.kind is not type(record.value):
            return
        metric.steps.add(record.step)
        self.times.append(seconds)
        if metric.kind is Text:
            self.texts.append((record.key, record.step, record.value.content))
        else:
            self.points.append((record.key, record.step, record.value))

    def _check(self):
        if not self.alive:
            raise RuntimeError("`run.log()` requires an active Run, call `swanlab.init()` first.")

    def _handle_atexit(self):
        if self.alive:
            self.finish()

    def _handle_except(self, kind, value, trace):
        if self.alive:
            self.finish("crashed", str(value))
        self._origin(kind, value, trace)
