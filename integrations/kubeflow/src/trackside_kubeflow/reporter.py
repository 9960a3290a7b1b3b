"""The reporter that tells Kubeflow Trainer how far a TrainJob is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from trackside import Configured, Limits, Point, Reporter, Run, Status, env
from trackside.delivery import reason_of
from trackside.mapping import KeyStyle
from trackside_kubeflow.address import Address
from trackside_kubeflow.progress import LONGEST_TEXT, Progress
from trackside_kubeflow.updates import Updates


class KubeflowCallback(Reporter):
    """Keeps the status of the TrainJob that runs here up to date: progress, time left and the latest metrics."""

    name = "kubeflow"
    live = True
    reopenable = True
    limits = Limits(key=r" -\ud7ff\ue000-\U0010ffff", key_length=LONGEST_TEXT)

    key_style: KeyStyle = env(None, "raw")
    server_url: str | None = env("KUBEFLOW_TRAINER_SERVER_URL")
    ca_cert: str | None = env("KUBEFLOW_TRAINER_SERVER_CA_CERT")
    token_file: str | None = env("KUBEFLOW_TRAINER_SERVER_TOKEN")
    disabled: bool = env("DISABLE_KUBEFLOW_INTEGRATION", False)

    _progress: Progress | None = None
    _job: tuple[str, str] | None = None

    def configured(self) -> Configured:
        reason = self._missing()
        return Configured(not reason, reason)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, model, **kwargs)
        if self.run is not None:
            self.run.progress.begin(state)
            self.run.ask()

    def start(self, run: Run) -> str | None:
        if reason := self._missing():
            raise RuntimeError(reason)
        from trackside_kubeflow.controller import Controller  # TLS is of no use to those who run elsewhere

        address = Address.of(self.server_url or "")
        controller = Controller(address, self.ca_cert, self.token_file or "")
        controller.trust()
        if self._progress is None or self._progress.run_id != run.id:  # else it goes on after its end
            self._progress = Progress(run.id)
        self.run = Updates(self._progress, controller.update, self.is_passing, self._complain)
        self.run.start()
        self._job = address.job
        return "/".join(self._job) if self._job else None

    def log_points(self, points: Sequence[Point]) -> None:
        for point in points:
            if left_out := self.run.progress.note(point.values):
                message = "%s: a status has no room for %s and what is new after it."
                self.warn_once("room", message, self.name, left_out[0])

    def finish(self, status: Status) -> None:
        self.run.progress.ending = status
        self.run.end()

    def where(self) -> str | None:
        if self._job is None:
            return None
        namespace, name = self._job
        return f"kubectl describe trainjob {name} --namespace {namespace}"

    def _missing(self) -> str:
        """What keeps it from reporting; told from its options and its files alone."""
        if self.disabled:
            return "DISABLE_KUBEFLOW_INTEGRATION switches it off"
        if not self.server_url:
            return "KUBEFLOW_TRAINER_SERVER_URL is not set, as it is in a TrainJob with the feature TrainJobStatus"
        try:
            Address.of(self.server_url)
        except ValueError as error:
            return f"KUBEFLOW_TRAINER_SERVER_URL is no address to send a token to: {error}"
        if not os.path.isfile(self.token_file or ""):
            return "KUBEFLOW_TRAINER_SERVER_TOKEN names no file that holds a token"
        if self.ca_cert and not os.path.isfile(self.ca_cert):
            return "KUBEFLOW_TRAINER_SERVER_CA_CERT names no file that holds a certificate"
        return ""

    def _complain(self, error: Exception) -> None:
        message = "%s: the status of the TrainJob could not be updated (%s); it is tried again."
        self.warn_once(("update", type(error)), message, self.name, reason_of(error))
