"""The reporter that speaks to Weights & Biases, online or to a folder that `wandb sync` uploads later."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from trackside import Limits, Point, Reporter, Run, Status, env
from trackside.records import new_id
from trackside_wandb.active import make_active, make_inactive, note_reported, run_of_user
from trackside_wandb.plain import names, param_name, param_value
from trackside_wandb.session import open_run

STEP = "train/global_step"
EXIT_CODES = {"finished": 0, "failed": 1, "killed": 255, "pruned": 255}


class WandbCallback(Reporter):
    """Reports a run to Weights & Biases, with the optimizer step as a metric of its own.

    wandb's own step counts calls, also those of a user, and refuses to go back.
    """

    name = "wandb"
    sdk = "wandb"
    limits = Limits(text=10_000)

    resume: str = env("WANDB_RUN_ID", "auto")
    resume_mode: str | None = env("WANDB_RESUME")
    project: str | None = env("WANDB_PROJECT")
    entity: str | None = env("WANDB_ENTITY")
    mode: str | None = env("WANDB_MODE")
    disabled: bool = env("WANDB_DISABLED", False)
    dir: str | None = env("WANDB_DIR")
    run_name: str | None = env("WANDB_NAME")
    group: str | None = env("WANDB_RUN_GROUP")
    job_type: str | None = env("WANDB_JOB_TYPE")
    notes: str | None = env("WANDB_NOTES")
    tags: Sequence[str] = env("WANDB_TAGS", (), names)

    _open_run: Any = None
    _opened: Any = None

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        """See which run the user has open. Who overrides this calls it."""
        self._open_run = run_of_user()

    def start(self, run: Run) -> str:
        if self._open_run is not None and not self._is_another(run):
            self.adopted, self.run = True, self._open_run
        else:
            self.run = self._opened = self._opened or self._create(run)
        self.run.define_metric(STEP)
        self.run.define_metric("*", step_metric=STEP, step_sync=True)
        self.log_params({f"trackside/{key}": text for key, text in run.source.items()})
        return str(self.run.id)

    def log_points(self, points: Sequence[Point]) -> None:
        for point in points:
            self.run.log({**point.values, STEP: point.step, "_timestamp": point.time})

    def log_params(self, params: Mapping[str, Any]) -> None:
        values = {param_name(key): param_value(value) for key, value in params.items()}
        self.run.config.update(values, allow_val_change=True)

    def log_summary(self, values: Mapping[str, int | float]) -> None:
        self.run.summary.update(dict(values))

    def finish(self, status: Status) -> None:
        if status == "pruned":
            self.run.tags = (*(self.run.tags or ()), status)
        self.run.finish(exit_code=EXIT_CODES[status])

    def attach(self) -> None:
        if self.run is not None:
            make_active(self.run)

    def detach(self) -> None:
        make_inactive(self.run)

    def where(self) -> str | None:
        if self.run is None or self.run.disabled:
            return None
        folder = os.path.dirname(self.run.dir)
        return f"wandb sync {shlex.quote(folder)}" if self.run.offline else str(self.run.url)

    def _is_another(self, run: Run) -> bool:
        """Whether this run is not to be the one that the user has open."""
        return run.trial_name is not None or self.resume not in ("auto", "new", self._open_run.id)

    def _create(self, run: Run) -> Any:
        self.tracker_id = run.tracker_id or self.tracker_id or new_id()
        opened = open_run(
            run,
            id=self.tracker_id,
            resume=self.resume_mode or "allow",
            project=self.project or run.project or "huggingface",
            entity=self.entity,
            mode="disabled" if self.disabled else self.mode,
            dir=self.dir or run.output_dir,
            name=run.trial_name or self.run_name or run.name,
            group=(run.args.get("run_name") or run.output_dir) if run.trial_name else self.group,
            job_type=self.job_type,
            notes=self.notes,
            tags=self.tags or None,
        )
        note_reported(opened)
        return opened
