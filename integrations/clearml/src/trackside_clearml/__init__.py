"""Reports a training run to ClearML, through a task."""

from trackside_clearml.reporter import ClearMLCallback

__all__ = ["ClearMLCallback"]
