"""Snapshots of checkpoints, which the loop may delete or rewrite before a tracker has taken them."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from trackside import Artifact
from trackside.records import PICKLES_OF_ARGUMENTS

logger = logging.getLogger(__name__)

# Smaller files are copied: it costs nothing, and some of them are rewritten in place.
LINKED_FROM = 1 << 20
# How many may wait for a tracker, so that one that is away cannot fill the disk.
MOST_WAITING = 2


class Snapshots:
    """Keeps the files of checkpoints in a folder until `is_delivered` says that nobody needs them."""

    def __init__(self, folder: Path, is_delivered: Callable[[int], bool]) -> None:
        self._folder = folder
        self._is_delivered = is_delivered
        self._waiting = dict(sorted(_found_in(folder)))
        self._has_warned = False

    def take(self, artifact: Artifact, number: int, best: str | None = None) -> None:
        """Make a snapshot of an artifact; `number` is that of its record, `best` the path of the best model so far."""
        target = snapshot_of(artifact, number, self._folder)
        try:
            links = _copy(Path(artifact.path), target)
            if links:
                _links_of(target).write_text(json.dumps(links))
        except OSError as error:
            _delete(target)
            if not isinstance(error, FileNotFoundError):  # what is gone the couriers tell
                logger.warning("%s cannot be kept for the trackers (%s).", artifact.path, error)
            return
        self._waiting[number] = target
        self.tidy()
        self._drop_all_but_the_last(best)

    def tidy(self) -> None:
        """Delete what is delivered."""
        for number in list(self._waiting):
            if self._is_delivered(number):
                _delete(self._waiting.pop(number))

    def _drop_all_but_the_last(self, best: str | None) -> None:
        name = os.path.basename(best or "")
        others = [number for number, path in self._waiting.items() if path.name != f"{number}-{name}"]
        for number in others[:-MOST_WAITING]:
            _delete(self._waiting.pop(number))
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "Trackers are late: of the checkpoints that they have not got, only the last %d are kept, and the "
                    "best.",
                    MOST_WAITING,
                )


def take_out_rewritten(snapshot: Path) -> list[str]:
    """Take the files out of a snapshot that were rewritten in place since it was made; returns their names."""
    try:
        links = json.loads(_links_of(snapshot).read_bytes())
    except (OSError, ValueError):  # nothing is linked
        return []
    rewritten = [name for name, then in links.items() if _size_and_time(snapshot / name) not in (None, then)]
    for name in rewritten:
        (snapshot / name).unlink(missing_ok=True)
    return rewritten


def snapshot_of(artifact: Artifact, number: int, folder: Path) -> Path:
    """Where the snapshot of an artifact is, if there is one."""
    return folder / f"{number}-{artifact.name}"


def _links_of(snapshot: Path) -> Path:
    """Which files of a snapshot are linked, with their sizes and times: whoever rewrites such a file changes both."""
    return snapshot.with_name(f"{snapshot.name}.links")


def _size_and_time(path: Path) -> list[int] | None:
    """Bytes and nanoseconds; None if there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


def _delete(snapshot: Path) -> None:
    shutil.rmtree(snapshot, ignore_errors=True)
    _links_of(snapshot).unlink(missing_ok=True)


def _found_in(folder: Path) -> Iterator[tuple[int, Path]]:
    """The snapshots that a process before this one has left."""
    for path in folder.glob("*-*"):
        number, _, _ = path.name.partition("-")
        if number.isdigit() and path.is_dir():
            yield int(number), path


def _copy(source: Path, target: Path) -> dict[str, list[int] | None]:
    """Link large files and copy small ones, all of them where the disk knows no links; what is linked, as it is."""
    links = {}
    for folder, _, names in os.walk(source):
        inside = Path(folder).relative_to(source)
        (target / inside).mkdir(parents=True, exist_ok=True)
        for name in names:
            if name not in PICKLES_OF_ARGUMENTS and _is_linked(Path(folder) / name, target / inside / name):
                links[str(inside / name)] = _size_and_time(target / inside / name)
    return links


def _is_linked(source: Path, target: Path) -> bool:
    """Link a file, or copy it; whether it is linked."""
    if source.stat().st_size >= LINKED_FROM:
        try:
            os.link(source, target)
            return True
        except OSError:  # another disk, or one without links
            pass
    shutil.copy2(source, target)
    return False
