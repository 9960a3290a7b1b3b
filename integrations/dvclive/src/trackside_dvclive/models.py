"""Checkpoints that are kept with a run."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any, Literal

from trackside import Artifact
from trackside.records import argument

WORDS: dict[str, Literal["all"] | bool] = {
    **dict.fromkeys(("true", "1", "yes", "on", "y", "t"), True),
    **dict.fromkeys(("false", "0", "no", "off", "n", "f", ""), False),
    "all": "all",
}


def which_models(text: str) -> Literal["all"] | bool:
    """Which checkpoints a word of the environment means: each, the final one, or none."""
    word = text.strip().lower()
    if word not in WORDS:
        raise ValueError("it takes all, true or false")
    return WORDS[word]


def final_model(args: Any, state: Any) -> Artifact | None:
    """The best checkpoint if the loop ends with that, else the last one that was saved, if there is one."""
    best = state.best_model_checkpoint if argument(args, "load_best_model_at_end") else None
    if best and os.path.isdir(best):
        return Artifact(os.path.abspath(best), "best", "model", state.global_step)
    folder = Path(str(argument(args, "output_dir") or ".")).absolute()
    saved = {
        int(match[1]): path for path in folder.glob("*") if (match := re.fullmatch(r"checkpoint-(\d+)", path.name))
    }
    steps = [step for step in saved if step <= state.global_step]
    return Artifact(str(saved[max(steps)]), "last", "model", state.global_step) if steps else None


def copy_into(folder: str, artifact: Artifact) -> str:
    """Copy an artifact into a folder, in the place of what is there under its name."""
    target = os.path.join(folder, artifact.name)
    shutil.rmtree(target, ignore_errors=True)
    for path, name in artifact.files():
        file = os.path.join(target, name)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        shutil.copy2(path, file)
    return target
