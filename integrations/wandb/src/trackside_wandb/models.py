"""Checkpoints and models as wandb's artifacts."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from trackside import Artifact, Limits, Run, TrainerState
from trackside.mapping import Keys
from trackside.records import argument
from trackside.state import STATE_NAME
from trackside.values import encodable, scalar
from trackside_wandb.plain import plain

NAMES = Limits(key=r"A-Za-z0-9_.\-", key_length=128)
MOST_METADATA = 100


class SavedModel:
    """A checkpoint, the final model or the model's architecture, with what the loop's state beside it says."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact, self._state = artifact, TrainerState()
        with suppress(OSError, ValueError):
            self._state = TrainerState.load_from_json(os.path.join(artifact.path, STATE_NAME))

    def as_artifact(self, name: str, key: Callable[[str], str]) -> Any:
        """wandb's artifact, with copies of the files: a loop may delete its own."""
        import wandb

        made = wandb.Artifact(name=name, type="model", metadata=self._metadata(key))
        for file, below in self._artifact.files():
            made.add_file(file, name=below)
        return made

    def _metadata(self, key: Callable[[str], str]) -> dict[str, Any]:
        """The latest value of each metric when it was saved."""
        logged = {name: value for entry in self._state.log_history for name, value in entry.items() if name != "step"}
        numbers = {key(name): plain(value) for name, value in logged.items() if scalar(value) is not None}
        return {**dict(islice(numbers.items(), MOST_METADATA - 1)), "global_step": self._artifact.step}

    @property
    def aliases(self) -> list[str]:
        """What this version is called; the initial and the final one as transformers call them."""
        if self._artifact.kind == "checkpoint":
            epoch = round(self._state.epoch or 0, 2)
            return [f"epoch_{epoch}", f"checkpoint_global_step_{self._artifact.step}"]
        return ["final_model" if self._artifact.kind == "model" else "base_model"]


def name_of(run: Run, opened: Any) -> str:
    """One name for all versions of a run's model: that of the run if the user has named it, else its id."""
    return Keys(NAMES)(f"model-{opened.name if run.args.get('run_name') else opened.id}")


def write_architecture(model: Any, output_dir: str) -> Artifact:
    """What a model consists of, as a file that is still there when it is sent."""
    file = Path(output_dir, "model_architecture.txt").absolute()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(encodable(str(model)), "utf-8")
    return Artifact(str(file), file.name, "file")


def final_model(args: Any, state: Any) -> Artifact:
    """The best checkpoint if the loop ends with that, else the last one; nobody says that it was saved."""
    is_best = argument(args, "load_best_model_at_end") and state.best_model_checkpoint
    last = os.path.join(str(argument(args, "output_dir") or "."), f"checkpoint-{state.global_step}")
    return Artifact(os.path.abspath(is_best or last), "model", "model", state.global_step)
