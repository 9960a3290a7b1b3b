"""What evaluations and predictions give back, gathered from batches and processes into arrays."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from trackside_torch.data import map_tensors
from trackside_torch.processes import Processes

PADDING = -100


class TrainOutput(NamedTuple):
    global_step: int
    training_loss: float
    metrics: dict[str, Any]


class EvalPrediction(NamedTuple):
    """What `compute_metrics` is given: arrays, or tuples and dicts of them as the model gives and takes them.

    Each has the items of the dataset, in their order, along its first dimension.
    """

    predictions: Any
    label_ids: Any


class PredictionOutput(NamedTuple):
    predictions: Any
    label_ids: Any
    metrics: dict[str, Any]


class EvalLoopOutput(NamedTuple):
    predictions: Any
    label_ids: Any
    metrics: dict[str, Any]
    num_samples: int


class Gathered:
    """Outputs of all batches of all processes, in the order of the data."""

    def __init__(self, processes: Processes, batches_on_device: int | None) -> None:
        self.processes = processes
        self.batches_on_device = batches_on_device
        self._batches: list[Any] = []
        self._moved = 0

    def add(self, value: Any) -> None:
        """Add a batch: a tensor with the items along its first dimension, or tuples and dicts of such; or None."""
        if value is None:
            return
        self._batches.append(value)
        if self.batches_on_device and len(self._batches) - self._moved >= self.batches_on_device:
            self._move_to_cpu()

    def arrays(self) -> Any:
        """All batches as one array, or as tuples and dicts of arrays; None if nothing was added.

        Where batches have different lengths, shorter ones are filled up with -100.
        """
        self._move_to_cpu()
        rounds = itertools.zip_longest(*self.processes.gather(self._batches))
        batches = [batch for one_round in rounds for batch in one_round if batch is not None]
        return map_tensors(_to_numpy, _concatenate(batches)) if batches else None

    def _move_to_cpu(self) -> None:
        for i in range(self._moved, len(self._batches)):
            self._batches[i] = map_tensors(torch.Tensor.cpu, self._batches[i])
        self._moved = len(self._batches)


def _concatenate(batches: Sequence[Any]) -> Any:
    first = batches[0]
    if isinstance(first, torch.Tensor):
        return _concatenate_tensors([tensor if tensor.ndim else tensor[None] for tensor in batches])
    if isinstance(first, Mapping):
        return {key: _concatenate([batch[key] for batch in batches]) for key in first}
    if isinstance(first, (tuple, list)):
        return tuple(_concatenate(parts) for parts in zip(*batches, strict=True))
    return first


def _concatenate_tensors(tensors: list[torch.Tensor]) -> torch.Tensor:
    shape = [max(sizes) for sizes in zip(*(tensor.shape[1:] for tensor in tensors), strict=True)]
    return torch.cat([_fill_up(tensor, shape) for tensor in tensors])


def _fill_up(tensor: torch.Tensor, shape: list[int]) -> torch.Tensor:
    if list(tensor.shape[1:]) == shape:
        return tensor
    missing = [full - size for full, size in zip(reversed(shape), reversed(tensor.shape[1:]), strict=True)]
    return nn.functional.pad(tensor, [side for count in missing for side in (0, count)], value=PADDING)


def _to_numpy(tensor: torch.Tensor) -> Any:
    """NumPy has no bfloat16."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
