"""`Trainer` and `TrainingArguments` for PyTorch, with the events of Trackside."""

from trackside_torch.arguments import TrainingArguments
from trackside_torch.checkpoints import get_last_checkpoint
from trackside_torch.prediction import EvalPrediction, PredictionOutput, TrainOutput
from trackside_torch.randomness import set_seed
from trackside_torch.trainer import Trainer

__all__ = [
    "EvalPrediction",
    "PredictionOutput",
    "TrainOutput",
    "Trainer",
    "TrainingArguments",
    "get_last_checkpoint",
    "set_seed",
]
