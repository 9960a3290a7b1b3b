"""The requests that the server knows."""

from clearml.backend_api.services import models, tasks

__all__ = ["models", "tasks"]
