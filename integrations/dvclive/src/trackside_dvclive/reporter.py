"""The reporter that writes DVCLive's files."""

from __future__ import annotations

import errno
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from trackside import Artifact, Limits, Point, Reporter, Run, Status, env
from trackside_dvclive.models import copy_into, final_model, which_models
from trackside_dvclive.opening import continued, id_of_new, name_of, own_live, place_of
from trackside_dvclive.params import encodable, with_changes
from trackside_dvclive.summary import MARK, known_of, put_all
from trackside_dvclive.tables import METRICS, TEXTS, Row, Tables

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REFRESH_SECONDS = 5
REFRESH_SHARE = 0.05
LIVE_SECONDS = 60


class DVCLiveCallback(Reporter):
    """Reports a run to DVCLive: its rows are written here, all else by a `Live`, which is far too slow for each log."""

    name = "dvclive"
    sdk = "dvclive"
    limits = Limits(key=r"\w\-. ()\[\]{}@%+=,/", key_length=180, key_is_path=True)
    reopenable = True
    handles = ("users_live",)

    log_model: Literal["all"] | bool = env("HF_DVCLIVE_LOG_MODEL", False, which_models)
    dir: str | None = env(None)
    dvcyaml: str | bool | None = env(None)
    save_dvc_exp: bool | None = env(None)
    exp_name: str | None = env("DVC_EXP_NAME")
    exp_message: str | None = env(None)
    report: Literal["md", "notebook", "html"] | None = env(None)
    monitor_system: bool = env(None, False)

    users_live: Any = None
    """A `dvclive.Live` that the user has opened: it is logged to and never ended."""

    def __init__(self, live: Any = None, log_model: Literal["all"] | bool | None = None, **options: Any) -> None:
        super().__init__(**options)
        if live is not None:
            self.users_live = live
        if log_model is not None:
            self.log_model = log_model

    @property
    def takes_artifacts(self) -> bool:
        return bool(self.log_model)

    # ---- in the training thread -----------------------------------------------------------------------------------

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        session = self._session
        if session is not None and session.is_open and not session.has_ended and self.log_model is True:
            model = final_model(args, state)
            if model is None:
                self.warn_once("model", "%s: no checkpoint was saved that could be kept.", self.name)
            else:
                session.recorder.tell(session, "artifact", state, model)
        super().on_train_end(args, state, control, **kwargs)

    # ---- of the tracker -------------------------------------------------------------------------------------------

    def start(self, run: Run) -> str:
        if self.log_model not in (True, False, "all"):
            raise ValueError(f'log_model takes "all", True or False, not {self.log_model!r}')
        if run.tracker_id is not None:  # a path, as the user has typed it
            run = replace(run, tracker_id=os.path.abspath(run.tracker_id))
        self._about = run
        self._latest: dict[str, int | float] = {}
        self._params_before: Mapping[str, Any] = {}
        is_reopened = self.tracker_id is not None
        self.adopted = self.users_live is not None
        folder = self._adopt() if self.adopted else self._open_own(run)
        self._tables = {name: Tables(os.path.join(folder, name)) for name in (METRICS, TEXTS)}
        self._cut(run, is_resumed=folder == run.tracker_id and not is_reopened)
        self.run.step = run.step
        self._refresh()
        return folder

    def log_points(self, points: Sequence[Point]) -> None:
        self._refresh_if_due()
        self._tables[METRICS].add(
            Row(key, point.step, point.time, value) for point in points for key, value in point.values.items()
        )
        for point in points:
            self._latest.update(point.values)
        self.run.step = points[-1].step

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        self._tables[TEXTS].add([Row(key, step, time, encodable(text))])

    def log_params(self, params: Mapping[str, Any]) -> None:
        about = self._about.origin(os.path.abspath(self.run.dir))
        self.run.log_params(with_changes({**params, **about}, self._params_before))

    def log_summary(self, values: Mapping[str, int | float]) -> None:
        self._latest.update(values)
        self._write_summary()

    def log_artifact(self, artifact: Artifact) -> None:
        """A copy in the run's folder, which DVC takes into its cache where there is one: checkpoints come and go."""
        if artifact.kind == "checkpoint" and self.log_model != "all":
            return
        copy = copy_into(self.run.artifacts_dir, artifact)
        if self.run._dvc_repo is not None:
            self.run.log_artifact(copy, type="model", name=artifact.name)

    def flush(self) -> Any:
        """Rows are in their files already; where those end."""
        self._refresh_if_due()
        self._write_summary()
        position = {name: tables.position() for name, tables in self._tables.items()}
        for tables in self._tables.values():
            tables.close()
        return None if self.adopted else position

    def finish(self, status: Status) -> None:
        self.run.summary[MARK]["status"] = status
        self._write_summary()
        self.run.end()

    def where(self) -> str | None:
        return None if self.run is None else f"dvc plots show -x step {shlex.quote(self._tables[METRICS].folder)}"

    def is_passing(self, error: Exception) -> bool:
        """A full disk may have room again."""
        return getattr(error, "errno", None) in FULL or super().is_passing(error)

    # ---- details --------------------------------------------------------------------------------------------------

    def _adopt(self) -> str:
        from dvclive import Live

        if not isinstance(self.users_live, Live):
            raise TypeError(f"live takes a dvclive.Live, not {self.users_live!r}")
        self.run = self.users_live
        return os.path.abspath(self.run.dir)

    def _open_own(self, run: Run) -> str:
        """Open a new run, or the one that is to be continued."""
        holds = continued(run, self.resume)
        known = known_of(holds) if holds else {}
        run_id = known.get("run") or id_of_new(run)
        place = place_of(run, run_id, holds or self.dir, holds is not None, self.save_dvc_exp)
        self.run = own_live()(
            place if self.dvcyaml in (None, True) else place._replace(dvcyaml=self.dvcyaml),
            known.get("experiment"),
            resume=holds is not None,
            exp_name=None if known.get("experiment") else self.exp_name or name_of(run),
            exp_message=self.exp_message,
            report=self.report,
            monitor_system=self.monitor_system and abs(time.time() - run.time) < LIVE_SECONDS,
        )
        self._params_before = self.run.recall() if holds else {}
        self.run.summary[MARK] = {"run": run_id, **self.run.experiment, "status": "running"}
        return os.path.abspath(self.run.dir)

    def _cut(self, run: Run, is_resumed: bool) -> None:
        """Remove the rows that are going to be written again."""
        for name, tables in self._tables.items():
            if run.position:
                tables.cut_back(run.position[name])
            elif is_resumed and run.step > 0:
                tables.cut_after(run.step)

    def _write_summary(self) -> None:
        put_all(self.run.summary, self._latest)
        self._latest.clear()
        self.run.make_summary()

    def _refresh_if_due(self) -> None:
        if self._latest and time.monotonic() > self._refresh_at:
            self._refresh()

    def _refresh(self) -> None:
        """Let DVC, a report and Studio see what there is by now; it takes milliseconds, or seconds in a long run."""
        begin = time.monotonic()
        self._write_summary()
        step = self.run.step
        self.run.next_step()
        self.run.step = step
        end = time.monotonic()
        self._refresh_at = end + max(REFRESH_SECONDS, (end - begin) / REFRESH_SHARE)
