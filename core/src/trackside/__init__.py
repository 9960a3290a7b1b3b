"""Trackside reports a training loop to any number of experiment trackers, never in the loop's way."""

from trackside.callbacks import CallbackHandler, TrainerCallback
from trackside.console import PrinterCallback, ProgressCallback
from trackside.flow import DefaultFlowCallback, EarlyStoppingCallback
from trackside.options import env
from trackside.records import Artifact, Limits, Point, Run, Status
from trackside.registry import configured, installed, resolve
from trackside.reporter import Configured, Reporter, StartError
from trackside.state import ExportableState, TrainerControl, TrainerState
from trackside.watch import watch

__all__ = [
    "Artifact",
    "CallbackHandler",
    "Configured",
    "DefaultFlowCallback",
    "EarlyStoppingCallback",
    "ExportableState",
    "Limits",
    "Point",
    "PrinterCallback",
    "ProgressCallback",
    "Reporter",
    "Run",
    "StartError",
    "Status",
    "TrainerCallback",
    "TrainerControl",
    "TrainerState",
    "configured",
    "env",
    "installed",
    "resolve",
    "watch",
]
