"""Snapshots of checkpoints, which the loop may delete or rewrite before a tracker has taken them."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from trackside import Artifact

logger = logging.getLogger(__name__)

# Smaller files are copied: it costs nothing, and some of them are rewritten in place.
LINKED_FROM = 1 << 20
# How many may wait for a tracker, so that one that is away cannot fill the disk.
MOST_WAITING = 2
LEFT_OUT = ("training_args.bin",)  # a pickle of all arguments, secrets included


class Snapshots:
    """Keeps the files of checkpoints in a folder until `is_delivered` says that nobody needs them."""

    def __init__(self, folder: Path, is_delivered: Callable[[int], bool]) -> None:
        self._folder = folder
        self._is_delivered = is_delivered
        self._waiting = dict(sorted(_found_in(folder)))
        self._has_warned = False

    def take(self, artifact: Artifact, number: int) -> None:
        """Make a snapshot of an artifact; `number` is that of its record."""
        target = snapshot_of(artifact, number, self._folder)
        try:
            _copy(Path(artifact.path), target)
        except OSError as error:
            logger.warning("%s cannot be kept for the trackers (%s).", artifact.path, error)
            return
        self._waiting[number] = target
        self.tidy()

    def tidy(self) -> None:
        """Delete what is delivered, and of the rest all but the last ones."""
        for number in list(self._waiting):
            if self._is_delivered(number):
                shutil.rmtree(self._waiting.pop(number), ignore_errors=True)
        for number in list(self._waiting)[:-MOST_WAITING]:
            shutil.rmtree(self._waiting.pop(number), ignore_errors=True)
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "Trackers are late: of the checkpoints that they have not got, only the last %d are kept.",
                    MOST_WAITING,
                )


def snapshot_of(artifact: Artifact, number: int, folder: Path) -> Path:
    """Where the snapshot of an artifact is, if there is one."""
    return folder / f"{number}-{artifact.name}"


def _found_in(folder: Path) -> Iterator[tuple[int, Path]]:
    """The snapshots that a process before this one has left."""
    for path in folder.glob("*-*"):
        number, _, _ = path.name.partition("-")
        if number.isdigit():
            yield int(number), path


def _copy(source: Path, target: Path) -> None:
    """Link large files and copy small ones; all of them where the disk knows no links."""
    for folder, _, names in os.walk(source):
        into = target / Path(folder).relative_to(source)
        into.mkdir(parents=True, exist_ok=True)
        for name in names:
            if name not in LEFT_OUT:
                _copy_file(Path(folder) / name, into / name)


def _copy_file(source: Path, target: Path) -> None:
    if source.stat().st_size >= LINKED_FROM:
        try:
            os.link(source, target)
        except OSError:  # another disk, or one without links
            shutil.copy2(source, target)
    else:
        shutil.copy2(source, target)
