"""Tells Kubeflow Trainer how far a TrainJob is."""

from trackside_kubeflow.reporter import KubeflowCallback

__all__ = ["KubeflowCallback"]
