"""Opening a run of trackio's: where it is kept, whether it is continued, and under which id."""

from __future__ import annotations

import logging
import time
from typing import Any, NamedTuple

from trackside import Run
from trackside.values import encodable
from trackside_trackio.active import note_reported
from trackside_trackio.plain import digest
from trackside_trackio.rows import STATUS
from trackside_trackio.space import ADDRESS, prepare, static_space, token_of_user
from trackside_trackio.store import Known, LocalStore, RemoteStore, Store, find

logger = logging.getLogger(__name__)

DEFAULT_PROJECT = "huggingface"
LIVE_SECONDS = 60


class Wanted(NamedTuple):
    """What the user wants, by options of the reporter, or by those that `TrainingArguments` of transformers have."""

    project: str
    name: str
    group: str | None
    server_url: str | None
    write_token: str | None
    space_id: str | None
    bucket_id: str | None
    private: bool | None
    static_space_id: str | None
    auto_log_gpu: bool
    auto_log_cpu: bool

    @classmethod
    def by(cls, reporter: Any, run: Run) -> Wanted:
        args, is_live = run.args, time.time() - run.time < LIVE_SECONDS
        project = reporter.project or run.project or DEFAULT_PROJECT
        search = str(args.get("run_name") or run.output_dir) if run.trial_name else None
        return cls(
            project=encodable(project),
            name=encodable(reporter.run_name or run.name),
            group=reporter.group or (search and encodable(search)),
            server_url=reporter.server_url or None,
            write_token=reporter.write_token,
            space_id=reporter.space_id or args.get("trackio_space_id"),
            bucket_id=reporter.bucket_id or args.get("trackio_bucket_id"),
            private=args.get("hub_private_repo") if reporter.private is None else reporter.private,
            static_space_id=static_space(reporter.static_space_id, args, project, run.id),
            # What a machine does while a run is replayed is not what it did during the training.
            auto_log_gpu=reporter.auto_log_gpu and is_live,
            auto_log_cpu=reporter.auto_log_cpu and is_live,
        )

    def place(self) -> Place:
        """Where that is; a Space is made if there is none."""
        if self.space_id is not None:
            return Place.of_space(self.space_id, self.bucket_id, self.private)
        return Place() if self.server_url is None else Place.of_server(self.server_url, self.write_token)


class Place(NamedTuple):
    """Where runs of a project are kept: at a server, in a Space, or, without both, on this machine."""

    server_url: str | None = None
    write_token: str | None = None
    space_id: str | None = None
    bucket_id: str | None = None

    @classmethod
    def of_server(cls, url: str, write_token: str | None) -> Place:
        """A server, by an address that may bring the token along."""
        from trackio.utils import parse_trackio_server_url

        base, token = parse_trackio_server_url(url)
        if not (token or write_token):
            raise RuntimeError(f"{base} needs a token; set TRACKIO_WRITE_TOKEN")
        return cls(server_url=base, write_token=token or write_token)

    @classmethod
    def of_space(cls, space_id: str, bucket_id: str | None, private: bool | None) -> Place:
        space, bucket = prepare(space_id, bucket_id, private)
        return cls(space_id=space, bucket_id=bucket)

    @classmethod
    def of_run(cls, run: Any) -> Place:
        """Where a run of the user's is kept, of which trackio has no public word."""
        return cls(run._server_base_url, run._write_token, run._space_id, run._bucket_id)

    def store(self) -> Store:
        if self.space_id is not None:
            return RemoteStore(self.space_id, hf_token=token_of_user())
        return LocalStore() if self.server_url is None else RemoteStore(self.server_url, self.write_token)

    @property
    def address(self) -> str | None:
        """What shows it in a browser."""
        return self.server_url if self.space_id is None else ADDRESS.format(self.space_id)


def continued(store: Store, project: str, run: Run, insisted: str) -> Known | None:
    """The run that is to be continued, unless this is a branch of it, or it is gone and nobody insists on it."""
    known = find(store, project, run.tracker_id or run.id)
    if run.tracker_id is None:  # then it is what an earlier try, or a replay, has made
        return known
    if run.tracker_id == insisted:
        if known is None:
            raise LookupError(f"there is no run {insisted} in the project {project}")
        return known
    if known is None:
        logger.warning("trackio has no run %s any more: another one is started.", run.tracker_id)
        return None
    is_past = 0 < run.step < (known.last_step or 0)
    return None if is_past and known.config.get(STATUS) == "finished" else known


def id_of_new(run: Run) -> str:
    """The same for each try to start a run; that of a branch is not that of its parent."""
    return run.id if run.tracker_id is None else digest(run.tracker_id, run.step, run.time)


def open_run(wanted: Wanted, place: Place, run_id: str, known: Known | None) -> Any:
    """A `trackio.Run`, made as `trackio.init` makes one, which takes no id."""
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    check = getattr(SQLiteStorage, "validate_project_name", None)  # of versions that keep more than one file for each
    if check is not None:
        check(wanted.project)

    class NamelessRun(trackio.Run):
        """Does not ask the Hub for the name of the user: that can last for minutes where there is no network."""

        def _get_username(self) -> None:
            return None

    run = NamelessRun(
        project=wanted.project,
        name=known.name if known and known.name else wanted.name,
        run_id=run_id,
        group=wanted.group,
        client=None,
        url=place.space_id or place.server_url,
        space_id=place.space_id,
        bucket_id=place.bucket_id,
        server_base_url=place.server_url,
        write_token=place.write_token,
        existing_runs=[],
        initial_last_step=-1 if known is None or known.last_step is None else known.last_step,
        auto_log_gpu=wanted.auto_log_gpu,
        auto_log_cpu=wanted.auto_log_cpu and trackio.cpu_available(),
    )
    note_reported(run)
    return run
