"""What is refused, as `mlflow.utils.validation` does it."""

import posixpath
import re

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import refuse

NAME = re.compile(r"[/\w.\- :]*")
STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")


def check_name(name):
    if not isinstance(name, str) or not NAME.fullmatch(name):
        refuse(f"Invalid value {name!r}: names may only contain alphanumerics, _ - . space : and /")
    if posixpath.normpath(name) != name or name == "." or name.startswith(("..", "/")):
        refuse(f"Invalid value {name!r}: names must not resolve to other names when treated as files")
    if len(name) > 250:
        refuse("'key' exceeds the maximum length of 250 characters")


def check_batch(metrics, params, tags):
    for entities, kind, most in ((metrics, Metric, 1000), (params, Param, 100), (tags, RunTag, 100)):
        if len(entities) > most:
            refuse(f"a batch of {len(entities)} {kind.__name__}s has more than {most}")
        for entity in entities:
            if not isinstance(entity, kind):
                raise TypeError(f"{entity!r} is no {kind.__name__}")
            check_name(entity.key)
    for metric in metrics:
        if type(metric.value) is not float or type(metric.timestamp) is not int or type(metric.step) is not int:
            refuse(f"Got invalid value, timestamp or step for metric {metric!r}")
        if metric.timestamp < 0 or abs(metric.step) >= 2**63:
            refuse(f"Got invalid timestamp or step for metric {metric!r}")
    for entity in (*params, *tags):
        check_text(entity.value)
        longest = 6000 if isinstance(entity, Param) else 5000
        if len(entity.value) > longest:
            refuse(f"{entity.key} had length {len(entity.value)}, which exceeded the limit of {longest}")
    size = sum(len(entity.key) + 12 * len(str(entity.value)) for entity in (*params, *tags))
    if size > 1_000_000:
        refuse("Batched logging API requests must be at most 1000000 bytes")
    keys = [param.key for param in params]
    if len(keys) != len(set(keys)):
        refuse("Duplicate parameter keys have been submitted")


def check_text(text):
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    text.encode("utf-8")


def check_status(status):
    if status not in STATUSES:
        raise ValueError(f"Could not get run status corresponding to string {status}")


def check_artifact_path(path):
    if posixpath.normpath(path) != path or path == "." or path.startswith(("..", "/")):
        refuse(f"Invalid artifact path: {path!r}")
