"""The mean of the losses, kept on the device until somebody asks for it."""

from __future__ import annotations

import logging

import torch

from trackside_torch.processes import Processes

logger = logging.getLogger(__name__)

MOST_WAITING = 256


class RunningLoss:
    """The mean loss of the steps since the last log, and of all steps.

    Adding a loss computes nothing and does not wait for the device: losses are kept, and reduced together. With
    `skips_non_finite` the mean is that of the finite ones, and 0 if there are none.
    """

    def __init__(self, processes: Processes, *, skips_non_finite: bool) -> None:
        self.processes = processes
        self.skips_non_finite = skips_non_finite
        self._waiting: list[torch.Tensor] = []
        self._shares: list[float] = []
        # The sum of the losses and the sum of their shares, since the last log and before it.
        self._recent = torch.zeros(2, dtype=torch.float64)
        self._past = torch.zeros(2, dtype=torch.float64)

    def add(self, loss: torch.Tensor, share: float) -> None:
        """Add the loss of a batch that makes up `share` of its step and is scaled by it already."""
        self._waiting.append(loss)
        self._shares.append(share)
        if len(self._waiting) >= MOST_WAITING:
            self._reduce()

    def take(self) -> float:
        """The mean since the last call, over all processes."""
        self._reduce()
        recent, self._recent = self._recent, torch.zeros_like(self._recent)
        self._past += recent
        total, shares = self._over_all_processes(recent)
        if not shares:
            logger.warning("Every loss since the last log was nan or infinite; logging_nan_inf_filter logs it as 0.")
        return _mean(total, shares)

    def overall(self) -> float:
        """The mean of all that was added, over all processes."""
        self._reduce()
        return _mean(*self._over_all_processes(self._past + self._recent))

    def _reduce(self) -> None:
        if not self._waiting:
            return
        losses = torch.stack(self._waiting).cpu().double()
        shares = torch.tensor(self._shares, dtype=torch.float64)
        self._waiting.clear()
        self._shares.clear()
        if self.skips_non_finite:
            finite = torch.isfinite(losses)
            losses, shares = losses[finite], shares[finite]
        self._recent += torch.stack([losses.sum(), shares.sum()])

    def _over_all_processes(self, sums: torch.Tensor) -> list[float]:
        everyone: list[float] = self.processes.sum(sums).tolist()
        return everyone


def _mean(total: float, shares: float) -> float:
    return total / shares if shares else 0.0
