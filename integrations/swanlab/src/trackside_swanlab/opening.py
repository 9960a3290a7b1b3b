"""Opening and ending a run: what SwanLab is told of it, and what it is kept from finding out, printing and hooking."""

from __future__ import annotations

import atexit
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trackside import Run
from trackside.mapping import cut
from trackside.values import encodable, flatten
from trackside_swanlab.account import check_key
from trackside_swanlab.active import note_reported
from trackside_swanlab.quiet import forget_losses, keeping_excepthook, listening, quietly

FOLDER = "_swanlab"
DEFAULT_OF_TRANSFORMERS = "huggingface"
LONGEST_NAME = 512
LONGEST_PROJECT = 100
LIVE_SECONDS = 60

# Command lines, addresses of repositories and what a program prints may hold secrets.
UNASKED: dict[str, dict[str, Any]] = {"probe": {"runtime": False, "git": False}, "terminal": {"proxy_type": "none"}}
ONLY_LIVE: dict[str, dict[str, Any]] = {"probe": {"monitor": False, "hardware": False}}

# What the SDK says of a server in trouble, which it raises as it raises a refusal. An unknown code is no answer of
# SwanLab's own, but of a proxy before it.
OF_THE_MOMENT = re.compile(r"-> (?:429|5\d\d)|\[(?:429|5\d\d|unknown code)\]|Max retries exceeded|timed out")


@contextmanager
def readable_settings() -> Iterator[None]:
    """Hide the variable for the project: SwanLab 0.10 takes it for JSON, and cannot be used beside it."""
    project = os.environ.pop("SWANLAB_PROJECT", None)
    try:
        yield
    finally:
        if project is not None:
            os.environ["SWANLAB_PROJECT"] = project


def open_run(run: Run, options: Mapping[str, Any]) -> Any:
    """A new run, or the one with the id in `options`.

    Raises:
        OSError: the server cannot be reached, or has a trouble of the moment.
        RuntimeError: there is no key, the server refuses the run, or another one is open in this process.
    """
    import swanlab
    from swanlab.sdk.internal.settings import create_settings

    if swanlab.has_run():
        raise RuntimeError("SwanLab has one run at a time in a process, and another one is open")
    forget_losses()
    with readable_settings(), keeping_excepthook(), listening() as said:
        known = create_settings()
        if (options["mode"] or known.mode) in ("online", "cloud"):
            check_key(known.api_host, known.api_key)
        about = {
            "project": _project(run, options, known),
            "name": cut(encodable(options["name"] or known.experiment.name or run.name), LONGEST_NAME),
            "log_dir": _folder(run, options),
        }
        try:
            opened = swanlab.init(**{**options, **about}, settings=_settings(run))
        except RuntimeError as error:
            if OF_THE_MOMENT.search(" ".join([*said, str(error)])):
                raise ConnectionError(str(error)) from error
            raise
        note_reported(opened)
        atexit.unregister(opened._handle_atexit)  # how a run ends is told by the reporter
    return opened


def end_run(run: Any, state: str, reason: str | None) -> None:
    """Finish a run; raises what the SDK only prints."""
    with keeping_excepthook():
        quietly(lambda: run.finish(state=state, error=reason))


def origin(run: Run, run_id: str) -> dict[str, Any]:
    """What a config says of where a run comes from, and which trial it is."""
    config: dict[str, Any] = {f"trackside/{key}": text for key, text in run.source.items()}
    if run.tracker_id not in (None, run_id):
        config["trackside/continues"] = run.tracker_id
    if run.trial_name is not None:
        config["trial/name"] = run.trial_name
        config |= {f"trial/{key}": value for key, value in flatten(run.trial_params or {}).items()}
    return config if run.num_parameters is None else {**config, "model/num_parameters": run.num_parameters}


def _settings(run: Run) -> Any:
    """Settings of ours, unless variables or files of SwanLab's own say otherwise."""
    import swanlab

    said = swanlab.Settings()
    ours: dict[str, Any] = {"interactive": False}
    for wanted in (UNASKED, {} if time.time() - run.time < LIVE_SECONDS else ONLY_LIVE):
        for group, values in wanted.items():
            known = getattr(said, group).model_fields_set if group in said.model_fields_set else ()
            unsaid = {name: value for name, value in values.items() if name not in known}
            ours[group] = {**ours.get(group, {}), **unsaid}
    return swanlab.Settings(**ours)


def _project(run: Run, options: Mapping[str, Any], known: Any) -> str:
    """That of the user, or the name of the working folder, as SwanLab itself has it."""
    of_loop = None if run.project == DEFAULT_OF_TRANSFORMERS else run.project
    named = options["project"] or known.project.name
    return str(named or re.sub(r"[^0-9a-zA-Z_\-+.]", "_", of_loop or Path.cwd().name)[:LONGEST_PROJECT] or "trackside")


def _folder(run: Run, options: Mapping[str, Any]) -> str | None:
    if options["log_dir"] is None and "SWANLAB_LOGDIR" in os.environ:
        return None
    folder = os.path.abspath(options["log_dir"] or os.path.join(run.output_dir, FOLDER))
    os.makedirs(folder, exist_ok=True)
    return folder
