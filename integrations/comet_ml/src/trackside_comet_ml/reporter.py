"""The reporter that speaks to Comet, or writes an archive for it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from trackside import Artifact, Limits, Point, Reporter, Run, Status, env
from trackside.reporter import Configured
from trackside.values import redact
from trackside_comet_ml import experiments, plain
from trackside_comet_ml.deadline import within

MODES = ("get_or_create", "get", "create")
START_SECONDS, FLUSH_SECONDS, END_SECONDS = 30, 30, 60


class CometCallback(Reporter):
    """Reports a run to Comet: at once to its server, or into an archive that `comet upload` takes there."""

    name = "comet_ml"
    sdk = "comet_ml"
    limits = Limits(key_length=100, param_value=1000)
    reopenable = True

    resume: str = env("COMET_EXPERIMENT_KEY", "auto")
    mode: str = env("COMET_MODE", "get_or_create", str.lower)
    online: bool = env("COMET_START_ONLINE", True)
    workspace: str | None = env("COMET_WORKSPACE")
    project_name: str | None = env("COMET_PROJECT_NAME")
    experiment_name: str | None = env("COMET_START_EXPERIMENT_NAME")
    tags: Sequence[str] = env("COMET_START_EXPERIMENT_TAGS", (), plain.words)
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
            return Configured(False, f"COMET_MODE takes one of {', '.join(MODES)}, not {self.mode}")
        if self.online and not experiments.knows_api_key():
            return Configured(False, "set COMET_API_KEY, type: comet login, or set COMET_START_ONLINE=0")
        return Configured()

    def import_sdk(self) -> None:
        experiments.import_quietly()

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        """See which experiment the user has running, and what the model says of itself. Who overrides this calls it."""
        self._users = experiments.experiment_of_user()
        self._graph = redact(plain.text_of(model)) if self.log_graph else None

    def start(self, run: Run) -> str:
        if self.mode not in MODES:
            raise ValueError(f"COMET_MODE takes one of {', '.join(MODES)}, not {self.mode!r}")
        self._folder = os.path.abspath(self.offline_directory or os.path.join(run.output_dir, "comet"))
        self.adopted = self._is_adopted(run)
        self.run = self._users if self.adopted else self._continue(run) or self._create(run)
        self._id = str(self.run.get_key())
        self._is_online = experiments.is_online(self.run)
        archives = f"comet upload {shlex.quote(os.path.join(self._folder, self._id))}*.zip"
        self._shown_by = None if self.run.disabled else self.run.url or archives
        return self._id

    def log_points(self, points: Sequence[Point]) -> None:
        """Under the loop's own times, which `log_metric` does not take. A user's own logs belong to the latest step."""
        from comet_ml.messages import MetricMessage

        if not self._is_taking():
            return
        for point in points:
            self.run.curr_step, self.run.curr_epoch = point.step, point.epoch
            for key, number in point.values.items():
                message = MetricMessage(timestamp=round(point.time * 1000))
                message.set_metric(plain.encodable(key), plain.number(number), step=point.step, epoch=point.epoch)
                self.run.streamer.put_message_in_q(message)

    def log_params(self, params: Mapping[str, Any]) -> None:
        if self._is_taking():
            with experiments.raising():
                for key, value in params.items():
                    self.run.log_parameter(plain.encodable(key), plain.param(value))

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        if self._is_taking():
            self.run.curr_step = step
            with experiments.raising():
                self.run.log_text(plain.encodable(text), metadata={"name": plain.encodable(key), "time": time})

    def log_file(self, name: str, text: str) -> None:
        if self._is_taking():
            with experiments.raising():
                self.run.log_asset_data(plain.encodable(text), name=plain.encodable(name), overwrite=True)

    def log_artifact(self, artifact: Artifact) -> None:
        """Returns when the files are no longer needed: uploaded, or copied for the archive."""
        if self._is_taking():
            self.run.curr_step = artifact.step
            with experiments.raising():
                for path, name in artifact.files():
                    self.run.log_asset(path, file_name=plain.encodable(f"{artifact.name}/{name}"))
                self.run.log_other("trackside.artifact", artifact.name)
            experiments.wait_for_files(self.run)

    def flush(self) -> Any:
        """Says whether all has arrived. An archive is none before its experiment has ended."""
        return None if self._is_online and self._has_arrived() else NotImplemented

    def finish(self, status: Status) -> None:
        if self.run.ended or self.run.disabled:
            return
        with experiments.raising():
            self.run.log_other("trackside.status", status)
        if status in ("failed", "killed"):
            self.run._report_experiment_error(f"The training has {status}.", has_crashed=True)
        if not self._is_online:
            self.run.end()
        elif self._has_arrived():
            within(END_SECONDS, self.run.end)
        else:
            raise ConnectionError("Comet cannot be reached, and has not got everything")
        experiments.forget(self.run)

    def attach(self) -> None:
        if self.run is not None:
            experiments.make_running(self.run)

    def detach(self) -> None:
        if self.run is not None and not self.adopted:
            experiments.make_not_running(self.run)

    def place(self) -> Mapping[str, Any]:
        """The folder of the archives, wherever a replay is started."""
        return {"offline_directory": self._folder} if self.offline_directory and hasattr(self, "_folder") else {}

    def where(self) -> str | None:
        return self._shown_by

    @property
    def _goes_online(self) -> bool:
        """Whether Comet is asked anything; a disabled experiment would be as well."""
        return self.online and not self.disabled

    def _is_adopted(self, run: Run) -> bool:
        """Whether the experiment that the user has running is the one to log to."""
        wanted = self.tracker_id or (None if self.resume in ("auto", "new") else self.resume)
        return self._users is not None and run.trial_name is None and wanted in (None, self._users.get_key())

    def _continue(self, run: Run) -> Any:
        """The experiment that goes on; None if there is none, which is an error if the user insists on it."""
        key, is_named = self.tracker_id or run.tracker_id, run.tracker_id == self.resume
        if key is None or (self.mode == "create" and self.tracker_id is None and not is_named):
            return None
        mode = self.mode if is_named and self.tracker_id is None else "get" if self._goes_online else "get_or_create"
        try:
            return self._experiment(key, mode)
        except Exception as error:
            if is_named or type(error).__name__ != "ExperimentNotFound":
                raise
            self.warn_once("gone", "%s has no experiment %s any more: another one is started.", self.name, key)
            return None

    def _create(self, run: Run) -> Any:
        """A new experiment, the same one if the start is tried again."""
        if self._new_key is None or self._new_key[0] != run.id:
            self._new_key = run.id, uuid4().hex
        settings = {"name": plain.encodable(self.experiment_name or run.name), "tags": list(redact(self.tags))}
        experiment = self._experiment(self._new_key[1], "get_or_create", **settings)
        with experiments.raising():
            experiment.log_others({f"trackside.{key}": plain.encodable(text) for key, text in run.source.items()})
            if self._graph:
                experiment.set_model_graph(self._graph)
            if run.trial_name is not None:
                experiment.log_optimization(optimization_id=run.trial_name, parameters=run.trial_params or {})
        return experiment

    def _experiment(self, key: str, mode: str, **settings: Any) -> Any:
        if not (self._goes_online or self.disabled):
            os.makedirs(self._folder, exist_ok=True)
        options = {"experiment_key": key, "mode": mode, "online": None if self._goes_online else False}
        options |= {"workspace": self.workspace, "project_name": self.project_name}
        settings["offline_directory"] = self._folder
        return within(START_SECONDS, lambda: experiments.open_experiment(settings, **options), lambda late: late.end())

    def _is_taking(self) -> bool:
        """Whether the experiment is there to be logged to; one that is disabled is not.

        Raises:
            RuntimeError: somebody else has ended it; what comes now would be lost without a word.
        """
        if not (self.run.alive or self.run.disabled):
            raise RuntimeError(f"the experiment {self._id} was ended by somebody else")
        return not self.run.disabled

    def _has_arrived(self) -> bool:
        """Whether Comet's server has all that was sent."""
        is_there = self.run.streamer.has_connection_to_server
        return is_there() and within(FLUSH_SECONDS, self.run.flush) and is_there()
