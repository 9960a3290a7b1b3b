"""Opening a run of trackio's: where it is kept, whether it is continued, and under which id."""

from __future__ import annotations

import logging
import time
from typing import Any, NamedTuple

from trackside import Run
from trackside.values import flatten
from trackside_trackio.plain import digest
from trackside_trackio.rows import STATUS
from trackside_trackio.space import ADDRESS, prepare, token_of_user
from trackside_trackio.store import Known, LocalStore, RemoteStore, Store, find

logger = logging.getLogger(__name__)

LIVE_SECONDS = 60


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
        """A Space, which is made if there is none."""
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
    if run.tracker_id is None:
        return None
    known = find(store, project, run.tracker_id)
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


def open_run(place: Place, about: dict[str, Any], last_step: int | None, measures: dict[str, bool]) -> Any:
    """A `trackio.Run`, made as `trackio.init` makes one, which takes no id.

    Args:
        about: `project`, `name`, `run_id` and `group`.
        last_step: of the run if it is continued.
        measures: `auto_log_gpu` and `auto_log_cpu`.
    """
    import trackio

    class NamelessRun(trackio.Run):
        """Does not ask the Hub for the name of the user: that can last for minutes where there is no network."""

        def _get_username(self) -> None:
            return None

    return NamelessRun(
        **about,
        client=None,
        url=place.space_id or place.server_url,
        space_id=place.space_id,
        bucket_id=place.bucket_id,
        server_base_url=place.server_url,
        write_token=place.write_token,
        existing_runs=[],
        initial_last_step=-1 if last_step is None else last_step,
        auto_log_gpu=measures["auto_log_gpu"],
        auto_log_cpu=measures["auto_log_cpu"] and trackio.cpu_available(),
    )


def origin(run: Run, run_id: str) -> dict[str, Any]:
    """What a config says of where a run comes from, and which trial it is."""
    about = {"run": run.id, **run.source}
    if run.tracker_id not in (None, run_id):
        about["continues"] = str(run.tracker_id)
    config: dict[str, Any] = {f"trackside/{key}": text for key, text in about.items()}
    if run.trial_name is not None:
        config["trial/name"] = run.trial_name
        config |= {f"trial/{key}": value for key, value in flatten(run.trial_params or {}).items()}
    return config if run.num_parameters is None else {**config, "model/num_parameters": run.num_parameters}


def is_live(run: Run) -> bool:
    """Whether a run begins now: what a machine does while it is replayed is not what it did during the training."""
    return time.time() - run.time < LIVE_SECONDS
