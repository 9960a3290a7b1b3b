"""Reports a training run to Comet."""

from trackside_comet_ml.reporter import CometCallback

__all__ = ["CometCallback"]
