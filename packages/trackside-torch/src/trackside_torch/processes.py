"""The processes that train together: who this one is, and what they must agree on."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among those that `torchrun` started, or alone."""

    rank: int
    local_rank: int
    world_size: int
    device: torch.device

    @classmethod
    def here(cls, use_cpu: bool = False) -> Processes:
        """Read off the process group, or where there is none yet, off the environment that `torchrun` sets."""
        if dist.is_available() and dist.is_initialized():
            rank, world_size = dist.get_rank(), dist.get_world_size()
        else:
            rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        local_rank = int(os.environ.get("LOCAL_RANK", rank))
        return cls(rank, local_rank, world_size, _device(local_rank, use_cpu))

    def join(self, backend: str | None, timeout: int) -> None:
        """Meet the others, unless that has happened; `timeout` is in seconds."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if self.is_alone or dist.is_initialized():
            return
        chosen = backend or ("nccl" if self.device.type == "cuda" else "gloo")
        dist.init_process_group(chosen, timeout=timedelta(seconds=timeout))
        atexit.register(_leave)

    @property
    def is_alone(self) -> bool:
        return self.world_size == 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def is_first_here(self) -> bool:
        """Whether this is the first process of its machine."""
        return self.local_rank == 0

    def wait(self) -> None:
        """Until all are here."""
        if not self.is_alone:
            dist.barrier()

    def agree(self, flags: Sequence[bool]) -> list[bool]:
        """Each flag is true for all if it is for any of them."""
        if self.is_alone:
            return list(flags)
        votes = torch.tensor(flags, dtype=torch.uint8, device=self.device)
        dist.all_reduce(votes, dist.ReduceOp.MAX)
        return [bool(vote) for vote in votes.tolist()]

    def sum(self, values: list[float]) -> list[float]:
        """The sum of everyone's `values`."""
        if self.is_alone:
            return values
        summed = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(summed)
        sums: list[float] = summed.tolist()
        return sums

    def gather(self, value: T) -> list[T]:
        """Everyone's `value`, which can be pickled, in the order of the ranks."""
        if self.is_alone:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        """Give everyone the first one's values."""
        if not self.is_alone:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)


def _device(local_rank: int, use_cpu: bool) -> torch.device:
    if use_cpu:
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", local_rank)
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
