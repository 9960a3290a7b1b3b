"""Checkpoints on disk: a folder that is there whole or not at all, and how to find, read and thin them out."""

from __future__ import annotations

import logging
import os
import re
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trackside.state import STATE_NAME, TrainerState
from trackside_torch.processes import Processes

logger = logging.getLogger(__name__)

WEIGHTS_NAME = "pytorch_model.bin"
OPTIMIZER_NAME = "optimizer.pt"
SCHEDULER_NAME = "scheduler.pt"
SCALER_NAME = "scaler.pt"

_NAME = re.compile(r"checkpoint-(\d+)")


def checkpoint_name(step: int) -> str:
    return f"checkpoint-{step}"


def random_states_name(processes: Processes) -> str:
    return "rng_state.pth" if processes.is_alone else f"rng_state_{processes.rank}.pth"


# ---- writing ----------------------------------------------------------------------------------------------------


@contextmanager
def new_checkpoint(folder: Path, processes: Processes) -> Iterator[Path]:
    """A hidden folder beside `folder` to write to, which takes its place when all processes are done.

    An older checkpoint of this name stays until then, and stays if writing fails.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    if processes.is_first:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    processes.wait()
    try:
        yield partial
        processes.wait()
        if processes.is_first:
            _replace(folder, partial)
        processes.wait()
    finally:
        if processes.is_first:
            shutil.rmtree(partial, ignore_errors=True)


def _replace(folder: Path, partial: Path) -> None:
    replaced = folder.with_name(f".{folder.name}.replaced")
    shutil.rmtree(replaced, ignore_errors=True)
    if folder.exists():
        folder.rename(replaced)
    partial.rename(folder)
    shutil.rmtree(replaced, ignore_errors=True)


def save_weights(model: nn.Module, folder: Path) -> None:
    """By the model's own `save_pretrained` if it has one, else its state dict as `pytorch_model.bin`."""
    save_pretrained = getattr(model, "save_pretrained", None)
    if save_pretrained is not None:
        save_pretrained(folder)
    else:
        torch.save(model.state_dict(), folder / WEIGHTS_NAME)


def remove_surplus(output_dir: Path, limit: int | None, newest: Path, best: str | None) -> None:
    """Delete the oldest checkpoints above `limit` (None and 0: none), never the newest and the best one."""
    if not limit:
        return
    kept = {newest.resolve()} | ({Path(best).resolve()} if best else set())
    checkpoints = sorted(_checkpoints(output_dir), key=lambda folder: (folder.stat().st_mtime_ns, _step(folder)))
    surplus = len(checkpoints) - max(limit, len(kept))
    deletable = [folder for folder in checkpoints if folder.resolve() not in kept]
    for folder in deletable[: max(surplus, 0)]:
        shutil.rmtree(folder, ignore_errors=True)


def remove_all_but(output_dir: Path, best: Path) -> None:
    """Delete all checkpoints but the best one, if that is there."""
    if best.is_dir():
        for folder in _checkpoints(output_dir):
            if folder.resolve() != best.resolve():
                shutil.rmtree(folder, ignore_errors=True)


# ---- finding ----------------------------------------------------------------------------------------------------


def get_last_checkpoint(output_dir: str | os.PathLike[str]) -> str | None:
    """The last checkpoint of a training that is whole; those that are not are passed over with a warning."""
    for folder in sorted(_checkpoints(Path(output_dir)), key=_step, reverse=True):
        damage = _damage(folder)
        if damage is None:
            return str(folder)
        logger.warning("%s is passed over: %s.", folder, damage)
    return None


def find_checkpoint(asked: str | os.PathLike[str] | bool, output_dir: str) -> Path:
    """The checkpoint to resume from: the one asked for, or with True the last one.

    Raises:
        ValueError: there is none, or it is not whole.
    """
    if asked is True:
        last = get_last_checkpoint(output_dir)
        if last is None:
            raise ValueError(
                f"resume_from_checkpoint=True, but there is no whole checkpoint in {output_dir!r}; start anew with "
                "train(), or name the folder of a checkpoint."
            )
        return Path(last)
    folder = Path(str(asked))
    damage = _damage(folder) if folder.is_dir() else "there is no such folder"
    if damage is not None:
        last = get_last_checkpoint(folder.parent)
        instead = f"resume from {last!r} instead" if last else "there is no other checkpoint beside it"
        raise ValueError(f"It is not possible to resume from {str(folder)!r}: {damage}; {instead}.")
    return folder


def _checkpoints(output_dir: Path) -> list[Path]:
    if not output_dir.is_dir():
        return []
    return [folder for folder in output_dir.iterdir() if _NAME.fullmatch(folder.name) and folder.is_dir()]


def _step(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def _damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint; None if nothing is."""
    if not (folder / STATE_NAME).is_file():
        return f"it has no {STATE_NAME}"
    try:
        TrainerState.load_from_json(folder / STATE_NAME)
    except ValueError:
        return f"its {STATE_NAME} is cut off"
    for file in sorted(folder.iterdir()):
        if file.suffix in (".bin", ".pt", ".pth") and not zipfile.is_zipfile(file):
            return f"its {file.name} is cut off"
    if not any(file.suffix in (".bin", ".safetensors") for file in folder.iterdir()):
        return "it has no weights of a model"
    return None


# ---- reading ----------------------------------------------------------------------------------------------------


def load(file: Path) -> Any:
    """What torch saved in `file`, on the CPU and without running code from it; None if there is no such file."""
    return torch.load(file, map_location="cpu", weights_only=True) if file.is_file() else None


def load_state(part: Any, saved: Any, file: Path) -> None:
    """Put a saved state back into an optimizer, schedule or scaler."""
    try:
        part.load_state_dict(saved)
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"{str(file)!r} is the state of another one than this {type(part).__name__} ({error}); build it as it was "
            "then, or delete the file to let it start anew."
        ) from error


def load_weights(folder: Path, model: nn.Module) -> None:
    """Load the weights of a checkpoint into `model`, all of them or none.

    Raises:
        ValueError: they are those of another model.
    """
    saved = load(folder / WEIGHTS_NAME)
    from_pretrained: Any = getattr(model, "from_pretrained", None)
    if saved is None and from_pretrained is not None:
        saved = from_pretrained(folder).state_dict()
    if saved is None:
        raise ValueError(f"{str(folder)!r} has no {WEIGHTS_NAME}; resume from another checkpoint.")
    difference = _difference(saved, model.state_dict())
    if difference is not None:
        raise ValueError(
            f"{str(folder)!r} is a checkpoint of another model than this {type(model).__name__}: {difference}; build "
            "the model as it was then, or choose another checkpoint."
        )
    model.load_state_dict(saved)


def _difference(saved: dict[str, Any], own: dict[str, Any]) -> str | None:
    for name in own:
        if name not in saved:
            return f"it lacks {name!r}"
    for name, value in saved.items():
        if name not in own:
            return f"it has {name!r} too"
        shapes = [tuple(tensor.shape) for tensor in (value, own[name]) if isinstance(tensor, torch.Tensor)]
        if len(set(shapes)) > 1:
            return f"its {name!r} has the shape {shapes[0]}, not {shapes[1]}"
    return None
