"""From datasets to batches: which items, in which order, and what a model is given of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler, default_collate

from trackside_torch.processes import Processes


class EpochSampler(Sampler[int]):
    """The indices of this process in one epoch.

    The items stand in one order for all processes, which is cut into global batches of `batch_size` for each of them,
    so that the number of processes does not change what a step learns from. With a `seed` the order is shuffled, anew
    in each `epoch`; without, it is that of the dataset. `first_batch` starts in the middle of an epoch, once.

    A last global batch that is not full goes to all processes in equal parts: with `is_even` it is filled up with
    items from the start of the epoch, so that all have the same number; with `drop_last` it is left out.
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        processes: Processes,
        *,
        seed: int | None = None,
        drop_last: bool = False,
        is_even: bool = False,
    ) -> None:
        self.length = length
        self.batch_size = batch_size
        self.processes = processes
        self.seed = seed
        self.drop_last = drop_last
        self.is_even = is_even
        self.epoch = 0
        self.first_batch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def _global_batch_size(self) -> int:
        return self.batch_size * self.processes.world_size

    def _last_share(self) -> int:
        """How many items of the last, unfilled global batch are this process's; 0 if there is none such."""
        rest = self.length % self._global_batch_size
        share = math.ceil(rest / self.processes.world_size)
        if self.is_even:
            return share
        return min(max(rest - self.processes.rank * share, 0), share)

    def __len__(self) -> int:
        full = self.length // self._global_batch_size * self.batch_size
        return full if self.drop_last else full + self._last_share()

    def __iter__(self) -> Iterator[int]:
        start, self.first_batch = self.first_batch * self.batch_size, 0
        return iter(self._indices()[start:])

    def _indices(self) -> list[int]:
        order = self._order()
        if self.processes.is_alone:
            return order[: len(self)]
        mine: list[int] = []
        for start in range(0, self.length, self._global_batch_size):
            batch = order[start : start + self._global_batch_size]
            if self.is_even:
                batch += itertools.islice(itertools.cycle(order), -len(batch) % self.processes.world_size)
            mine += _share_of(batch, self.processes)
        return mine[: len(self)]

    def _order(self) -> list[int]:
        if self.seed is None:
            return list(range(self.length))
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order: list[int] = torch.randperm(self.length, generator=generator).tolist()
        return order


class IterableShare(IterableDataset):
    """This process's share of an iterable dataset: its part of each global batch.

    With `is_even` all processes get the same number of batches: an unfilled last one is left out.
    """

    def __init__(self, dataset: IterableDataset, batch_size: int, processes: Processes, *, is_even: bool) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.processes = processes
        self.is_even = is_even

    def __iter__(self) -> Iterator[Any]:
        size = self.batch_size * self.processes.world_size
        items = iter(self.dataset)
        while batch := list(itertools.islice(items, size)):
            if len(batch) < size and self.is_even:
                return
            yield from _share_of(batch, self.processes)


def _share_of(global_batch: list[Any], processes: Processes) -> list[Any]:
    """The part of a global batch that this process trains on; where it is not full, the last ones get less."""
    share = math.ceil(len(global_batch) / processes.world_size)
    return global_batch[processes.rank * share : (processes.rank + 1) * share]


def make_loader(
    dataset: Any,
    batch_size: int,
    processes: Processes,
    *,
    seed: int | None = None,
    drop_last: bool = False,
    is_training: bool = False,
    **options: Any,
) -> DataLoader:
    """A loader of this process's batches; it draws its own random numbers, so that loading disturbs nobody else's."""
    options["generator"] = torch.Generator().manual_seed(seed or 0)
    if isinstance(dataset, IterableDataset):
        if not processes.is_alone:
            dataset = IterableShare(dataset, batch_size, processes, is_even=is_training)
        return DataLoader(dataset, batch_size, drop_last=drop_last, **options)
    sampler = EpochSampler(
        len(dataset), batch_size, processes, seed=seed, drop_last=drop_last, is_even=is_training and not drop_last
    )
    return DataLoader(dataset, batch_size, sampler=sampler, drop_last=drop_last, **options)


def iterate_epoch(loader: Any, epoch: int, seed: int, rank: int, first_batch: int = 0) -> Generator[Any, None, None]:
    """The batches of one epoch from `first_batch` on, the same ones whether or not the epoch was interrupted.

    Batches before it are passed over without being loaded where that changes nothing: not if workers load them, whose
    random numbers depend on what they loaded before. To be closed, which ends the workers of an epoch that is left.
    """
    sampler: Any = getattr(loader, "sampler", None)
    generator = torch.Generator().manual_seed(seed + epoch + 1_000_003 * rank)
    if isinstance(loader, DataLoader):
        loader.generator = generator
    if isinstance(sampler, RandomSampler):
        sampler.generator = generator
    for part in (loader, sampler, getattr(loader, "dataset", None)):
        set_epoch = getattr(part, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
    if isinstance(sampler, EpochSampler) and loader.num_workers == 0:
        sampler.first_batch, first_batch = first_batch, 0
    batches = iter(loader)
    for _ in itertools.islice(batches, first_batch):
        pass
    return _until_closed(batches)


def _until_closed(batches: Iterator[Any]) -> Generator[Any, None, None]:
    """Without this, a traceback keeps the iterator, and its workers end only when garbage is collected, late."""
    yield from batches


def length_of(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def collate(items: list[Any]) -> Any:
    """Items as one batch of tensors; a key `label` or `label_ids` becomes `labels`, as models call it."""
    batch = default_collate(items)
    if isinstance(batch, dict) and "labels" not in batch:
        for name in ("label", "label_ids"):
            if name in batch:
                batch["labels"] = batch.pop(name)
                break
    return batch


def move(value: Any, device: torch.device) -> Any:
    """`value` with all its tensors on `device`."""
    return map_tensors(lambda tensor: tensor.to(device, non_blocking=True), value)


def map_tensors(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """`value` with `function` applied to every tensor in its mappings, lists and tuples."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: map_tensors(function, item) for key, item in value.items()}
    if isinstance(value, list):
        return [map_tensors(function, item) for item in value]
    if isinstance(value, tuple):
        return tuple(map_tensors(function, item) for item in value)
    return value


def size_of(batch: Any) -> int | None:
    """The number of items in a batch: the length of its first tensor."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.ndim else None
    values = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next((size for size in map(size_of, values) if size is not None), None)
