"""Reports a training run to SwanLab: online, or to a folder that it uploads or shows later."""

from trackside_swanlab.reporter import SwanLabCallback

__all__ = ["SwanLabCallback"]
