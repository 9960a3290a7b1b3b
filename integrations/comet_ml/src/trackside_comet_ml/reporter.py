"""The reporter that speaks to Comet, or writes an archive for it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from trackside import Artifact, Limits, Point, Reporter, Run, Status, env
from trackside.options import words
from trackside.reporter import Configured
from trackside.values import encodable, redact
from trackside_comet_ml.experiment import (
    Experiment,
    make_not_running,
    make_running,
    open_experiment,
    remove_empty_archives,
    users_experiment,
)
from trackside_comet_ml.plain import param, text_of
from trackside_comet_ml.quiet import import_quietly, knows_api_key

ENCODABLE = r"\x00-\ud7ff\ue000-\U0010ffff"  # not the surrogates that Python puts for undecodable bytes
MODES = ("get_or_create", "get", "create")


class CometCallback(Reporter):
    """Reports a run to Comet: at once to its server, or into an archive that `comet upload` takes there."""

    name = "comet_ml"
    sdk = "comet_ml"
    limits = Limits(key=ENCODABLE, key_length=100, param_value=1000)
    reopenable = True

    resume: str = env("COMET_EXPERIMENT_KEY", "auto")
    mode: str = env("COMET_MODE", "get_or_create", str.lower)
    online: bool = env("COMET_START_ONLINE", True)
    workspace: str | None = env("COMET_WORKSPACE")
    project_name: str | None = env("COMET_PROJECT_NAME")
    experiment_name: str | None = env("COMET_START_EXPERIMENT_NAME")
    tags: Sequence[str] = env("COMET_START_EXPERIMENT_TAGS", (), words)
    offline_directory: str | None = env("COMET_OFFLINE_DIRECTORY")
    log_assets: bool = env("COMET_LOG_ASSETS", False)
    log_graph: bool = env("COMET_AUTO_LOG_GRAPH", True)
    disabled: bool = env("COMET_AUTO_LOG_DISABLE", False)

    _users: Any = None
    _graph: str | None = None
    _new_key: tuple[str, str] | None = None
    _shown_by: str | None = None

    @property
    def takes_artifacts(self) -> bool:
        return self.log_assets

    def configured(self) -> Configured:
        if self.disabled:
            return Configured(False, "COMET_AUTO_LOG_DISABLE switches it off")
        if self.mode not in MODES:
            return Configured(False, f"COMET_MODE takes one of {', '.join(MODES)}, not {self.mode!r}")
        if self.online and not knows_api_key():
            return Configured(False, "set COMET_API_KEY, type: comet login, or set COMET_START_ONLINE=0")
        return Configured()

    def import_sdk(self) -> None:
        import_quietly()

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        """Note the experiment that the user has running, and what the model prints. An override calls super()."""
        self._users = users_experiment()
        self._graph = redact(text_of(model)) if self.log_graph else None

    def start(self, run: Run) -> str:
        if self.mode not in MODES:
            raise ValueError(f"COMET_MODE takes one of {', '.join(MODES)}, not {self.mode!r}")
        self._folder = os.path.abspath(self.offline_directory or os.path.join(run.output_dir, "comet"))
        self.adopted = self._is_adopted(run)
        self._experiment = Experiment(self._users) if self.adopted else self._continue(run) or self._create(run)
        self.run, key = self._experiment.sdk, self._experiment.key
        archives = f"comet upload {shlex.quote(os.path.join(self._folder, key))}*.zip"
        self._shown_by = None if self.run.disabled else self.run.url or archives
        return key

    def log_points(self, points: Sequence[Point]) -> None:
        self._experiment.log(points)

    def log_params(self, params: Mapping[str, Any]) -> None:
        with self._experiment.at() as experiment:
            for key, value in params.items():
                experiment.log_parameter(key, param(value))

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        with self._experiment.at(step) as experiment:
            experiment.log_text(encodable(text), metadata={"name": key, "time": time})

    def log_file(self, name: str, text: str) -> None:
        with self._experiment.at() as experiment:
            experiment.log_asset_data(encodable(text), name=name, overwrite=True)

    def log_artifact(self, artifact: Artifact) -> None:
        """Returns when the files are no longer needed."""
        with self._experiment.at(artifact.step) as experiment:
            for path, name in artifact.files():
                experiment.log_asset(path, file_name=encodable(f"{artifact.name}/{name}"), overwrite=True)
            experiment.log_other("trackside.artifact", artifact.name)
        self._experiment.wait_for_files()

    def flush(self) -> Any:
        return None if self._experiment.is_safe() else NotImplemented

    def finish(self, status: Status) -> None:
        self._experiment.end(status)

    def attach(self) -> None:
        if self.run is not None:
            make_running(self.run)

    def detach(self) -> None:
        if self.run is not None and not self.adopted:
            make_not_running(self.run)

    def place(self) -> Mapping[str, Any]:
        """The folder of the archives, wherever a replay is started."""
        return {"offline_directory": self._folder} if self.offline_directory and hasattr(self, "_folder") else {}

    def where(self) -> str | None:
        return self._shown_by

    @property
    def _asks_server(self) -> bool:
        return self.online and not self.disabled

    def _is_adopted(self, run: Run) -> bool:
        """Whether the experiment that the user has running is the one to log to."""
        wanted = self.tracker_id or (None if self.resume in ("auto", "new") else self.resume)
        return self._users is not None and run.trial_name is None and wanted in (None, self._users.get_key())

    def _continue(self, run: Run) -> Experiment | None:
        """The experiment that goes on; None if there is none, which is an error if the user insists on it."""
        key, is_named, is_reopened = run.tracker_id, run.tracker_id == self.resume, self.tracker_id is not None
        is_wanted = is_reopened or (run.trial_name is None if is_named else self.mode != "create")
        if key is None or not is_wanted:
            return None
        mode = self.mode if is_named and not is_reopened else "get" if self._asks_server else "get_or_create"
        try:
            return self._open_experiment(key, mode)
        except Exception as error:
            if is_named or type(error).__name__ != "ExperimentNotFound":
                raise
            self.warn_once("gone", "%s has no experiment %s any more: another one is started.", self.name, key)
            return None

    def _create(self, run: Run) -> Experiment:
        """A new experiment, the same one if the start is tried again."""
        if self.mode == "get" and run.trial_name is None:
            raise LookupError(
                "COMET_MODE=get insists on an experiment that there is; name it with COMET_EXPERIMENT_KEY"
            )
        if self._new_key is None or self._new_key[0] != run.id:
            self._new_key = run.id, uuid4().hex
        settings = {"name": encodable(self.experiment_name or run.name), "tags": list(redact(self.tags))}
        created = self._open_experiment(self._new_key[1], "get_or_create", **settings)
        with created.at() as experiment:
            experiment.log_others({f"trackside.{key}": encodable(text) for key, text in run.source.items()})
            if self._graph:
                experiment.set_model_graph(self._graph)
            if run.trial_name is not None:
                experiment.log_optimization(optimization_id=run.trial_name, parameters=run.trial_params or {})
        return created

    def _open_experiment(self, key: str, mode: str, **settings: Any) -> Experiment:
        if not (self._asks_server or self.disabled):
            os.makedirs(self._folder, exist_ok=True)
            remove_empty_archives(self._folder, key)
        settings["offline_directory"] = self._folder
        names = {"workspace": self.workspace, "project_name": self.project_name}
        online = None if self._asks_server else False  # unless Comet's own settings say so
        return open_experiment(settings, experiment_key=key, mode=mode, online=online, **names)
