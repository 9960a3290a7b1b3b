"""The reporter that speaks to Weights & Biases, online or to a folder that `wandb sync` uploads later."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trackside import Artifact, Limits, Point, Reporter, Run, Status, env
from trackside.delivery import reason_of
from trackside.mapping import Keys, cut
from trackside.options import options_of, words
from trackside.records import argument, new_id
from trackside.reporter import Configured
from trackside.values import encodable
from trackside_wandb.account import NEEDS_NO_KEY, has_key, setting
from trackside_wandb.active import make_active, make_inactive, note_reported, run_of_user
from trackside_wandb.logbook import latest_value
from trackside_wandb.models import SavedModel, final_model, name_of, write_architecture
from trackside_wandb.plain import file_name, one_of, param_name, plain
from trackside_wandb.rows import LOGGED_AT, Rows
from trackside_wandb.session import open_run, quiet
from trackside_wandb.watching import Watched

EXIT_CODES = {"finished": 0, "failed": 1, "killed": 255, "pruned": 255}
LONGEST_TAG = 64


class WandbCallback(Reporter):
    """Reports a run to Weights & Biases, with the optimizer step as a metric of its own.

    wandb's own step counts calls, also those of a user, and does not go back.
    """

    name = "wandb"
    sdk = "wandb"
    limits = Limits(text=10_000)

    resume: str = env("WANDB_RUN_ID", "auto")
    resume_mode: str | None = env("WANDB_RESUME")
    mode: str | None = env("WANDB_MODE")
    disabled: bool = env("WANDB_DISABLED", False)
    base_url: str | None = env("WANDB_BASE_URL")
    entity: str | None = env("WANDB_ENTITY")
    project: str | None = env("WANDB_PROJECT")
    run_name: str | None = env("WANDB_NAME")
    group: str | None = env("WANDB_RUN_GROUP")
    job_type: str | None = env("WANDB_JOB_TYPE")
    tags: Sequence[str] = env("WANDB_TAGS", (), words)
    notes: str | None = env("WANDB_NOTES")
    dir: str | None = env("WANDB_DIR")
    log_model: str = env("WANDB_LOG_MODEL", "false", one_of("false", "checkpoint", "end"))
    watch: str = env("WANDB_WATCH", "false", one_of("false", "gradients", "parameters", "all"))

    _open_run: Any = None
    _watched: Watched | None = None
    _opened: Any = None
    _lateness: RuntimeError | None = None

    @property
    def takes_artifacts(self) -> bool:
        return self.log_model != "false" and self.mode != "disabled" and not self.disabled

    def configured(self) -> Configured:
        self._read_options()
        mode = "disabled" if self.disabled else self.mode or setting("mode")
        if mode == "disabled" and not self.required:
            return Configured(False, "WANDB_DISABLED or WANDB_MODE switches it off")
        if mode in NEEDS_NO_KEY or has_key(self.base_url) or run_of_user() is not None:
            return Configured()
        return Configured(False, "it has no key; type: wandb login, or set WANDB_API_KEY, or WANDB_MODE=offline")

    # ---- in the training thread -----------------------------------------------------------------------------------

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        """See which run the user has open, and keep the model if it is watched. An override calls super()."""
        self._open_run = run_of_user()
        with suppress(ValueError):  # a word that nobody knows, which the start refuses
            self._watched = None if self.watch == "false" else Watched(model, self.watch, int(state.logging_steps))

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, model=model, **kwargs)
        if self._is_told and self.takes_artifacts and state.global_step == 0:
            try:
                self._tell(state, write_architecture(model, str(argument(args, "output_dir") or ".")))
            except Exception as error:  # a full disk, a model that cannot be printed
                self.warn_once("architecture", "%s: the architecture is not sent (%s).", self.name, reason_of(error))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The final model follows the end, which all reporters are told of."""
        session = self._session if self._is_told and self.takes_artifacts else None
        self._unwatch()
        super().on_train_end(args, state, control, **kwargs)
        if session is not None:
            self._tell(state, final_model(args, state))
            session.recorder.drain(session)

    def on_exception(self, args: Any, state: Any, control: Any, exception: Any = None, **kwargs: Any) -> None:
        self._unwatch()
        super().on_exception(args, state, control, exception=exception, **kwargs)

    def attach(self) -> None:
        if self.run is None:
            return
        make_active(self.run)
        if self._watched is not None:
            self._watched.begin(self.run)

    def detach(self) -> None:
        self._unwatch()
        if not self.adopted:
            make_inactive(self.run)

    # ---- what is sent ---------------------------------------------------------------------------------------------

    def start(self, run: Run) -> str | None:
        self._read_options()
        if self._open_run is not None and not self._is_another(run):
            self.adopted, self.run = True, self._open_run
        else:
            self.run = self._opened = self._opened or self._create(run)
        self._about, self._lateness = run, None
        self._rows = Rows(self.run, self._latest_row_of(run))
        self._update_config({f"trackside/{key}": text for key, text in run.source.items()})
        if run.num_parameters is not None:
            self._update_config({"model/num_parameters": run.num_parameters})
        if self.run.disabled:
            self.warn_once("off", "%s is switched off by WANDB_DISABLED or WANDB_MODE; nothing is sent.", self.name)
            return None
        return str(self.run.id)

    def log_points(self, points: Sequence[Point]) -> None:
        for point in points:
            self._rows.add(point)

    def log_params(self, params: Mapping[str, Any]) -> None:
        """What a resumed run has otherwise than before is noted, old and new."""
        new = {param_name(key): plain(value) for key, value in params.items()}
        known = dict(self.run.config)
        changed = {key: [known[key], value] for key, value in new.items() if known.get(key, value) != value}
        if changed:
            new["trackside/changed_params"] = {**known.get("trackside/changed_params", {}), **changed}
        self._update_config(new)

    def log_summary(self, values: Mapping[str, int | float]) -> None:
        self.run.summary.update(dict(values))

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        self._rows.add_text(key, encodable(text), step, time)

    def log_file(self, name: str, text: str) -> None:
        if not self.run.disabled:
            file = Path(self.run.dir, file_name(name))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(encodable(text), "utf-8")
            self.run.save(str(file), base_path=self.run.dir, policy="now")

    def log_artifact(self, artifact: Artifact) -> None:
        if self.run.disabled or (artifact.kind == "checkpoint" and self.log_model != "checkpoint"):
            return
        model = SavedModel(artifact)
        sent = model.as_artifact(name_of(self._about, self.run), Keys(self.limits, self.key_style))
        with quiet:
            self.run.log_artifact(sent, aliases=model.aliases)

    def finish(self, status: Status) -> None:
        if status == "pruned":
            self.run.tags = (*(self.run.tags or ()), status)
        self._opened = None
        if self.run.disabled:
            return
        try:
            with quiet:
                self.run.finish(exit_code=EXIT_CODES[status])
        except TimeoutError:
            self._lateness = RuntimeError("the server did not take all of it in time")
        if self._lateness is not None:  # once more it would end at once, and seem to be all right
            raise self._lateness

    def where(self) -> str | None:
        if self.run is None or self.run.disabled:
            return None
        folder = os.path.dirname(self.run.dir)
        return f"wandb sync {shlex.quote(folder)}" if self.run.offline else str(self.run.url)

    def place(self) -> Mapping[str, Any]:
        """The server and the project, which wandb's own files of settings may have chosen."""
        if self.run is None or self.run.disabled:
            return {}
        known = {"project": self.run.project, "entity": self.run.entity, "base_url": self.run.settings.base_url}
        return {name: value for name, value in known.items() if value}

    def is_passing(self, error: Exception) -> bool:
        """Which answers of the server are final, wandb says in words."""
        if type(error).__name__ == "CommError":
            refusal = re.search(r"\b4\d\d\b", str(error))
            return refusal is None or refusal[0] in ("408", "429")
        return super().is_passing(error)

    # ---- details --------------------------------------------------------------------------------------------------

    def _read_options(self) -> None:
        """Raise for a variable that is not understood, before anything depends on it."""
        for name in options_of(type(self)):
            getattr(self, name)

    def _is_another(self, run: Run) -> bool:
        """Whether this run is not to be the one that the user has open."""
        return run.trial_name is not None or self.resume not in ("auto", "new", self._open_run.id)

    def _create(self, run: Run) -> Any:
        opened = open_run(
            run,
            self.base_url,
            id=run.tracker_id or (None if self.resume_mode == "auto" else new_id()),
            resume=self.resume_mode or "allow",
            mode="disabled" if self.disabled else self.mode,
            entity=self.entity,
            project=self.project or run.project or "huggingface",
            name=encodable(run.trial_name or self.run_name or run.name),
            group=encodable(run.args.get("run_name") or run.output_dir) if run.trial_name else self.group,
            job_type=self.job_type,
            tags=[cut(tag, LONGEST_TAG) for tag in self.tags] or None,
            notes=self.notes,
            dir=self._folder(run),
        )
        note_reported(opened)
        return opened

    def _folder(self, run: Run) -> str:
        return os.path.abspath(self.dir or run.output_dir)

    def _latest_row_of(self, run: Run) -> float | None:
        """When the loop has logged the latest row that a continued run is known to have."""
        if run.tracker_id is None or self.adopted:
            return None
        if self.run.offline:
            return latest_value(self._folder(run), run.tracker_id, LOGGED_AT)
        return self.run.summary.get(LOGGED_AT)

    def _update_config(self, values: Mapping[str, Any]) -> None:
        self.run.config.update(dict(values), allow_val_change=True)

    @property
    def _is_told(self) -> bool:
        """Whether what happens in the training now is reported, by this process."""
        session = self._session
        is_open = session is not None and session.is_open and not session.has_ended
        return is_open and not self._is_inherited

    def _tell(self, state: Any, artifact: Artifact) -> None:
        """Record an artifact of the training, in the loop's own thread."""
        if not os.path.exists(artifact.path):
            self.warn_once(artifact, "%s: nothing was saved at %s that could be sent.", self.name, artifact.path)
        elif self._session is not None:
            self._session.recorder.tell(self._session, "artifact", state, artifact)

    def _unwatch(self) -> None:
        watched, self._watched = self._watched, None
        try:
            if watched is not None:
                watched.end()
        except Exception as error:  # somebody has taken some of the hooks off
            self.warn_once("watch", "%s: the model is still watched (%s).", self.name, reason_of(error))
