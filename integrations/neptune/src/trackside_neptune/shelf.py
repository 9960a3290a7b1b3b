"""The shelf: files that are kept until Neptune's client, which reads them behind our back, has sent them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from trackside import Artifact

LINKED_FROM = 1 << 20  # smaller files are copied: it costs nothing, and some of them are rewritten in place


class Shelf:
    """A folder of copies, or links to large files, of what a training may delete or write again."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._texts = 0

    def keep(self, artifact: Artifact, name: str) -> str:
        """Keep the files of an artifact in a folder of that name, in the place of what is there; returns the folder."""
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        for file, below in artifact.files():
            kept = folder / below
            kept.parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(file, kept)
        return str(folder)

    def keep_text(self, text: str) -> str:
        """Keep a text in a file; returns the file."""
        self._texts += 1
        folder = self._folder / f"text-{self._texts}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "text.txt"
        file.write_text(text, encoding="utf-8")
        return str(file)

    def kept(self) -> list[Path]:
        """All that is kept now."""
        return list(self._folder.iterdir()) if self._folder.is_dir() else []

    def remove(self, kept: list[Path]) -> None:
        """Remove what is not needed any more, and the folder with the last of it."""
        for path in kept:
            shutil.rmtree(path)
        if kept and not self.kept():
            self._folder.rmdir()


def _link_or_copy(source: str, target: Path) -> None:
    if os.path.getsize(source) >= LINKED_FROM:
        try:
            os.link(source, target)
            return
        except OSError:  # another disk, or one that has no links
            pass
    shutil.copyfile(source, target)
