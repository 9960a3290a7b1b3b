"""How long a training is, and where in it a resumed one goes on."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

from trackside.state import TrainerState
from trackside_torch.arguments import TrainingArguments
from trackside_torch.data import length_of


@dataclass(frozen=True)
class Plan:
    """The extent of a training; where the length of the data is not known, an epoch is `max_steps` long."""

    num_train_epochs: int
    max_steps: int
    steps_per_epoch: int
    batches_per_epoch: int
    num_samples: float
    train_batch_size: int

    @classmethod
    def of(cls, args: TrainingArguments, loader: Any, world_size: int) -> Plan:
        """The plan for the batches of `loader`.

        Raises:
            ValueError: there are none, or their number is not known and `max_steps` does not say when to stop.
        """
        batches = length_of(loader)
        step_size = args.per_device_train_batch_size * args.gradient_accumulation_steps * world_size
        if batches is None:
            check_is_bounded(None, args)
            return cls(
                num_train_epochs=sys.maxsize,
                max_steps=args.max_steps,
                steps_per_epoch=args.max_steps,
                batches_per_epoch=args.max_steps * args.gradient_accumulation_steps,
                num_samples=args.max_steps * step_size,
                train_batch_size=args.train_batch_size,
            )
        if batches == 0:
            raise ValueError(
                f"The training data yield no batch: there are {_items(loader)} items for batches of "
                f"{args.per_device_train_batch_size} on {world_size} processes, with "
                f"dataloader_drop_last={args.dataloader_drop_last}; give more items or smaller batches."
            )
        steps_per_epoch = math.ceil(batches / args.gradient_accumulation_steps)
        by_steps = args.max_steps > 0
        return cls(
            num_train_epochs=math.ceil(args.max_steps / steps_per_epoch if by_steps else args.num_train_epochs),
            max_steps=args.max_steps if args.max_steps >= 0 else math.ceil(args.num_train_epochs * steps_per_epoch),
            steps_per_epoch=steps_per_epoch,
            batches_per_epoch=batches,
            num_samples=args.max_steps * step_size if by_steps else _items(loader) * args.num_train_epochs,
            train_batch_size=args.train_batch_size,
        )

    def position(self, state: TrainerState, accumulation: int) -> tuple[int, int]:
        """The epoch in which a training in `state` goes on, and the number of its batches that are done.

        With another batch size than before, what counts is the number of steps.
        """
        if state.train_batch_size in (None, self.train_batch_size):
            epoch = math.floor(state.epoch or 0)
            batches = round(((state.epoch or 0) - epoch) * self.batches_per_epoch)
            return epoch, batches - batches % accumulation
        epoch, steps = divmod(state.global_step, self.steps_per_epoch)
        return epoch, steps * accumulation


def check_is_bounded(dataset: Any, args: TrainingArguments) -> None:
    """Raise a ValueError where neither the data nor `max_steps` say when a training ends."""
    if args.max_steps <= 0 and length_of(dataset) is None:
        raise ValueError(
            "The training data have no length, so there is no telling how long an epoch is; set max_steps."
        )


def _items(loader: Any) -> int:
    items = length_of(getattr(loader, "dataset", None))
    return len(loader) * (loader.batch_size or 1) if items is None else items
