"""comet_ml without what it does of its own accord: printing, patching and collecting."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from pathlib import Path
from random import SystemRandom
from typing import Any

# What an import of ours switches off, unless the user has said what he wants.
AT_IMPORT = {
    "COMET_DISABLE_AUTO_LOGGING": "1",  # patches of frameworks, which have to be imported after it
    "COMET_ERROR_TRACKING_ENABLE": "false",  # errors of the program, sent to Comet's makers
    "COMET_LOGGING_CONSOLE": "CRITICAL",
}

# What an experiment of ours does not collect, unless Comet's own setting says so. Code, patches, remotes, output and
# command lines may hold secrets, and details of the machine are asked of a cloud's metadata server.
UNASKED = {
    "auto_log_co2": "comet.auto_log.co2",
    "auto_metric_logging": "comet.auto_log.metrics",
    "auto_output_logging": "comet.auto_log.output_logger",
    "auto_param_logging": "comet.auto_log.parameters",
    "log_code": "comet.auto_log.code",
    "log_env_details": "comet.auto_log.env_details",
    "log_git_metadata": "comet.auto_log.git_metadata",
    "log_git_patch": "comet.auto_log.git_patch",
    "parse_args": "comet.auto_log.cli_arguments",
}

# Where Comet looks for its settings, and the name of the API key there.
CONFIG_FILES = {"./.comet.config": "api_key", "~/.comet.config": "api_key", ".env": "comet_api_key"}


def import_quietly() -> Any:
    """comet_ml; if we are the first to import it, without its patches, its output and its hook."""
    if "comet_ml" in sys.modules:
        import comet_ml

        _draw_names_from_the_system()
        return comet_ml
    ours = {name: value for name, value in AT_IMPORT.items() if name not in os.environ}
    logging.getLogger("comet_ml").setLevel(logging.CRITICAL)
    os.environ.update(ours)
    try:
        import comet_ml
    finally:
        for name in ours:
            os.environ.pop(name, None)
    if "COMET_LOGGING_CONSOLE" in ours:
        logging.getLogger("comet_ml").setLevel(logging.ERROR)
    _remove_exception_hook()
    _draw_names_from_the_system()
    return comet_ml


def _draw_names_from_the_system() -> None:
    """Comet draws the names of archives from `random`: of two trainings with one seed one would overwrite the other."""
    utils: Any = sys.modules.get("comet_ml.utils")
    if hasattr(utils, "random"):
        utils.random = SystemRandom()


def _remove_exception_hook() -> None:
    """Comet's hook sends the text of an uncaught exception, with all secrets in it, to the experiment that is open."""
    if sys.excepthook.__module__ == "comet_ml.exceptionhook":
        sys.excepthook = inspect.getclosurevars(sys.excepthook).nonlocals["old_exception_hook"]


def unasked(config: Any) -> dict[str, Any]:
    """The arguments of `comet_ml.ExperimentConfig` that switch off what nobody has asked for."""
    settings: dict[str, Any] = {name: False for name, key in UNASKED.items() if config[key] is None}
    if "COMET_DISPLAY_SUMMARY_LEVEL" not in os.environ:
        settings["display_summary_level"] = 0
    return settings


def knows_api_key() -> bool:
    """Whether comet_ml will find an API key, as far as that can be told without importing it."""
    if "comet_ml" in sys.modules:
        comet_ml = import_quietly()
        return comet_ml.get_api_key(None, comet_ml.get_config()) is not None
    if os.environ.get("COMET_API_KEY"):
        return True
    named = os.environ.get("COMET_CONFIG", "")
    places = {**CONFIG_FILES, named: "api_key", os.path.join(named, ".comet.config"): "api_key"}
    return any(_holds(Path(place).expanduser(), name) for place, name in places.items())


def _holds(file: Path, name: str) -> bool:
    return file.is_file() and name in file.read_text("utf-8", "replace").lower()
