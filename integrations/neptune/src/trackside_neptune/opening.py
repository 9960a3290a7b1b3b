"""Opening a run: a new one, one that is continued, or the one that a user has opened."""

from __future__ import annotations

import logging
import os
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from trackside import Run
from trackside.mapping import cut
from trackside.values import encodable, flatten
from trackside_neptune.client import init_run
from trackside_neptune.fields import LONGEST_TEXT, LONGEST_TEXT_OF_A_SERIES, NOTHING, Fields, plain

logger = logging.getLogger(__name__)

OFFLINE = "offline/"
OUR_FOLDER = "_neptune"  # the underscore keeps it out of a push to the Hub
STOP_SECONDS = 10.0
LIVE_SECONDS = 300

# By its own default the client sends the console, tracebacks, the script, and git's remotes and diff, secrets included.
DISCREET: Mapping[str, Any] = {
    "capture_stdout": False,
    "capture_stderr": False,
    "capture_traceback": False,
    "fail_on_exception": False,
    "source_files": [],
    "git_ref": False,
}


class Opened(NamedTuple):
    """A run that is open, its id, and the values that it holds below a namespace, by their paths."""

    run: Any
    id: str
    held: Mapping[str, Any]

    @classmethod
    def of(cls, run: Any, namespace: str) -> Opened:
        """What is known of a run, which asks the server unless it is offline."""
        address = run.get_url()
        if address.startswith(OFFLINE):
            return cls(run, address, {})
        held = flatten(run[namespace].fetch()) if run.exists(namespace) else {}
        return cls(run, run["sys/id"].fetch(), held)

    @property
    def is_online(self) -> bool:
        return not self.id.startswith(OFFLINE)

    @property
    def last(self) -> tuple[int, float]:
        """Step and time of the last point that it holds."""
        step, time = NOTHING
        return self.held.get("trackside/step", step), self.held.get("trackside/time", time)

    def is_past(self, run: Run) -> bool:
        """Whether it holds points beyond the step from which a training goes on, and that was not seen to before."""
        return 0 < run.step < self.last[0] and self.held.get("trackside/set_back_at") != run.time

    def is_finished_past(self, run: Run) -> bool:
        """Whether it has even come to its end there: what follows is a branch."""
        return self.is_past(run) and self.held.get("trackside/status") == "finished"


@dataclass
class Opener:
    """Opens runs with the arguments of `neptune.init_run`, their files in a directory, ours in a namespace."""

    directory: str
    namespace: str
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, run: Run, data_directory: str | None, namespace: str, arguments: Mapping[str, Any]) -> Opener:
        # `neptune sync` looks for a folder of this name.
        directory = data_directory or os.path.join(run.output_dir, OUR_FOLDER, ".neptune")
        # What a machine does while a run is replayed is not what it did during the training.
        is_live = time.time() - run.time < LIVE_SECONDS
        measures = {} if is_live else {"capture_hardware_metrics": False}
        return cls(os.path.abspath(directory), namespace, {**DISCREET, **measures, **arguments})

    @property
    def sync_command(self) -> str | None:
        """What sends an offline run, if Neptune's command can find it."""
        folder, name = os.path.split(self.directory)
        if self.arguments["mode"] != "offline" or name != ".neptune":
            return None
        project = self.arguments["project"]
        return shlex.join(["neptune", "sync", "--path", folder, *(("--project", project) if project else ())])

    def known(self, run: Run, resume: str) -> Opened | None:
        """The run that is to be continued, unless this is a branch of it, or it is gone and nobody insists on it."""
        known = run.tracker_id
        if known is None or known.startswith(OFFLINE) or self.arguments["mode"] not in ("async", "sync"):
            return None
        try:
            opened = self._open(with_id=known)
        except LookupError as error:
            if known == resume:
                raise
            logger.warning("neptune has no run %s any more (%s): another one is started.", known, error)
            return None
        if known == resume or not opened.is_finished_past(run):
            return opened
        opened.run.stop(seconds=STOP_SECONDS)
        return None

    def new(self, name: str, custom_run_id: str) -> Opened:
        """A new run, or the one that an interrupted try has made under the same id of ours."""
        return self._open(name=cut(encodable(name), LONGEST_TEXT_OF_A_SERIES), custom_run_id=custom_run_id)

    def tidy(self) -> None:
        """Remove the folders that are empty now, up to the one that is ours."""
        inner = [os.path.join(self.directory, name) for name in ("files", "async")]
        ours = [folder for folder in [os.path.dirname(self.directory)] if os.path.basename(folder) == OUR_FOLDER]
        for folder in (*inner, self.directory, *ours):
            with suppress(OSError):  # there is something in it
                os.rmdir(folder)

    def _open(self, **arguments: Any) -> Opened:
        return Opened.of(init_run(self.directory, **self.arguments, **arguments), self.namespace)


def describe(run: Run, opened: Opened, fields: Fields, is_users: bool) -> None:
    """Say in a run where it comes from, and which trial it is."""
    about = {"run_id": run.id, **run.source}
    if not is_users:
        about["status"] = "running"
        opened.run["sys/failed"].assign(False)
    if run.tracker_id not in (None, opened.id):
        about["continues"] = str(run.tracker_id)
    for key, text in about.items():
        fields.assign(f"trackside/{key}", encodable(cut(text, LONGEST_TEXT)))
    if run.trial_name is not None:
        fields.assign("trial", encodable(run.trial_name))
    for key, value in (run.trial_params or {}).items():
        fields.replace(f"trial_params/{key}", plain(value))
