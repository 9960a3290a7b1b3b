"""The mean of the losses, kept on the device until somebody asks for it."""

from __future__ import annotations

import logging
import math

import torch

from trackside_torch.processes import Processes

logger = logging.getLogger(__name__)

MOST_WAITING = 256


class RunningLoss:
    """The mean loss of the steps since the last log, and of all steps.

    Adding a loss computes nothing and does not wait for the device: losses are kept, and read together. With
    `skips_non_finite` the mean is that of the finite ones, and 0 if there are none.
    """

    def __init__(self, processes: Processes, *, skips_non_finite: bool) -> None:
        self.processes = processes
        self.skips_non_finite = skips_non_finite
        self._waiting: list[torch.Tensor] = []
        self._shares: list[float] = []
        # The sum of the losses and the sum of their shares, since the last log and before it.
        self._recent = [0.0, 0.0]
        self._past = [0.0, 0.0]

    def add(self, loss: torch.Tensor, share: float) -> None:
        """Add the loss of a batch that makes up `share` of its step and is scaled by it already."""
        self._waiting.append(loss)
        self._shares.append(share)
        if len(self._waiting) >= MOST_WAITING:
            self._read()

    def take(self) -> float:
        """The mean since the last call, over all processes."""
        self._read()
        total, shares = self.processes.sum(self._recent)
        self._past = _added(self._past, self._recent)
        self._recent = [0.0, 0.0]
        if not shares:
            logger.warning("Every loss since the last log was nan or infinite; logging_nan_inf_filter logs it as 0.")
        return _mean(total, shares)

    def overall(self) -> float:
        """The mean of all that was added, over all processes."""
        self._read()
        return _mean(*self.processes.sum(_added(self._past, self._recent)))

    def _read(self) -> None:
        if not self._waiting:
            return
        for loss, share in zip(torch.stack(self._waiting).tolist(), self._shares, strict=True):
            if not self.skips_non_finite or math.isfinite(loss):
                self._recent[0] += loss
                self._recent[1] += share
        self._waiting.clear()
        self._shares.clear()


def _added(a: list[float], b: list[float]) -> list[float]:
    return [x + y for x, y in zip(a, b, strict=True)]


def _mean(total: float, shares: float) -> float:
    return total / shares if shares else 0.0
