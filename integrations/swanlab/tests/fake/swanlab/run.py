# ruff: noqa: A002 - the names are those of the real one
"""A run: what it refuses, what it drops, and what it has taken."""

import atexit
import math
import os
import re
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from swanlab.sdk.internal.bus.events import FileSaveEvent, MetricLogEvent, Timestamp
from swanlab.sdk.internal.core_python import client
from swanlab.sdk.internal.pkg import console

RUNS = []
ON_SERVER = {}  # the last step of each metric, by the id of its run
UPLOADS = threading.Event()
UPLOADS.set()
FAILURES = []  # of the run's file
ANSWERS = []  # of the server to what is uploaded

_current = None


def has_run():
    return _current is not None and _current.alive


def get_run():
    if _current is None:
        raise RuntimeError("No active Run. Call swanlab.init() first.")
    return _current


def is_clean(key):
    has_control = re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", key)
    return not has_control and key == key.strip(" \t\n\r./") and 0 < len(key) <= 512


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
        if value is None:
            return {}
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Inf"
        if isinstance(value, str):
            value.encode("utf-8")
        return value


class Metric:
    def __init__(self, kind, min_step):
        self.kind, self.min_step, self.steps = kind, min_step, set()


class Context:
    def __init__(self, metrics, about):
        project = SimpleNamespace(name=about["project"], workspace=about["workspace"])
        self.config = SimpleNamespace(settings=SimpleNamespace(project=project))
        self._global_step = max([metric.min_step for metric in metrics.values()], default=-1)
        self.core = SimpleNamespace(_metrics=metrics)

    def next_step(self, user_step=None):
        if user_step is None:
            self._global_step += 1
            return self._global_step
        self._global_step = max(self._global_step, user_step)
        return user_step


class Run:
    def __init__(self, id, mode, log_dir, about, settings):
        global _current
        self.id, self.mode, self.about, self.settings = id, mode, about, settings
        self.name, self.project = about["name"], about["project"]
        self.dir = Path(log_dir, f"run-20261201_120000-{id}-{len(RUNS)}")
        self.config = Config()
        self.points, self.texts, self.times, self.saved = [], [], [], {}
        self.state, self.error, self._pid = "running", None, os.getpid()
        before = ON_SERVER.get(id, {}) if mode == "online" else {}
        self._ctx = Context({key: Metric(float, step) for key, step in before.items()}, about)
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
            self._upload()
            last = {key: max(metric.steps, default=metric.min_step) for key, metric in self._metrics.items()}
            ON_SERVER[self.id] = {**ON_SERVER.get(self.id, {}), **last}
            if client.exists():
                client.reset()
        sys.excepthook = self._origin
        _current = None

    def _upload(self):
        """By a thread of its own, which speaks of retries and refusals alike."""
        said = [partial(console.error, f"[HTTP] POST /house/metrics -> {status}") for status in ANSWERS]
        uploader = threading.Thread(target=lambda: [say() for say in said], name="SwanLab·Transport")
        uploader.start()
        uploader.join()

    @property
    def _metrics(self):
        return self._ctx.core._metrics

    def _take(self, event):
        writer = threading.Thread(target=self._write, args=(event,), name="SwanLab·Specter")
        writer.start()
        writer.join()

    def _write(self, event):
        """What is wrong is printed, and nothing is raised."""
        if isinstance(event, FileSaveEvent):
            self.saved[event.name] = Path(event.source_path).read_bytes()
            console.info("Symlinked 1 files into the SwanLab run directory")
        elif FAILURES:
            console.error(f"upsert data error: {FAILURES.pop(0)}")
        else:
            for key, value in event.data.items():
                self._write_value(key, value, event.step, event.timestamp.seconds)

    def _write_value(self, key, value, step, seconds):
        if not is_clean(key):
            console.error(f"SwanLab dropped an invalid metric {key!r}")
            return
        if key.startswith("__swanlab__"):
            console.warning(f"Metric {key!r} at step {step} is a system key, skipped")
            return
        if type(value) not in (float, Text):
            console.error(f"Error when parsing metric {key!r}: {type(value).__name__}")
            return
        metric = self._metrics.setdefault(key, Metric(type(value), -1))
        if step > 2**48 or metric.kind is not type(value):
            console.error(f"Failed to upsert scalar metric ctx: {key} at {step}")
        elif step > metric.min_step and step not in metric.steps:
            metric.steps.add(step)
            self.times.append(seconds)
            kept = self.texts if metric.kind is Text else self.points
            kept.append((key, step, getattr(value, "content", value)))

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
