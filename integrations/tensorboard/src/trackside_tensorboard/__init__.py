"""Reports a training run to TensorBoard, through tensorboardX."""

from trackside_tensorboard.reporter import TensorBoardCallback

__all__ = ["TensorBoardCallback"]
