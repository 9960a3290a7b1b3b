"""Opening a `Live`: in which folder, and as what of a DVC repository."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from trackside import Run
from trackside.mapping import Keys
from trackside.records import Limits
from trackside_dvclive.summary import known_of, write
from trackside_dvclive.tables import TEXTS

logger = logging.getLogger(__name__)

FOLDER_NAME = Limits(key=r"\w\-.", key_length=60)


class Place(NamedTuple):
    """Where a run is kept: in a repository, whose DVC knows its versions, or in a folder of its own."""

    folder: str
    dvcyaml: str | bool
    is_versioned: bool
    saves_experiment: bool


def continued(run: Run, insisted: str) -> str | None:
    """The folder of the run that is to be continued, unless this is a branch of it, or another run is there now."""
    folder = run.tracker_id
    if folder is None:
        return None
    known = known_of(folder)
    if folder == os.path.abspath(insisted):
        if not os.path.isdir(folder):
            raise LookupError(f"there is no folder {folder}")
        return folder
    if str(known.get("run")).partition("-")[0] != run.id:
        logger.warning("dvclive: %s does not hold this run any more: another one is started.", folder)
        return None
    is_past = 0 < run.step < known["step"]
    return None if is_past and known["status"] == "finished" else folder


def id_of_new(run: Run) -> str:
    """The same for each try to start a run; that of a branch is not that of its parent."""
    return run.id if run.tracker_id is None else f"{run.id}-{run.time}"


def claim(wanted: str, run_id: str) -> str:
    """Make a folder that nobody has made: `wanted`, else `wanted-2` and so on; this very run's is taken as it is."""
    number, folder = 1, wanted
    while known_of(folder).get("run") != run_id:
        try:
            os.makedirs(folder)
            break
        except FileExistsError:  # each try claims a name
            number += 1
            folder = f"{wanted}-{number}"
    return folder


def name_of(run: Run) -> str:
    """Its name as one of a folder and of an experiment."""
    return Keys(FOLDER_NAME)(run.name)


def above(name: str) -> Path | None:
    """The folder that holds `name`: the working directory, or the next one above it."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / name).exists()), None)


def place_of(run: Run, run_id: str, wanted: str | None, is_continued: bool, saves: bool | None) -> Place:
    """Where a run is kept.

    Args:
        wanted: the folder that it has already, if it is continued, or that the user wants.
        saves: whether the user wants an experiment, for which a repository of Git becomes one of DVC.
    """
    place = shared_place(wanted, saves)
    if place is None:
        folder = os.path.abspath(wanted or os.path.join(run.output_dir, "dvclive", name_of(run)))
        folder = folder if is_continued else claim(folder, run_id)
        place = Place(folder, os.path.join(folder, "dvc.yaml"), False, False)
    if saves and not place.saves_experiment:
        logger.warning("dvclive saves no experiment of %s: there is no Git.", place.folder)
    before = known_of(place.folder)
    if before.get("run", run_id) != run_id and before["status"] == "running":
        logger.warning("dvclive: the run in %s has not come to its end, and is removed.", place.folder)
    return place


def shared_place(wanted: str | None, saves: bool | None) -> Place | None:
    """The place in a repository of DVC, where one run follows another; None outside of it."""
    root = above(".dvc") or (above(".git") if saves else None)
    folder = os.path.abspath(wanted or "dvclive")
    if root is None or root not in Path(folder).parents:
        return None
    return Place(os.path.relpath(folder), "dvc.yaml", True, above(".git") is not None and saves is not False)


def own_live() -> Any:
    """The class of the runs that a reporter opens: a `Live` that keeps to its place, and does nothing for nobody."""
    from dvclive import Live
    from dvclive.serialize import load_yaml
    from dvclive.studio import get_dvc_studio_config

    class OwnLive(Live):
        _exp_name: str | None

        def __init__(self, place: Place, experiment: str | None, **options: Any) -> None:
            self._place, self._experiment, self._is_ending = place, experiment, False
            about = {"dir": place.folder, "dvcyaml": place.dvcyaml, "save_dvc_exp": place.saves_experiment}
            super().__init__(**about, **options)

        @property
        def experiment(self) -> dict[str, Any]:
            """The name of the experiment that its end saves, if it does."""
            return {"experiment": self._exp_name} if self._save_dvc_exp else {}

        def recall(self) -> dict[str, Any]:
            """The parameters of a run that is continued; what `dvc.yaml` says of its artifacts is said again."""
            folder = os.path.dirname(os.path.abspath(self.dvc_file))
            told = load_yaml(self.dvc_file) if os.path.exists(self.dvc_file) else {}
            for name, about in (told.get("artifacts") or {}).items():
                path = os.path.normpath(os.path.join(folder, about["path"]))
                if self._dvc_repo is not None and Path(self.dir).absolute() in Path(path).parents:
                    self.log_artifact(**{**about, "path": path}, name=name, cache=False)
            return load_yaml(self.params_file) if os.path.exists(self.params_file) else {}

        def _init_dvc(self) -> None:
            """Without a repository there is nothing to ask DVC for; where there is only Git, it would make one."""
            if self._place.is_versioned:
                super()._init_dvc()
                self._exp_name = self._experiment or self._exp_name
            else:
                self._dvc_file = self._init_dvc_file()

        def _init_cleanup(self) -> None:
            super()._init_cleanup()
            shutil.rmtree(os.path.join(self.dir, TEXTS), ignore_errors=True)

        def _init_studio(self) -> None:
            """Studio knows a repository by its address, which may bring a token along."""
            if self._place.is_versioned:
                if config := get_dvc_studio_config(self):
                    self._repo_url = without_login(config["repo_url"])
                super()._init_studio()
            else:
                self._studio_events_to_skip |= {"start", "data", "done"}

        def make_summary(self) -> None:
            self.summary["step"] = self.step
            write(self.summary, self.metrics_file)

        def make_dvcyaml(self) -> None:
            """To a file beside what it tells of, DVCLive would add the same again each time."""
            if os.path.abspath(os.path.dirname(self.dvc_file)) == os.path.abspath(self.dir):
                with suppress(FileNotFoundError):
                    os.remove(self.dvc_file)
            super().make_dvcyaml()

        def post_data_to_studio(self) -> None:
            """Only what Studio can take: each time all files are read, and a silent server makes a queue."""
            queue = getattr(self, "_studio_queue", None)
            is_busy = queue is not None and queue.unfinished_tasks > 0
            if self._dvc_studio_config and (self._is_ending or not is_busy):
                super().post_data_to_studio()

        def end(self) -> None:
            self._is_ending = True
            super().end()

    return OwnLive


def without_login(url: str) -> str:
    """An address without the user and password, or token, of the web."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
