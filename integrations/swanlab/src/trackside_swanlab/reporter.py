"""The reporter that speaks to SwanLab, online or to a folder that it uploads or shows later."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from trackside import Artifact, Limits, Point, Reporter, Run, Status, env
from trackside.deadline import later, within
from trackside.options import words
from trackside.reporter import Configured
from trackside.values import encodable
from trackside_swanlab.account import NEEDS_NO_KEY, NO_KEY, has_key
from trackside_swanlab.active import run_of_user
from trackside_swanlab.files import keep_file, keep_text
from trackside_swanlab.opening import end_run, open_run, origin, readable_settings
from trackside_swanlab.plain import KEY_CHARACTERS, one_of, plain, unless_false
from trackside_swanlab.quiet import check_losses, hold_console, quietly
from trackside_swanlab.rows import Rows

STATES = {"finished": "success", "failed": "crashed", "killed": "aborted", "pruned": "aborted"}
START_SECONDS = 60
FINISH_SECONDS = 45


class SwanLabCallback(Reporter):
    """Reports a run to SwanLab under the loop's own steps and times, and says what it would drop in silence."""

    name = "swanlab"
    sdk = "swanlab"
    limits = Limits(key=KEY_CHARACTERS, key_length=480, text=2_500_000)  # a text has 10 MB, in up to 4 bytes each

    resume: str = env("SWANLAB_RUN_ID", "auto")
    resume_mode: str | None = env("SWANLAB_RESUME", None, one_of("must", "allow", "never"))
    mode: str | None = env("SWANLAB_MODE", None, one_of("online", "cloud", "offline", "local", "disabled"))
    project: str | None = env("SWANLAB_PROJECT")
    workspace: str | None = env("SWANLAB_WORKSPACE")
    run_name: str | None = env("SWANLAB_EXP_NAME")
    description: str | None = env("SWANLAB_DESCRIPTION")
    group: str | None = env("SWANLAB_GROUP")
    job_type: str | None = env("SWANLAB_JOB_TYPE")
    tags: Sequence[str] = env("SWANLAB_TAGS", (), words)
    log_dir: str | None = env("SWANLAB_LOG_DIR")
    log_model: bool = env("SWANLAB_LOG_MODEL", False, unless_false)

    _users_run: Any = None
    _opened: Any = None
    _ending: Future[None] | None = None

    @property
    def takes_artifacts(self) -> bool:
        return self.log_model and self.mode != "disabled"

    def configured(self) -> Configured:
        if self.mode == "disabled" and not self.required:
            return Configured(False, "SWANLAB_MODE switches it off")
        if self.mode in NEEDS_NO_KEY or has_key() or run_of_user() is not None:
            return Configured()
        return Configured(False, NO_KEY)

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        """See which run the user has open. Who overrides this calls it."""
        self._users_run = run_of_user()

    def import_sdk(self) -> None:
        with readable_settings():
            super().import_sdk()
        hold_console()

    def start(self, run: Run) -> str | None:
        self.adopted = self._users_run is not None
        if self.adopted:
            self._refuse_another(run)
            self.run = self._users_run
        else:
            self.run = self._open_own(run)
        self._rows = Rows(self.run)
        if not self.adopted and (last := self._rows.last_step) > run.step:
            kept = '%s has this run up to step %d, and keeps that as it is; resume="new" starts another one.'
            self.warn_once("resumed", kept, self.name, last)
        self._configure(origin(run, self.run.id))
        if self.run.mode == "disabled":
            self.warn_once("off", "%s is switched off by SWANLAB_MODE; nothing is sent.", self.name)
            return None
        return str(self.run.id)

    def log_points(self, points: Sequence[Point]) -> None:
        for point in points:
            self._add({key: float(value) for key, value in point.values.items()}, point.step, point.time)

    def log_params(self, params: Mapping[str, Any]) -> None:
        self._configure(params)

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        from swanlab import Text

        self._add({key: Text(encodable(text))}, step, time)

    def log_file(self, name: str, text: str) -> None:
        if self.run.mode != "disabled":
            keep_text(self.run, name, encodable(text))

    def log_artifact(self, artifact: Artifact) -> None:
        for path, inner in artifact.files():
            keep_file(self.run, path, f"{artifact.name}/{inner}")

    def finish(self, status: Status) -> None:
        """End the run, which waits for its server as long as that may take; a second try waits for the first one."""
        if self._ending is None:
            if status == "pruned":
                self._configure({"trackside/status": status})
            reason = "The training has failed." if status == "failed" else None
            self._ending = later(partial(end_run, self.run, STATES[status], reason))
        within(FINISH_SECONDS, self._ending.result)
        check_losses()

    def where(self) -> str | None:
        if self.run is None or self.run.mode == "disabled":
            return None
        if self.run.mode == "online":
            return str(self.run.url)
        if self.run.mode == "local":
            return f"swanlab watch {shlex.quote(str(self.run.dir.parent))}"
        return f"swanlab sync --id {self.run.id} {shlex.quote(str(self.run.dir))}"

    def place(self) -> Mapping[str, Any]:
        """What the folder in which the training runs, or SwanLab's own settings, have chosen."""
        if self.run is None or self.run.mode == "disabled":
            return {}
        project = self.run._ctx.config.settings.project
        known = {"mode": self.run.mode, "project": project.name, "workspace": project.workspace}
        return {name: value for name, value in known.items() if value}

    # ---- details --------------------------------------------------------------------------------------------------

    def _refuse_another(self, run: Run) -> None:
        """SwanLab has one run at a time: beside the user's there is none for a trial, or to be continued."""
        if run.trial_name is not None or self.resume not in ("auto", "new", self._users_run.id):
            raise RuntimeError(
                "the run that is open is another one, and SwanLab has one at a time: swanlab.finish() it"
            )

    def _open_own(self, run: Run) -> Any:
        if self._ending is not None and not self._ending.done():  # it would take the connection with it
            raise TimeoutError("the run before is still being uploaded")
        if self._opened is None or not self._opened.alive:  # else an earlier try has come as far as this
            self._ending = None
            opening = partial(open_run, run, self._options(run))
            late = "It was opened too late."
            self._opened = within(START_SECONDS, opening, lambda made: end_run(made, "aborted", late))
        return self._opened

    def _options(self, run: Run) -> dict[str, Any]:
        group = encodable(str(run.args.get("run_name") or run.output_dir)) if run.trial_name else None
        is_never = self.resume_mode == "never" and run.tracker_id is None
        return {
            "mode": self.mode,
            "project": self.project,
            "workspace": self.workspace,
            "name": self.run_name,
            "description": self.description,
            "group": self.group or group,
            "job_type": self.job_type,
            "tags": list(self.tags) or None,
            "log_dir": self.log_dir,
            "id": None if is_never else run.tracker_id or run.id,
            "resume": self.resume_mode or "allow",
        }

    def _configure(self, values: Mapping[str, Any]) -> None:
        known = {encodable(key): plain(value) for key, value in values.items()}
        quietly(partial(self.run.config.update, known))

    def _add(self, values: Mapping[str, Any], step: int, time: float) -> None:
        for key in self._rows.add(values, step, time):
            message = "%s keeps the first value of a step: %s has one at step %d, and later ones are left out."
            self.warn_once(("late", key), message, self.name, key, step)
