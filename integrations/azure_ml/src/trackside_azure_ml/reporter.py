"""The reporter that speaks to Azure Machine Learning, by version 1 of its SDK."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from typing import Any

from trackside import Artifact, Limits, Point, Reporter, Run, Status, env
from trackside.mapping import KeyStyle
from trackside.reporter import Configured
from trackside.values import encodable
from trackside_azure_ml.metrics import Metric, Row, send
from trackside_azure_ml.runs import HAS_ENDED, end, is_offline
from trackside_azure_ml.service import ServiceError, ask, under_a_free_name

START_SECONDS = 30
CALL_SECONDS = 60
LONGEST = 255  # characters of a metric's name, and of a cell of a table


class AzureMLCallback(Reporter):
    """Reports to the run of the job that it runs in, or to a child of it.

    Args:
        azureml_run: an `azureml.core.Run` to report to, instead of that of the job.
    """

    name = "azure_ml"
    sdk = "azureml.core"
    limits = Limits(
        key_length=LONGEST, key_is_path=True, param_value=LONGEST, params_per_call=250, points_per_call=50, text=LONGEST
    )
    handles = ("azureml_run",)

    key_style: KeyStyle = env(None, "raw")
    child_runs: bool = env(None, False)
    log_artifacts: bool = env(None, False)
    upload_seconds: int = env("AZUREML_ARTIFACTS_DEFAULT_TIMEOUT", 3600)

    azureml_run: Any = None
    _portal: str | None = None

    def __init__(self, azureml_run: Any = None, **options: Any) -> None:
        super().__init__(**options)
        if azureml_run is not None:
            self.azureml_run = azureml_run

    @property
    def takes_artifacts(self) -> bool:
        return self.log_artifacts

    def configured(self) -> Configured:
        """Where no job runs there is the offline context, for those who ask for it."""
        if self.required or self.azureml_run is not None or "AZUREML_RUN_ID" in os.environ:
            return Configured()
        return Configured(False, "no job of Azure ML runs here")

    def start(self, run: Run) -> str | None:
        self._about = run
        self.run, self.adopted = ask(START_SECONDS, lambda: self._run_for(run))
        if is_offline(self.run):
            self.warn_once(
                "offline", "%s: no job runs here, so its SDK prints what it is told, and keeps none.", self.name
            )
            return None
        with suppress(OSError, ServiceError):  # a run without an address is a run
            self._portal = ask(START_SECONDS, self.run.get_portal_url)
        return str(self.run.id)

    def log_points(self, points: Sequence[Point]) -> None:
        """Numbers as numbers of one type; what is not finite, for which JSON has no number, as rows of a table."""
        metrics = []
        for point in points:
            for key, number in point.values.items():
                if math.isfinite(number):
                    metrics.append(Metric(key, float(number), point.step, point.time))
                else:
                    self.warn_once("finite", "%s: the table trackside/not_finite has what is no number.", self.name)
                    row: Row = {"step": point.step, "name": key, "value": str(number)}
                    metrics.append(Metric("trackside/not_finite", row, point.step, point.time))
        self._send(metrics)

    def log_params(self, params: Mapping[str, Any]) -> None:
        step, time = self._about.step, self._about.time
        rows: list[Row] = [{"step": step, "name": key, "value": encodable(str(value))} for key, value in params.items()]
        self._send([Metric("trackside/params", row, step, time) for row in rows])

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        self._send([Metric("trackside/texts", {"step": step, "name": key, "text": encodable(text)}, step, time)])

    def log_file(self, name: str, text: str) -> None:
        content = text.encode("utf-8", "replace")
        under_a_free_name(name, lambda free: ask(CALL_SECONDS, lambda: self.run.upload_file(free, BytesIO(content))))

    def log_artifact(self, artifact: Artifact) -> None:
        files = list(artifact.files())

        def upload(name: str) -> None:
            names, paths = [f"{name}/{inner}" for _, inner in files], [path for path, _ in files]
            sent = self.run.upload_files(names, paths, timeout_seconds=self.upload_seconds)
            list(sent or ())  # an error of an upload is raised by a look at its outcome

        under_a_free_name(artifact.name, lambda free: ask(self.upload_seconds, lambda: upload(free)))

    def flush(self) -> None:
        """Nothing waits here: each call returns when the service has what it brings."""

    def finish(self, status: Status) -> None:
        if status == "pruned":
            ask(CALL_SECONDS, lambda: self.run.tag("trackside.status", status))
        ask(CALL_SECONDS, lambda: end(self.run, status))

    def where(self) -> str | None:
        return self._portal

    def is_passing(self, error: Exception) -> bool:
        """An error that wraps another one is as passing as that."""
        if super().is_passing(error):
            return True
        wrapped = error.__cause__ or getattr(error, "inner_exception", None)
        return isinstance(wrapped, Exception) and self.is_passing(wrapped)

    def _send(self, metrics: Sequence[Metric]) -> None:
        for name, reason in ask(CALL_SECONDS, lambda: list(send(self.run, metrics))):
            self.warn_once(("refused", name), "%s does not take %s: %s", self.name, name, reason)

    def _run_for(self, run: Run) -> tuple[Any, bool]:
        """The SDK's run to report to, and whether others close it."""
        from azureml.core.run import Run as AzureRun

        job = AzureRun.get_context() if self.azureml_run is None else self.azureml_run
        if is_offline(job):
            return job, True
        if self.resume not in ("auto", "new"):
            return AzureRun(job.experiment, self.resume), True
        if not self.child_runs and run.trial_name is None:
            opened, is_adopted = job, True
        else:
            opened, is_adopted = self._child(job, run), False
        if run.tracker_id not in (None, opened.id):
            opened.tag("trackside.continues", run.tracker_id)
        return opened, is_adopted

    def _child(self, job: Any, run: Run) -> Any:
        """The child run that is to be continued, if it is still open; else a new one, whose id a second try finds."""
        from azureml.core.run import Run as AzureRun

        if run.tracker_id not in (None, job.id):
            try:
                found = AzureRun(job.experiment, run.tracker_id)
            except Exception as error:
                if getattr(getattr(error, "response", None), "status_code", None) != 404:
                    raise
            else:
                if found.get_status() not in HAS_ENDED:
                    return found
        return job.child_run(run.name, f"{job.id}_{run.id}_{run.step}" if run.step else f"{job.id}_{run.id}")
