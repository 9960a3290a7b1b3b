"""Settings, which are read from the environment only."""

import os

SWITCHES = ("cli_arguments", "co2", "code", "env_details", "git_metadata", "git_patch", "metrics", "parameters")
KEYS = ["comet.api_key", "comet.auto_log.disable", "comet.auto_log.output_logger"]
KEYS += [f"comet.auto_log.{switch}" for switch in SWITCHES]

experiment = None


class Config:
    def __getitem__(self, key):
        if key not in KEYS:
            raise KeyError(key)
        return os.environ.get(key.upper().replace(".", "_"))


def get_config():
    return Config()


def get_api_key(api_key, config):
    return api_key or config["comet.api_key"]


def get_global_experiment():
    return experiment


def get_running_experiment():
    return experiment


def set_global_experiment(new_experiment):
    global experiment
    experiment = new_experiment
