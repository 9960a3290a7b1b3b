"""What a Trainer adds to a training loop that is written by hand, without any tracker."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader

import trackside
import trackside_torch

STEPS, BATCH, LOGGING_STEPS, ROUNDS = 2_000, 32, 10, 5


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


DATA = [{"x": torch.randn(64), "labels": i % 10} for i in range(4096)]


def collate(items: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    labels = torch.tensor([item["labels"] for item in items])
    return {"x": torch.stack([item["x"] for item in items]), "labels": labels}


def by_hand(folder: str) -> None:
    """The same as the Trainers do, and nothing else."""
    model = Perceptron()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / STEPS)
    history: list[dict[str, float]] = []
    total, step = torch.zeros(()), 0
    for _ in range(math.ceil(STEPS * BATCH / len(DATA))):
        for batch in DataLoader(DATA, BATCH, shuffle=True, collate_fn=collate):
            loss = model(**batch)["loss"]
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += loss.detach()
            step += 1
            if step % LOGGING_STEPS == 0:
                rate = optimizer.param_groups[0]["lr"]
                history.append({"loss": total.item() / LOGGING_STEPS, "grad_norm": norm.item(), "learning_rate": rate})
                total = torch.zeros(())
            if step == STEPS:
                return


def by_trainer(api: Any, printer: type) -> Callable[[str], None]:
    def train(folder: str) -> None:
        arguments = api.TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            logging_steps=LOGGING_STEPS,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = api.Trainer(model=Perceptron(), args=arguments, train_dataset=DATA, data_collator=collate)
        trainer.remove_callback(printer)
        trainer.train()

    return train


def main() -> None:
    torch.set_num_threads(1)
    loops = {
        "by hand": by_hand,
        "trackside": by_trainer(trackside_torch, trackside.PrinterCallback),
        "transformers": by_trainer(transformers, transformers.PrinterCallback),
    }
    fastest = dict.fromkeys(loops, math.inf)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):  # in turn, so that a slow minute of the machine hits all of them
            for name, train in loops.items():
                begin = time.perf_counter()
                train(folder)
                fastest[name] = min(fastest[name], (time.perf_counter() - begin) / STEPS * 1e6)
    print(f"\nA step of a small perceptron, logged every {LOGGING_STEPS} steps, no tracker")
    for name, microseconds in fastest.items():
        target = "target: at most 1.15" if name == "trackside" else ""
        print(f"  {name:14} {microseconds:7.1f} us  {microseconds / fastest['by hand']:5.2f}  {target}")


if __name__ == "__main__":
    main()
