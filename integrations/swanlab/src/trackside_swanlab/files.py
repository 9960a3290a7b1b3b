"""Files of a run. SwanLab links to what it is given, so each is kept in the run's own folder first."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

FOLDER = "saved"


def keep_file(run: Any, path: str, name: str) -> None:
    """Keep a file of the disk as it is now, under a name with forward slashes."""
    kept = _place(run, name)
    try:
        os.link(path, kept)
    except OSError:  # another disk, or one that has no links
        shutil.copyfile(path, kept)
    _save(run, kept, name)


def keep_text(run: Any, name: str, text: str) -> None:
    kept = _place(run, name)
    kept.write_text(text, "utf-8")
    _save(run, kept, name)


def _place(run: Any, name: str) -> Path:
    kept = Path(run.dir).absolute() / FOLDER / name
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.unlink(missing_ok=True)
    return kept


def _save(run: Any, kept: Path, name: str) -> None:
    """`run.save` takes patterns, and stumbles over brackets in the names of folders."""
    from swanlab.sdk.internal.bus.events import FileSaveEvent

    run._components.emitter.emit(FileSaveEvent(source_path=str(kept), name=name, policy="now"))
