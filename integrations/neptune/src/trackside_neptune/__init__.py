"""Reports a training run to Neptune, through the client of its version 1."""

from trackside_neptune.reporter import NeptuneCallback

__all__ = ["NeptuneCallback"]
