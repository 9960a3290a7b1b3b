"""Opening a run: a new one, one that is continued, or the one that a user has opened."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from trackside import Run
from trackside.mapping import cut
from trackside.values import flatten
from trackside_neptune.client import init_run
from trackside_neptune.fields import LONGEST_TEXT_OF_A_SERIES, NOTHING, encodable

OFFLINE = "offline/"
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
        # The underscore keeps it out of a push to the Hub; `neptune sync` looks for a folder of this name.
        directory = data_directory or os.path.join(run.output_dir, "_neptune", ".neptune")
        # What a machine does while a run is replayed is not what it did during the training.
        is_live = time.time() - run.time < LIVE_SECONDS
        measures = {} if is_live else {"capture_hardware_metrics": False}
        return cls(os.path.abspath(directory), namespace, {**DISCREET, **measures, **arguments})

    @property
    def folder_to_sync(self) -> str | None:
        """What `neptune sync --path` takes."""
        folder, name = os.path.split(self.directory)
        return folder if name == ".neptune" else None

    def new(self, name: str, custom_run_id: str) -> Opened:
        """A new run, or the one that an interrupted try has made under the same id of ours."""
        return self._open(name=cut(encodable(name), LONGEST_TEXT_OF_A_SERIES), custom_run_id=custom_run_id)

    def old(self, run_id: str) -> Opened:
        """A run that is there; a LookupError if it is not."""
        return self._open(with_id=run_id)

    def _open(self, **arguments: Any) -> Opened:
        return Opened.of(init_run(self.directory, **self.arguments, **arguments), self.namespace)
