"""Reports a training run to MLflow, through its client."""

from trackside_mlflow.reporter import MLflowCallback

__all__ = ["MLflowCallback"]
