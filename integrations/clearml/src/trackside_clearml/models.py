"""The models and artifacts of a task."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

from trackside import Artifact
from trackside.state import STATE_NAME
from trackside_clearml.server import Server

CHECKPOINT = r"checkpoint-(\d+)"


class Models:
    """The models of one run of a task: a package for each checkpoint."""

    def __init__(self, server: Server, task: Any, suffix: str, destination: str | bool) -> None:
        self._server, self._task, self._suffix = server, task, suffix
        self._destination = destination

    def add(self, artifact: Artifact) -> None:
        """Upload a model, in the place of one of the same name. Offline it is an artifact: the SDK has no other way."""
        from clearml import OutputModel

        name = artifact.name + self._suffix
        with _packed(artifact, name) as package:
            if self._task.is_offline():
                upload(self._task, name, package)
                return
            before = [model.id for model in self._server.models_of(self._task.id) if model.name == name]
            OutputModel(task=self._task, name=name).update_weights(
                str(package),
                upload_uri=None if self._task.output_uri else self._address(),
                target_filename=name + package.suffix,
                auto_delete_file=False,
                iteration=artifact.step,
                update_comment=False,
                is_package=package != Path(artifact.path),
                async_enable=False,
            )
        for model_id in before:
            _remove(model_id, with_file=False)  # the new one has taken the place of its file

    def _address(self) -> str:
        """Where the models of a task go that does not say so: the SDK would note a path on this machine."""
        is_address = isinstance(self._destination, str)
        return str(self._destination if is_address else self._task.session.get_files_server_host())

    def rotate(self, limit: int, best: int | None) -> None:
        """Remove the oldest checkpoints until there are `limit`, but neither the newest nor the best one."""
        if self._task.is_offline():
            return
        of_step = {
            int(match[1]): model.id
            for model in self._server.models_of(self._task.id)
            if (match := re.fullmatch(CHECKPOINT + re.escape(self._suffix), model.name))
        }
        steps = sorted(of_step)
        removable = [step for step in steps[:-1] if step != best]
        for step in removable[: max(0, len(steps) - limit)]:
            _remove(of_step[step])


def best_of(artifact: Artifact) -> int | None:
    """The step of the best checkpoint, as a checkpoint itself says it."""
    try:
        best = json.loads(Path(artifact.path, STATE_NAME).read_text("utf-8"))["best_model_checkpoint"]
    except (OSError, ValueError, KeyError):
        return None
    found = re.search(CHECKPOINT + "$", best or "")
    return int(found[1]) if found else None


def upload(task: Any, name: str, file: Path) -> None:
    """Upload a file as an artifact, and wait until it is there."""
    if not task.upload_artifact(name, file, wait_on_upload=True):
        raise RuntimeError(f"the upload of {name} has failed")


def _remove(model_id: str, with_file: bool = True) -> None:
    from clearml import Model

    Model.remove(model_id, delete_weights_file=with_file, force=True, raise_on_errors=True)


@contextmanager
def _packed(artifact: Artifact, name: str) -> Iterator[Path]:
    """A folder as one file, uncompressed; a file as it is."""
    if os.path.isfile(artifact.path):
        yield Path(artifact.path)
        return
    with TemporaryDirectory() as folder:
        package = Path(folder, f"{name}.zip")
        with ZipFile(package, "w") as archive:
            for path, inside in artifact.files():
                archive.write(path, inside)
        yield package
