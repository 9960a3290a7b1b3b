"""Stands in the place of comet_ml: refuses, cuts and drops what the real one does, and reaches no network."""

import logging
import os
import sys

from comet_ml.config import get_api_key, get_config, get_global_experiment, get_running_experiment
from comet_ml.exceptionhook import _create_exception_hook
from comet_ml.exceptions import ExperimentNotFound, InvalidAPIKey, InvalidExperimentMode
from comet_ml.experiment import Experiment, OfflineExperiment
from comet_ml.server import KNOWN_KEY, SERVER

__all__ = [
    "Experiment",
    "ExperimentConfig",
    "OfflineExperiment",
    "get_api_key",
    "get_config",
    "get_global_experiment",
    "get_running_experiment",
    "start",
]

IMPORTED_WITH = {name: text for name, text in os.environ.items() if name.startswith("COMET_")}
STARTED_WITH = []


class ExperimentConfig:
    def __init__(
        self,
        disabled=None,
        log_code=None,
        log_graph=None,
        parse_args=None,
        display_summary_level=1,
        log_git_metadata=None,
        log_git_patch=None,
        log_env_details=None,
        log_env_gpu=None,
        log_env_host=None,
        log_env_cpu=None,
        log_env_network=None,
        log_env_disk=None,
        auto_output_logging="simple",
        auto_param_logging=True,
        auto_metric_logging=True,
        auto_log_co2=True,
        auto_metric_step_rate=10,
        auto_histogram_epoch_rate=1,
        auto_histogram_gradient_logging=False,
        auto_histogram_activation_logging=False,
        auto_histogram_tensorboard_logging=False,
        auto_histogram_weight_logging=False,
        offline_directory=None,
        distributed_node_identifier=None,
        name=None,
        tags=None,
    ):
        vars(self).update({name: value for name, value in locals().items() if name != "self"})
        self.disabled = bool(get_config()["comet.auto_log.disable"])


def start(
    api_key=None,
    workspace=None,
    project=None,
    project_name=None,
    experiment_key=None,
    mode=None,
    online=None,
    source=None,
    experiment_config=None,
):
    STARTED_WITH.append({**vars(experiment_config), "mode": mode})
    if mode not in ("get_or_create", "get", "create"):
        raise InvalidExperimentMode(mode)
    if not (experiment_key.isalnum() and 32 <= len(experiment_key) <= 50):
        raise ValueError(f"{experiment_key} is no key")
    key = get_api_key(api_key, get_config())
    running = get_global_experiment()
    if running is not None and not running.ended and mode != "create":
        return running
    if online is False:
        experiment = OfflineExperiment(experiment_key, experiment_config, key)
    else:
        _check_with_server(experiment_key, mode, key)
        experiment = Experiment(experiment_key, experiment_config, key)
    experiment.stored.workspace, experiment.stored.project = workspace, project_name
    return experiment


def _check_with_server(experiment_key, mode, api_key):
    if api_key is None:
        raise ValueError("no API key")
    if not SERVER.is_reachable:
        raise ConnectionError("connection refused")
    if api_key != KNOWN_KEY:
        raise InvalidAPIKey(api_key, "www.comet.com")
    exists = experiment_key in SERVER.experiments
    if mode == "get" and not exists:
        raise ExperimentNotFound(f"there is no experiment {experiment_key}")
    if mode == "create" and exists:
        raise InvalidExperimentMode(f"there is an experiment {experiment_key}")


logging.getLogger("comet_ml").setLevel(os.environ.get("COMET_LOGGING_CONSOLE", "INFO"))
sys.excepthook = _create_exception_hook(sys.excepthook)
