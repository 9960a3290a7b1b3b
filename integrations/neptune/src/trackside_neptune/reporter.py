"""The reporter that speaks to Neptune, or writes what `neptune sync` sends later."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from trackside import Artifact, Limits, Point, Reporter, Run, Status, env
from trackside.mapping import cut
from trackside.records import argument
from trackside.reporter import Configured
from trackside.values import encodable
from trackside_neptune.client import Patience, import_quietly, in_a_sentence, is_trouble
from trackside_neptune.fields import (
    LONGEST_TEXT,
    LONGEST_TEXT_OF_A_SERIES,
    NON_FINITE,
    Fields,
    Row,
    plain,
    split,
)
from trackside_neptune.opening import STOP_SECONDS, Opened, Opener, describe
from trackside_neptune.shelf import Shelf

START_SECONDS = 20.0
FLUSH_SECONDS = 5.0
FINISH_SECONDS = 30.0

MODES = ("async", "sync", "offline", "debug")
# What `neptune.init_run` takes besides; the callback of transformers takes these one by one.
INIT_RUN = {
    *("async_lag_callback", "async_lag_threshold", "async_no_progress_callback", "async_no_progress_threshold"),
    *("capture_hardware_metrics", "capture_stderr", "capture_stdout", "capture_traceback", "dependencies"),
    *("description", "fail_on_exception", "flush_period", "git_ref", "proxies", "source_files", "tags"),
}


class NeptuneCallback(Reporter):
    """Reports a run to Neptune, below a namespace of it."""

    name = "neptune"
    sdk = "neptune"
    limits = Limits(
        key=r" -~\u00a0-\ud7ff\ue000-\U0010ffff",
        key_length=200,
        key_is_path=True,
        param_value=LONGEST_TEXT,
        text=LONGEST_TEXT_OF_A_SERIES,
    )
    handles = ("initial_run",)

    api_token: str | None = env("NEPTUNE_API_TOKEN")
    project: str | None = env("NEPTUNE_PROJECT")
    mode: str = env("NEPTUNE_MODE", "async")
    run_name: str | None = env(None)
    initial_run: Any = env(None)
    base_namespace: str = env(None, "finetuning")
    log_parameters: bool = env(None, True)
    log_checkpoints: Literal["same", "last", "best"] | None = env(None)
    custom_run_id: str | None = env("NEPTUNE_CUSTOM_RUN_ID")
    monitoring_namespace: str | None = env("NEPTUNE_MONITORING_NAMESPACE")
    data_directory: str | None = env("NEPTUNE_DATA_DIRECTORY")
    init_run: Mapping[str, Any] = env(None, {})

    _about: Any = None
    _opened: Any = None
    _adopted_by: str | None = None
    _shown_by: str | None = None

    def __init__(self, *, name: str | None = None, run: Any = None, with_id: str | None = None, **options: Any) -> None:
        further = {key: options.pop(key) for key in INIT_RUN & options.keys()}
        given = {"run_name": name, "initial_run": run, "resume": with_id, **options}
        if further:
            given["init_run"] = {**given.get("init_run", {}), **further}
        super().__init__(**{key: value for key, value in given.items() if value is not None})
        if self.log_checkpoints not in (None, "same", "last", "best"):
            raise ValueError(f'log_checkpoints is {self.log_checkpoints!r}; it takes "same", "last", "best" or None.')

    @classmethod
    def get_run(cls, trainer: Any) -> Any:
        """The run that a trainer's callback reports to: None before it starts, and on ranks that do not report."""
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, cls):
                return callback.run
        raise LookupError(f"This trainer has no {cls.__name__}; give it one, or report_to='neptune'.")

    @property
    def takes_artifacts(self) -> bool:
        return self.log_checkpoints is not None

    def configured(self) -> Configured:
        if self.mode not in MODES:
            return Configured(False, f"mode or NEPTUNE_MODE is {self.mode!r}, which is none of {', '.join(MODES)}")
        if self.initial_run is not None or self.mode in ("offline", "debug"):
            return Configured()
        missing = [name for name in ("api_token", "project") if not getattr(self, name)]
        named = " and ".join(f"NEPTUNE_{name.upper()}" for name in missing)
        return Configured(not missing, f"set {named}, or NEPTUNE_MODE=offline" if missing else "")

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        """Refuse what cannot work, before the run starts. An override calls super()."""
        judges = argument(args, "load_best_model_at_end") or argument(args, "metric_for_best_model")
        if self.log_checkpoints == "best" and not judges:
            raise ValueError('log_checkpoints="best" needs to know what is best: set metric_for_best_model.')

    def on_save(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if self.log_checkpoints != "best" or state.best_global_step == state.global_step:
            super().on_save(args, state, control, model, **kwargs)

    def import_sdk(self) -> None:
        import_quietly()

    def start(self, run: Run) -> str:
        if getattr(self._about, "id", None) != run.id:  # otherwise this is another try
            self._opening, self._waiting = Patience(), Patience()
        self._about = run
        given = {key: getattr(self, key) for key in ("mode", "api_token", "project", "monitoring_namespace")}
        opener = self._opener = Opener.of(run, self.data_directory, self.base_namespace, {**given, **self.init_run})
        opened = self._opened = self._opening(
            lambda: self._users_run(run) or self._open_run(run, opener), START_SECONDS
        )
        self.run, self.adopted = opened.run, opened.run is self.initial_run
        is_set_back = opened.is_past(run)
        self._last = (run.step, -math.inf) if is_set_back else opened.last
        self._fields = Fields(self.run, self.base_namespace, self._last, is_set_back)
        if run.step == 0 < self._last[0]:
            message = "%s has the points of this run up to step %d; none are added there."
            self.warn_once("held", message, self.name, self._last[0])
        self._shelf = Shelf(os.path.join(opener.directory, "files", *opened.id.split("/")))
        self._shown_by = self.run.get_url() if opened.is_online else None if self.adopted else opener.sync_command
        describe(run, opened, self._fields, self.adopted)
        if is_set_back:
            self._fields.assign("trackside/set_back_at", run.time)
        return str(opened.id)

    def log_points(self, points: Sequence[Point]) -> None:
        series, epochs = split(points)
        for key, rows in series.items():
            if key.startswith(NON_FINITE):
                message = "%s takes no nan and no infinity: see the texts below non_finite."
                self.warn_once("not finite", message, self.name)
            self._fields.extend(key, rows)
        for key, epoch in epochs.items():
            self._fields.assign(key, epoch)
        self._last = max(self._last, (int(points[-1].step), points[-1].time))
        for name, last in zip(("step", "time"), self._last, strict=True):
            self._fields.assign(f"trackside/{name}", last)

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Below the namespaces of the callback of transformers. A changed one of a continued run is noted."""
        if not self.log_parameters:
            return
        about, held, changes = self._about, self._opened.held, []
        for key, value in params.items():
            group = "trainer_parameters" if key.partition("/")[0] in about.args else "model_parameters"
            field, value = f"{group}/{key}", plain(value)
            before = held.get(field, value)
            if before != value:
                changes.append(f"{key}: {before} -> {value}")
            if field not in held or before != value:
                self._fields.replace(field, value)
        if changes:
            rows = [Row(cut(change, LONGEST_TEXT_OF_A_SERIES), self._last[0], about.time) for change in changes]
            self._fields.extend("trackside/changed_params", rows)

    def log_summary(self, values: Mapping[str, int | float]) -> None:
        for key, number in values.items():
            self._fields.replace(key, plain(float(number)))

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        self._fields.extend(f"texts/{key}", [Row(encodable(text), step, time)])

    def log_file(self, name: str, text: str) -> None:
        """Neptune adds the suffix of the file itself."""
        self._fields.upload(f"files/{name.removesuffix('.txt')}", self._shelf.keep_text(encodable(text)))

    def log_artifact(self, artifact: Artifact) -> None:
        """A set of files, which replaces the one before. What is offline is read later, and sent from one place."""
        from neptune.types import FileSet

        target = artifact.name if self.log_checkpoints == "same" else str(self.log_checkpoints)
        path = self._fields.path(f"checkpoints/{target}")
        folder = self._shelf.keep(artifact, artifact.name if self._opened.is_online else target)
        if self._opened.is_online or not self.run.exists(path):
            self.run[path].assign(FileSet(folder))

    def flush(self) -> Any:
        """What is offline is safe on the disk, the rest once the server has confirmed it."""
        if self.run is None or not self._is_confirmed(FLUSH_SECONDS):  # without a run another process delivers
            return NotImplemented
        return None

    def finish(self, status: Status) -> None:
        if self.run.get_state() == "stopped":  # by the user
            return
        self.run["sys/failed"].assign(status in ("failed", "killed"))
        self._fields.assign("trackside/status", status)
        if not self._is_confirmed(FINISH_SECONDS):
            raise TimeoutError(f"Neptune has not confirmed within {FINISH_SECONDS:g} seconds what it was sent")
        self.run.stop(seconds=STOP_SECONDS)
        self._opener.tidy()

    def _is_confirmed(self, seconds: float) -> bool:
        """Whether all is confirmed that was sent until now, and what was kept for it is not needed any more."""
        if not self._opened.is_online:
            self.run.wait(disk_only=True)
            return True
        kept = self._shelf.kept()
        try:
            with in_a_sentence():
                if self._waiting.is_waiting:  # for what was sent until then
                    self._waiting(self.run.wait, seconds)
                self._waiting(self.run.wait, seconds)
        except TimeoutError:
            return False
        self._shelf.remove(kept)
        return True

    def where(self) -> str | None:
        return self._shown_by

    def is_passing(self, error: Exception) -> bool:
        return is_trouble(error) or super().is_passing(error)

    # ---- opening a run ------------------------------------------------------------------------------------------

    def _users_run(self, run: Run) -> Opened | None:
        """The run that the user has opened, for one training: the steps of a second would not be greater."""
        users = self.initial_run
        if users is None or users.get_state() == "stopped":
            return None
        opened = Opened.of(users, self.base_namespace)
        if self._adopted_by not in (None, run.id) and run.tracker_id != opened.id:
            return None
        self._adopted_by = run.id
        return opened

    def _open_run(self, run: Run, opener: Opener) -> Opened:
        """The run that is known, or a new one, whose own id does not change from try to try."""
        own_id = run.id if run.tracker_id is None else f"{run.id}-{run.step}"
        return opener.known(run, self.resume) or opener.new(self.run_name or run.name, self.custom_run_id or own_id)
