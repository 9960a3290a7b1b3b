"""The reporter that speaks to Trackio: its database on this machine, a server, or a Space."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from trackside import Artifact, Limits, Point, Reporter, Run, Status, env
from trackside.deadline import within
from trackside.delivery import reason_of
from trackside.reporter import Configured
from trackside_trackio.active import make_active, run_of_user, settle
from trackside_trackio.opening import Place, Wanted, continued, id_of_new, open_run
from trackside_trackio.plain import NO_SURROGATES, utc
from trackside_trackio.quiet import hold_prints, quietly
from trackside_trackio.rows import STATUS, Rows
from trackside_trackio.space import freeze, has_token, publish, tag
from trackside_trackio.store import Known, find

ALERTS = {"failed": "error", "killed": "warn"}
START_SECONDS = 60  # the making of a Space included
FINISH_SECONDS = 45  # trackio itself gives up after 30
PUBLISH_SECONDS = 300


class TrackioCallback(Reporter):
    """Reports a run to Trackio as rows that it takes once each, under the loop's own steps and times."""

    name = "trackio"
    sdk = "trackio"
    limits = Limits(key=NO_SURROGATES, points_per_call=10_000)
    reopenable = True

    project: str | None = env("TRACKIO_PROJECT")
    run_name: str | None = env(None)
    group: str | None = env(None)
    server_url: str | None = env("TRACKIO_SERVER_URL")
    write_token: str | None = env("TRACKIO_WRITE_TOKEN")
    space_id: str | None = env("TRACKIO_SPACE_ID")
    bucket_id: str | None = env("TRACKIO_BUCKET_ID")
    static_space_id: str | bool | None = env(None)
    private: bool | None = env(None)
    log_artifacts: bool = env(None, False)
    auto_log_gpu: bool = env(None, True)
    auto_log_cpu: bool = env(None, True)

    _users_run: Any = None
    _opened: Any = None
    _undo: Callable[[], None] | None = None
    _shown_by: str | None = None

    @property
    def takes_artifacts(self) -> bool:
        return self.log_artifacts

    def configured(self) -> Configured:
        if self.space_id:
            return Configured() if has_token() else Configured(False, "a Space needs a token; type: hf auth login")
        if self.server_url and not self.write_token and "write_token=" not in self.server_url:
            return Configured(False, "its server needs a token; set TRACKIO_WRITE_TOKEN")
        return Configured()

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        """See which run the user has open, which only his thread can tell. Who overrides this calls it."""
        self._users_run = run_of_user()

    def import_sdk(self) -> None:
        super().import_sdk()
        hold_prints()

    def start(self, run: Run) -> str:
        self._wanted = Wanted.by(self, run)
        self.adopted = self._users_run is not None and not self._is_another(run)
        opening = self._adopt if self.adopted else partial(self._open_own, run)
        known = within(START_SECONDS, quietly(opening))
        self._shown_by = self._place.address or f"trackio show --project {shlex.quote(self.run.project)}"
        self._rows = Rows(self.run, self._store, run, known)
        about = run.origin(self.run.id)
        self._rows.configure(about if self.adopted else {**about, STATUS: "running"})
        return str(self.run.id)

    def log_points(self, points: Sequence[Point]) -> None:
        self._rows.add(points)

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        from trackio import Markdown

        self._rows.add_value(key, {"_type": Markdown.TYPE, "_value": text}, step, time)

    def log_params(self, params: Mapping[str, Any]) -> None:
        self._rows.add_params(params)

    def log_artifact(self, artifact: Artifact) -> None:
        """A version of one artifact of the run, which its alias names."""
        import trackio

        name = f"{_clean(self.run.name)}-{str(self.run.id)[:6]}-{artifact.kind}"
        sent = trackio.Artifact(name, type=artifact.kind, metadata={"step": artifact.step})
        for path, inner in artifact.files():
            sent.add_file(path, name=inner)
        self.run.log_artifact(sent, aliases=[_clean(artifact.name)])

    def flush(self) -> None:
        """Nothing waits here: each call returns when the database or the server has what it brings."""

    def finish(self, status: Status) -> None:
        """Trackio knows no status: a word in the config, and an alert, which also goes to the webhook of the user."""
        run, wanted, space_id, self._opened = self.run, self._wanted, self._place.space_id, None
        if status in ALERTS and status not in (run.config.get(STATUS), self._rows.status_before):
            self._alert(status)
        self._rows.configure({STATUS: status})
        within(FINISH_SECONDS, quietly(run.finish))
        self._rows.configure({})  # once more, since a row of the user's may have brought the config of before
        if space_id is not None and (static := wanted.static_space_id) is not None:
            self._publish(lambda: freeze(space_id, run.project, static, wanted.private))

    def attach(self) -> None:
        if self.run is not None:
            self._undo = make_active(self.run)

    def detach(self) -> None:
        if self._undo is not None:
            self._undo()
            self._undo = None

    def on_push_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Publish a project of this machine in a static Space, if the user wants one, and name it on the card."""
        if self._session is None:
            return
        wanted = Wanted.by(self, self._session.recorder.run)
        if wanted.static_space_id is None or wanted.server_url or wanted.space_id:
            return
        project, static, bucket_id = wanted.project, wanted.static_space_id, wanted.bucket_id
        published = self._publish(lambda: publish(project, static, bucket_id, wanted.private))
        if published is not None and model is not None:
            tag(model, published)

    def where(self) -> str | None:
        return self._shown_by

    def place(self) -> Mapping[str, Any]:
        """What arguments of the loop or the run of the user have chosen."""
        if self.run is None:
            return {}
        known = {"project": self.run.project, **self._place._asdict()}
        return {name: value for name, value in known.items() if value is not None and name != "write_token"}

    def is_passing(self, error: Exception) -> bool:
        """A database that others are writing to is free again some time."""
        return "database is locked" in str(error) or super().is_passing(error)

    # ---- details --------------------------------------------------------------------------------------------------

    def _is_another(self, run: Run) -> bool:
        """Whether this run is not to be the one that the user has open."""
        return run.trial_name is not None or self.resume not in ("auto", "new", self._users_run.id)

    def _adopt(self) -> Known | None:
        self.run = self._users_run
        settle(self.run)
        self._place = Place.of_run(self.run)
        self._store = self._place.store()
        return find(self._store, self.run.project, self.run.id)

    def _open_own(self, run: Run) -> Known | None:
        """Open a new run, or the one that is to be continued, which is returned as it was."""
        self._place = self._wanted.place()
        self._store = self._place.store()
        known = continued(self._store, self._wanted.project, run, self.resume)
        run_id = id_of_new(run) if known is None else known.id
        if self._opened is None or self._opened.id != run_id:  # else an earlier try has come as far as this
            self._opened = open_run(self._wanted, self._place, run_id, known)
        self.run = self._opened
        self.run.config.update(known.config if known else {"_Created": utc(run.time)})
        return known

    def _alert(self, status: Status) -> None:
        from trackio import AlertLevel

        level, step = AlertLevel(ALERTS[status]), self._rows.last_step
        quietly(partial(self.run.alert, f"Training {status}", level=level, step=step))()

    def _publish(self, action: Callable[[], Any]) -> Any:
        """What `action` returns; None, with a warning, where it fails."""
        try:
            self.import_sdk()
            return within(PUBLISH_SECONDS, quietly(action))
        except Exception as error:
            self.warn_once("publish", "%s: the project was not published (%s).", self.name, reason_of(error))


def _clean(name: str) -> str:
    """A name as artifacts and their aliases have one."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)
