"""Reports a training run to the job of Azure Machine Learning that it runs in."""

from trackside_azure_ml.reporter import AzureMLCallback

__all__ = ["AzureMLCallback"]
