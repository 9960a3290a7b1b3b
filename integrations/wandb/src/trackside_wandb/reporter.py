"""The reporter that speaks to Weights & Biases, online or to a folder that `wandb sync` uploads later."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from trackside import Artifact, Limits, Point, Reporter, Run, Status, env
from trackside.mapping import Keys, cut
from trackside.records import new_id
from trackside.reporter import Configured
from trackside_wandb.account import OFFLINE, has_key, setting
from trackside_wandb.active import make_active, make_inactive, note_reported, run_of_user
from trackside_wandb.logbook import latest_summary
from trackside_wandb.plain import encodable, file_name, names, one_of, param_name, plain
from trackside_wandb.session import open_run, quiet
from trackside_wandb.watching import Watched

STEP = "train/global_step"
SENT_UNTIL = "trackside/sent_until"
EXIT_CODES = {"finished": 0, "failed": 1, "killed": 255, "pruned": 255}
ARTIFACT_NAMES = Limits(key=r"A-Za-z0-9_.\-", key_length=128)
MOST_METADATA = 100
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
    tags: Sequence[str] = env("WANDB_TAGS", (), names)
    notes: str | None = env("WANDB_NOTES")
    dir: str | None = env("WANDB_DIR")
    log_model: str = env("WANDB_LOG_MODEL", "false", one_of("false", "checkpoint", "end"))
    watch: str = env("WANDB_WATCH", "false", one_of("false", "gradients", "parameters", "all"))

    _open_run: Any = None
    _to_watch: tuple[Any, int] | None = None
    _watched: Watched | None = None
    _opened: Any = None
    _lateness: RuntimeError | None = None

    @property
    def takes_artifacts(self) -> bool:
        return self.log_model != "false"

    def configured(self) -> Configured:
        mode = "disabled" if self.disabled else self.mode or setting("mode")
        if mode in OFFLINE or has_key(self.base_url) or run_of_user() is not None:
            return Configured()
        return Configured(False, "it has no key; type: wandb login, or set WANDB_API_KEY, or WANDB_MODE=offline")

    # ---- in the training thread -----------------------------------------------------------------------------------

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        """See which run the user has open, and keep the model if it is watched. Who overrides this calls it."""
        self._open_run = run_of_user()
        self._to_watch = None if self.watch == "false" else (model, int(getattr(state, "logging_steps", 0)))

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, model=model, **kwargs)
        if self.takes_artifacts and self._is_told and state.global_step == 0:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "model_architecture.txt")
                file.write_text(encodable(str(model)), "utf-8")
                self._tell(state, Artifact(str(file), file.name, "file"))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.takes_artifacts and self._is_told:
            self._tell_of_final_model(args, state)
        self._unwatch()
        super().on_train_end(args, state, control, **kwargs)

    def on_exception(self, args: Any, state: Any, control: Any, exception: Any = None, **kwargs: Any) -> None:
        self._unwatch()
        super().on_exception(args, state, control, exception=exception, **kwargs)

    def attach(self) -> None:
        if self.run is None:
            return
        make_active(self.run)
        if self._to_watch is not None:
            self._watched, self._to_watch = Watched(self.run, *self._to_watch, self.watch), None

    def detach(self) -> None:
        self._unwatch()
        if not self.adopted:
            make_inactive(self.run)

    # ---- what is sent ---------------------------------------------------------------------------------------------

    def start(self, run: Run) -> str | None:
        if self._open_run is not None and not self._is_another(run):
            self.adopted, self.run = True, self._open_run
        else:
            self.run = self._opened = self._opened or self._create(run)
        self._about, self._latest, self._epoch = run, dict[str, Any](), 0.0
        self._is_gapless, self._lateness = True, None
        self._sent_before = self._sent_until(run)
        self.run.define_metric(STEP)
        self.run.define_metric("*", step_metric=STEP, step_sync=True)
        self._update_config({f"trackside/{key}": text for key, text in run.source.items()})
        if run.num_parameters is not None:
            self._update_config({"model/num_parameters": run.num_parameters})
        return None if self.run.disabled else str(self.run.id)

    def log_points(self, points: Sequence[Point]) -> None:
        """A row for each point, and a note of how far they have come, by which a replay sends none of them again."""
        try:
            for point in points:
                if point.time > self._sent_before:
                    self._latest.update(point.values)
                    self._epoch = point.epoch or self._epoch
                    self.run.log({**point.values, STEP: point.step, "_timestamp": point.time})
        except Exception:
            self._is_gapless = False  # from here on a replay has to send everything
            raise
        if self._is_gapless and points:
            self.run.summary.update({SENT_UNTIL: max(points[-1].time, self._sent_before)})

    def log_params(self, params: Mapping[str, Any]) -> None:
        """What a resumed run has otherwise than before is noted, old and new."""
        new = {param_name(key): plain(value) for key, value in params.items()}
        known = dict(self.run.config)
        changed = {key: [known[key], value] for key, value in new.items() if known.get(key, value) != value}
        if changed:
            new["trackside/changed_params"] = {**known.get("trackside/changed_params", {}), **changed}
        self._update_config(new)

    def log_summary(self, values: Mapping[str, int | float]) -> None:
        self._latest.update(values)
        self.run.summary.update(dict(values))

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        if time > self._sent_before:
            self.run.log({key: encodable(text), STEP: step, "_timestamp": time})

    def log_file(self, name: str, text: str) -> None:
        if not self.run.disabled:
            file = Path(self.run.dir, file_name(name))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(encodable(text), "utf-8")
            self.run.save(str(file), base_path=self.run.dir, policy="now")

    def log_artifact(self, artifact: Artifact) -> None:
        if self.run.disabled or (artifact.kind == "checkpoint" and self.log_model != "checkpoint"):
            return
        import wandb

        step, numbers = {"global_step": artifact.step}, self._latest.items()
        metadata = {key: plain(value) for key, value in islice(numbers, MOST_METADATA - len(step))} | step
        sent = wandb.Artifact(name=self._name_of_model(), type="model", metadata=metadata)
        for file, name in artifact.files():
            sent.add_file(file, name=name)
        aliases = {
            "checkpoint": [f"epoch_{round(self._epoch, 2)}", f"checkpoint_global_step_{artifact.step}"],
            "model": ["final_model"],
            "file": ["base_model"],
        }
        with quiet:
            self.run.log_artifact(sent, aliases=aliases[artifact.kind])

    def finish(self, status: Status) -> None:
        if status == "pruned":
            self.run.tags = (*(self.run.tags or ()), status)
        self._opened = None
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

    def _sent_until(self, run: Run) -> float:
        """The time until which the points of this run are known to be in it, if it is continued."""
        if run.tracker_id is None or self.adopted:
            return 0.0
        if self.run.offline:
            return latest_summary(self._folder(run), run.tracker_id, SENT_UNTIL) or 0.0
        return float(self.run.summary.get(SENT_UNTIL) or 0.0)

    def _update_config(self, values: Mapping[str, Any]) -> None:
        self.run.config.update(dict(values), allow_val_change=True)

    def _name_of_model(self) -> str:
        return Keys(ARTIFACT_NAMES)(f"model-{self.run.name if self._about.args.get('run_name') else self.run.id}")

    @property
    def _is_told(self) -> bool:
        session = self._session
        return session is not None and session.is_open and not session.has_ended

    def _tell(self, state: Any, artifact: Artifact) -> None:
        if self._session is not None:
            self._session.recorder.tell(self._session, "artifact", state, artifact)

    def _tell_of_final_model(self, args: Any, state: Any) -> None:
        """The best checkpoint if the loop ends with that, else the last one: what is saved already is sent."""
        is_best = getattr(args, "load_best_model_at_end", False) and state.best_model_checkpoint
        last = os.path.join(str(getattr(args, "output_dir", ".")), f"checkpoint-{state.global_step}")
        folder = os.path.abspath(state.best_model_checkpoint if is_best else last)
        if os.path.isdir(folder):
            self._tell(state, Artifact(folder, "model", "model", state.global_step))
        else:
            self.warn_once("model", "%s is to send the final model, but nothing was saved at %s.", self.name, folder)

    def _unwatch(self) -> None:
        self._to_watch = None
        if self._watched is not None:
            self._watched.end()
            self._watched = None
