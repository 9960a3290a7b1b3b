"""Reports a training run to Weights & Biases."""

from trackside_wandb.reporter import WandbCallback

__all__ = ["WandbCallback"]
