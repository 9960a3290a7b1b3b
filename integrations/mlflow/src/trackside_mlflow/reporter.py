"""The reporter that speaks to an MLflow tracking server, or to a store on this machine."""

from __future__ import annotations

import json
import math
import posixpath
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from trackside import Artifact, Limits, Point, Reporter, Run, Status, env
from trackside.mapping import KeyStyle
from trackside.reporter import Configured
from trackside.values import encodable
from trackside_mlflow.active import OpenRun, make_active, make_inactive, run_of_user
from trackside_mlflow.client import Client, code_of, import_quietly
from trackside_mlflow.tags import Tags, json_object

STATUS = {"finished": "FINISHED", "failed": "FAILED", "killed": "KILLED", "pruned": "KILLED"}
PASSING = ("TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED")


class MLflowCallback(Reporter):
    """Reports a run to MLflow through an explicit run id: the active run of the fluent API belongs to one thread."""

    name = "mlflow"
    sdk = "mlflow"
    limits = Limits(
        key=r"\w\-. :/", key_length=200, key_is_path=True, param_value=6000, params_per_call=100, points_per_call=1000
    )
    reopenable = True

    key_style: KeyStyle = env(None, "raw")
    resume: str = env("MLFLOW_RUN_ID", "auto")
    tracking_uri: str | None = env("MLFLOW_TRACKING_URI")
    experiment_name: str | None = env("MLFLOW_EXPERIMENT_NAME")
    experiment_id: str | None = env("MLFLOW_EXPERIMENT_ID")
    tags: Mapping[str, Any] = env("MLFLOW_TAGS", {}, json_object)
    nested_run: bool = env("MLFLOW_NESTED_RUN", False)
    log_artifacts: bool = env("HF_MLFLOW_LOG_ARTIFACTS", False)
    max_log_params: int | None = env("MLFLOW_MAX_LOG_PARAMS", None, int)
    disabled: bool = env("DISABLE_MLFLOW_INTEGRATION", False)

    _open_run: OpenRun | None = None
    _active_run: Any = None
    _shown_by: str | None = None

    @property
    def takes_artifacts(self) -> bool:
        return self.log_artifacts

    def configured(self) -> Configured:
        return Configured(False, "DISABLE_MLFLOW_INTEGRATION switches it off") if self.disabled else Configured()

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        """See which run the user has open, as only the user's thread can. An override calls super()."""
        self._open_run = run_of_user()

    def import_sdk(self) -> None:
        import_quietly()

    def start(self, run: Run) -> str:
        self._about, self._client = run, Client(self.tracking_uri)
        users = self._open_run if self._open_run and self._open_run.tracking_uri == self._client.tracking_uri else None
        wanted = self.tracker_id or run.tracker_id
        if self.tracker_id is None and users is not None and not self._is_another(run, users):
            self.adopted, wanted = True, users.id
        self.run = (wanted and self._continue(wanted)) or self._create(run, users)
        self.tracker_id = self._id = str(self.run.info.run_id)  # if what follows fails, the next try continues it
        self._params = dict(self.run.data.params)
        self._tags = Tags(self._client, self.run)
        self._shown_by = self._client.shown_by(self.run)
        self._tags.set(self.tags)
        return self._id

    def log_points(self, points: Sequence[Point]) -> None:
        """One batch under the loop's own times: what MLflow holds already, it recognises."""
        from mlflow.entities import Metric

        metrics, infinite = [], {}
        for point in points:
            for key, number in point.values.items():
                if math.isinf(number):
                    infinite[f"trackside.infinite.{key}"] = f"{number} at step {point.step}"
                else:
                    metrics.append(Metric(key, float(number), round(point.time * 1000), int(point.step)))
        if metrics:
            self._client.log_batch(self._id, metrics=metrics, synchronous=True)
        if infinite:
            self.warn_once("infinite", "%s draws no infinity: tags trackside.infinite.* say where one was.", self.name)
            self._tags.set_first_and_latest(infinite)

    def log_params(self, params: Mapping[str, Any]) -> None:
        """MLflow keeps the first value of a param for ever; what a resumed run has instead is noted in a tag."""
        texts = {key: encodable(str(value)) for key, value in params.items()}
        changed = {key: [self._params[key], text] for key, text in texts.items() if self._params.get(key, text) != text}
        new = {key: text for key, text in texts.items() if key not in self._params}
        room = None if self.max_log_params is None else max(0, self.max_log_params - len(self._params))
        sent = dict(islice(new.items(), room))
        self._client.log_params(self._id, sent)
        self._params |= sent
        if changed:
            self._tags.add_to_json("trackside.changed_params", changed)
        if len(sent) < len(new):
            self.warn_once("whole", "%s: the artifact params.json holds all parameters.", self.name)
            self._client.log_text(self._id, json.dumps(self._about.params, indent=2), "params.json")

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        file = f"texts/{key}/{step:08}-{round(time * 1000)}.txt"
        self._client.log_text(self._id, encodable(text), file)

    def log_artifact(self, artifact: Artifact) -> None:
        for path, name in artifact.files():
            self._client.log_artifact(self._id, path, posixpath.dirname(f"{artifact.name}/{name}"))

    def log_file(self, name: str, text: str) -> None:
        self._client.log_text(self._id, encodable(text), name)

    def flush(self) -> None:
        """Nothing waits here: each call returns when MLflow has stored what it brings."""

    def finish(self, status: Status) -> None:
        self._client.set_terminated(self._id, STATUS[status])
        if status == "pruned":
            self._tags.set({"trackside.status": status})

    def attach(self) -> None:
        if self.run is not None:
            self._active_run = make_active(self.run, self._client.tracking_uri)

    def detach(self) -> None:
        if self._active_run is not None:
            make_inactive(self._active_run)

    def place(self) -> Mapping[str, Any]:
        """The store, which `mlflow.set_tracking_uri` or the working directory may have chosen."""
        return {"tracking_uri": self._client.place} if hasattr(self, "_client") else {}

    def where(self) -> str | None:
        return self._shown_by

    def is_passing(self, error: Exception) -> bool:
        """MLflow wraps what its HTTP library raises. An address that is none does not become one."""
        cause = error.__cause__ or error.__context__
        wraps_trouble = isinstance(cause, Exception) and not isinstance(cause, ValueError) and super().is_passing(cause)
        return wraps_trouble or code_of(error) in PASSING or super().is_passing(error)

    def _is_another(self, run: Run, users: OpenRun) -> bool:
        """Whether this run is not to be the one that the user has open."""
        return self.nested_run or run.trial_name is not None or self.resume not in ("auto", "new", users.id)

    def _continue(self, run_id: str) -> Any:
        """A run that is there, running again; None if it is gone, which is an error if the user insists on it."""
        found = self._client.find_run(run_id)
        if found is None:
            if self.adopted or run_id == self.resume:
                raise LookupError(f"there is no run {run_id} at {self._client.tracking_uri}")
            self.warn_once("gone", "%s has no run %s any more: another one is started.", self.name, run_id)
        elif not self.adopted:
            self._client.update_run(run_id, status="RUNNING")
        return found

    def _create(self, run: Run, users: OpenRun | None) -> Any:
        """A new run, below the one that the user has open, if there is one."""
        tags = {f"trackside.{key}": text for key, text in run.source.items()}
        if users is not None:
            tags["mlflow.parentRunId"] = users.id
        experiment = self.experiment_id or (users and users.experiment_id)
        if self.experiment_name or not experiment:
            experiment = self._client.experiment_named(self.experiment_name or "Default")
        return self._client.new_run(experiment, run, tags)
