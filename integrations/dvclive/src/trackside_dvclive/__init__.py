"""Reports a training run to DVCLive: files in a folder, which DVC shows, compares and versions."""

from trackside_dvclive.reporter import DVCLiveCallback

__all__ = ["DVCLiveCallback"]
