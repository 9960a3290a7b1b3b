"""A run of two values, by which a tracker shows that it takes one."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress

from trackside import Reporter, TrainerState
from trackside.delivery import Delivery
from trackside.options import options_of
from trackside.records import Record, Run, Status

NAME = "trackside-doctor"


def make_tiny_run(reporter: Reporter) -> None:
    """Open a run, log to it, and close it, by the reporter's own operations; raises what one of them raises.

    It is a new run, whatever the environment says is to be continued. What it leaves on this disk is deleted.
    """
    reporter.resume = "new"
    for name in options_of(type(reporter)):
        if name.endswith("run_id"):  # which may be that of a run that is there already
            setattr(reporter, name, None)
    state = TrainerState(global_step=1, max_steps=1)
    with tempfile.TemporaryDirectory(prefix=NAME, ignore_cleanup_errors=True) as folder:
        args = {"output_dir": folder, "run_name": NAME}
        run, delivery = Run.gather(args, state), Delivery(reporter)
        reporter.setup(args, state, None)
        delivery.start(run)
        try:
            log = Record("log", 1, 1.0, time.time(), {"doctor": 1.0})
            for call in (*delivery.param_calls(run), *delivery.calls([log])):
                getattr(reporter, call.operation)(*call.arguments)
            reporter.flush()
        except BaseException:
            with suppress(Exception):
                _finish(reporter, "failed")
            raise
        _finish(reporter, "finished")


def _finish(reporter: Reporter, status: Status) -> None:
    if not reporter.adopted:
        reporter.finish(status)
