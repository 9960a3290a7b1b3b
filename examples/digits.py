"""Teach a small network to read handwritten digits, and watch it learn.

The data are the 1,797 real images of 8 x 8 pixels that scikit-learn ships. Every fifth image is held out.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Subset, TensorDataset

from trackside import Reporter
from trackside_torch import EvalPrediction, Trainer, TrainingArguments, get_last_checkpoint


class DigitNet(nn.Module):
    """Two convolutions and a linear layer: images (batch, 1, 8, 8) in, logits (batch, 10) out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.25),
            nn.Linear(64 * 4 * 4, 10),
        )

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.layers(images)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def digits() -> tuple[Subset[Any], Subset[Any]]:
    """The images for training and the images held out, pixels between 0 and 1."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    dataset = TensorDataset(images, torch.tensor(data.target))
    is_held_out = np.arange(len(dataset)) % 5 == 0
    return Subset(dataset, np.flatnonzero(~is_held_out)), Subset(dataset, np.flatnonzero(is_held_out))


def collate(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    images, labels = zip(*pairs, strict=True)
    return {"images": torch.stack(images), "labels": torch.stack(labels)}


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(axis=-1) == prediction.label_ids).mean())}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report-to", default="all", help='trackers, such as "tensorboard" or "none" (default: all)')
    parser.add_argument(
        "--output-dir", default="out/digits", help="where checkpoints and runs go (default: %(default)s)"
    )
    parser.add_argument(
        "--epochs", type=float, default=12, help="passes over the training images (default: %(default)s)"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the output directory")
    return parser.parse_args()


def main() -> None:
    options = parse()
    train_images, held_out_images = digits()
    trainer = Trainer(
        model=DigitNet(),
        args=TrainingArguments(
            output_dir=options.output_dir,
            report_to=options.report_to,
            num_train_epochs=options.epochs,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=128,
            learning_rate=2e-3,
            lr_scheduler_type="cosine",
            warmup_steps=20,
            logging_steps=10,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=2,
            load_best_model_at_end=True,
            metric_for_best_model="accuracy",
            seed=7,
        ),
        train_dataset=train_images,
        eval_dataset=held_out_images,
        data_collator=collate,
        compute_metrics=accuracy,
    )
    try:
        trainer.train(resume_from_checkpoint=options.resume or None)
    except KeyboardInterrupt:
        last = get_last_checkpoint(options.output_dir)
        print(f"\nInterrupted at step {trainer.state.global_step}", f"(--resume goes on from {last})" if last else "")
        sys.exit(130)
    metrics = trainer.evaluate()
    print(f"\nThe best model reads {metrics['eval_accuracy']:.1%} of {len(held_out_images)} images it has never seen.")
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, Reporter):
            print(f"Reported to {callback.sent()}")


if __name__ == "__main__":
    main()
