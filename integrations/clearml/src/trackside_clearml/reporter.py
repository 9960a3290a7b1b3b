"""The reporter that speaks to a ClearML server, or keeps a session on this machine."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trackside import Artifact, Limits, Point, Reporter, Run, Status, env
from trackside.reporter import Configured
from trackside_clearml.models import Models, best_of, upload
from trackside_clearml.server import Server, ServerError
from trackside_clearml.settings import is_configured, switch
from trackside_clearml.tasks import close_task, is_open, open_task, session_of, task_of_agent, task_of_user

ABOUT = "trackside"
"""The section of parameters that says what reports to a task."""
SINGLE_VALUES = "Summary", -(2**31)  # the title and the iteration under which ClearML shows them
FLOAT32_MAX = 3.4028234663852886e38


class ClearMLCallback(Reporter):
    """Reports a run to a ClearML task: one of its own, or the one that the user has open, in a section per run."""

    name = "clearml"
    sdk = "clearml"
    limits = Limits(key_length=8000, param_value=10_000, points_per_call=1000, text=1_000_000)
    reopenable = True

    project_name: str | None = env("CLEARML_PROJECT")
    task_name: str | None = env("CLEARML_TASK")
    log_model: bool = env("CLEARML_LOG_MODEL", False)
    output_uri: Any = env("CLEARML_DEFAULT_OUTPUT_URI", True, str)
    offline: bool = env("CLEARML_OFFLINE_MODE", False, switch)
    task_init: Mapping[str, Any] = env(None, {})

    _users_task: Any = None
    _shown_by: str | None = None

    @property
    def takes_artifacts(self) -> bool:
        return self.log_model

    def configured(self) -> Configured:
        if self.offline or is_configured():
            return Configured()
        missing = "there is no clearml.conf and no CLEARML_API_ACCESS_KEY"
        return Configured(False, f"{missing}; type clearml-init, or set CLEARML_OFFLINE_MODE=1")

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        """See which task the user has open in this process. An override calls super()."""
        self._users_task = task_of_user()

    def start(self, run: Run) -> str:
        from clearml import Task

        if self.offline and self._users_task is None:
            Task.set_offline(True)
        self._about, self._server = run, Server()
        given = self._users_task or (None if Task.running_locally() else task_of_agent())
        wanted = self.tracker_id or (None if self.resume in ("auto", "new") else self.resume)
        if given is not None and wanted not in (None, given.id):
            raise RuntimeError(f"a task is open in this program; close it to continue {wanted}")
        self.adopted = given is not None
        self.run = self._task = given or self._own_task(run)
        self.tracker_id = str(self._task.id)
        self._events = self._server.events_of(self._task)
        if run.position is not None:
            self._events.cut_back(run.position)
        self._suffix = self._suffix_of(run) if self.adopted else ""
        self._shown_by = self._command_to_import() if Task.is_offline() else self._task.get_output_log_web_page()
        self._describe({"run": run.id, **run.source, **({} if self.adopted else {"status": "running"})})
        return self.tracker_id

    def log_points(self, points: Sequence[Point]) -> None:
        """One request under the loop's own times and iterations."""
        events = []
        for point in points:
            for key, number in point.values.items():
                title, series = self._title_and_series(key)
                if self._is_drawn(number):
                    events.append(self._events.scalar(title, series, float(number), int(point.step), point.time))
                else:
                    events.append(self._events.line(f"{title}/{series} is {number} at step {point.step}", point.time))
        self._events.add(events)

    def log_summary(self, values: Mapping[str, int | float]) -> None:
        title, iteration = SINGLE_VALUES
        events = []
        for key, number in values.items():
            name = self._title_and_series(key)[1] + self._suffix
            if self._is_drawn(number):
                events.append(self._events.scalar(title, name, float(number), iteration))
            else:
                events.append(self._events.line(f"{name} is {number}"))
        self._events.add(events)

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        title, series = self._title_and_series(key)
        self._events.add([self._events.line(f"{title}/{series} at step {step}: {text}", time)])

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Arguments as parameters; the configs of the model as they are. What a resumed run has changed is a line."""
        args = {key: value for key, value in params.items() if key.partition("/")[0] in self._about.args}
        section = f"Transformers{self._suffix}"
        values = {f"{section}/{key}": "None" if value is None else value for key, value in args.items()}
        before = self._task.get_parameters() or {}
        self._task.update_parameters(values)
        after = self._task.get_parameters()
        changed = [name for name in values if name in before and before[name] != after[name]]
        step = self._about.step
        self._events.add(
            [self._events.line(f"{name} was {before[name]}, is {after[name]} from step {step}") for name in changed]
        )
        for title, config in (("Model", self._about.model_config), ("PEFT", self._about.peft_config)):
            if config:
                text = json.dumps(config, indent=2)
                self._task.set_configuration_object(f"{title} Configuration{self._suffix}", text, config_type="json")

    def log_artifact(self, artifact: Artifact) -> None:
        limit = self._about.args.get("save_total_limit")
        models = Models(self._server, self._task, self._suffix, self.output_uri)
        models.add(artifact)
        if limit:
            models.rotate(limit, best_of(artifact))

    def log_file(self, name: str, text: str) -> None:
        with TemporaryDirectory() as folder:
            file = Path(folder, os.path.basename(name))
            file.write_text(text, "utf-8", "replace")
            upload(self._task, name + self._suffix, file)

    def flush(self) -> int | None:
        """Nothing waits here: the server has it, or the file of the session, up to where that ends."""
        return None if self.adopted else self._events.position()

    def finish(self, status: Status) -> None:
        """Closing completes a task, unless its server fails; its true status is told afterwards."""
        if is_open(self._task):
            self._describe({"status": status})
            close_task(self._task)
        self._server.end(self.tracker_id, status)

    def where(self) -> str | None:
        return self._shown_by

    def is_passing(self, error: Exception) -> bool:
        """The SDK keeps what its server has answered within its own error."""
        answer = getattr(error, "result", None)
        code = getattr(getattr(answer, "meta", None), "result_code", None)
        return super().is_passing(error if code is None else ServerError(code, str(error)))

    def _own_task(self, run: Run) -> Any:
        """A task of our own: a new one, or the one that the run has had before."""
        wanted = self.tracker_id or run.tracker_id
        if wanted is not None and not self._can_be_continued(wanted, run):
            if wanted == self.resume:
                raise LookupError(f"there is no task {wanted} that could be continued")
            self.warn_once("gone", "%s has no task %s to continue: another one is started.", self.name, wanted)
            wanted = None
        name = self.task_name or run.name
        options = {
            "project_name": self.project_name or run.project or "HuggingFace Transformers",
            "task_name": f"{name}-{run.trial_name}" if self.task_name and run.trial_name else name,
            "output_uri": self.output_uri if self.log_model else None,
            **self.task_init,
        }
        return open_task(run.id, wanted, _folder(run), options)

    def _can_be_continued(self, task_id: str, run: Run) -> bool:
        from clearml import Task

        if Task.is_offline():
            return session_of(task_id, _folder(run)).is_dir()
        return self._server.can_continue(task_id)

    def _suffix_of(self, run: Run) -> str:
        """What tells this run from others in a task of the user's: nothing in the first one, `_2` in the second."""
        parameters = self._task.get_parameters() or {}
        suffixes = ("" if number == 1 else f"_{number}" for number in count(1))
        return next(suffix for suffix in suffixes if parameters.get(f"{ABOUT}/run{suffix}", run.id) == run.id)

    def _describe(self, about: Mapping[str, str]) -> None:
        self._task.update_parameters({f"{ABOUT}/{name}{self._suffix}": text for name, text in about.items()})

    def _is_drawn(self, number: float) -> bool:
        """Whether it is a number of 32 bits: the SDK makes 0 of what is not finite, a server refuses what is larger."""
        is_drawn = abs(number) <= FLOAT32_MAX
        if not is_drawn:
            self.warn_once("drawn", "%s draws no nan, infinity or 1e39: the console of the task says where.", self.name)
        return is_drawn

    def _title_and_series(self, key: str) -> tuple[str, str]:
        """`eval/loss` is the series `loss` of the plot `eval`; a name without a slash has a plot of its own."""
        title, _, series = key.partition("/")
        return title + self._suffix, series or key

    def _command_to_import(self) -> str:
        session = f"{self._task.get_offline_mode_folder()}.zip"
        code = f"import clearml; clearml.Task.import_offline_session({session!r})"
        return f"python -c {shlex.quote(code)}" if '"' in code or "$" in code else f'python -c "{code}"'


def _folder(run: Run) -> str:
    """Of the sessions that run offline; the underscore keeps it out of a push to the Hub."""
    return os.path.join(run.output_dir, "_clearml")
