"""A model and data for either Trainer: small enough that a training takes milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

import trackside_torch


class Line(torch.nn.Module):
    """y = a x + b with a squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.config = transformers.PretrainedConfig(degree=1)
        self.a = torch.nn.Parameter(torch.zeros(()))
        self.b = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.a * x + self.b
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}


DATA = [{"x": i / 32, "labels": 3.0 * i / 32 + 1} for i in range(32)]


def trainer(api: Any, folder: Path, callbacks: list[Any], compute_metrics: Any = None, **changes: Any) -> Any:
    """A Trainer of `transformers` or of ours, from the same arguments."""
    arguments = {
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "learning_rate": 0.1,
        "per_device_train_batch_size": 8,
        "num_train_epochs": 2,
        "logging_steps": 1,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        **changes,
    }
    return api.Trainer(
        model=Line(),
        args=api.TrainingArguments(output_dir=str(folder), **arguments),
        train_dataset=DATA,
        eval_dataset=DATA[:8],
        callbacks=callbacks,
        compute_metrics=compute_metrics,
    )


BOTH = {"transformers": transformers, "trackside": trackside_torch}
