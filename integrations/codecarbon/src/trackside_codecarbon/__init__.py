"""Measures the energy and the emissions of a training with CodeCarbon."""

from trackside_codecarbon.reporter import CodeCarbonCallback

__all__ = ["CodeCarbonCallback"]
